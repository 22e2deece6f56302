"""How a checkpoint is stored as a snapshot, and found by its id.

It is saved in the scope of its graph in the session of its run, and stays there. Its labels say to
which run and graph it belongs now, so that a move to another one is a single overwrite.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from limpet.api.integrations import (
    Backend,
    Commit,
    Query,
    Tools,
    Work,
    codec,
    limits,
    new_id,
    prepare,
    times,
    verbs,
)
from limpet.compat.agentos.javascript import length_of
from limpet.compat.agentos.records import Checkpoint, CheckpointMetadata, is_timestamp
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON, ScopeKey, Snapshot, SnapshotInfo, SnapshotRef

KIND: Final = "graph"
RUN: Final = "run_id"
GRAPH: Final = "graph_id"
NODE: Final = "node_id"
PARTITIONS = ("input", "scratch", "artifacts", "diagnostics")

_FACADE = "agentos"  # in metadata: the fields that are neither state nor label
_SIZE = "state_size"
_BYTES = "state_bytes"  # of the state with that size: another program may replace the state
_NO_NODE = "__fork__"  # the node of a fork of a snapshot that has none
_ELSEWHERE = ("id", "graphId", "runId", "nodeId", "state")


def commit_of(checkpoint: Checkpoint, tools: Tools, scope: ScopeKey | None = None) -> Commit:
    """Return the encoded commit of a checkpoint, by default in the scope of its graph.

    Raises:
        InvalidInput: a value is not JSON (the message has its path), or too large.
    """
    rest = checkpoint.to_json()
    for name in _ELSEWHERE:
        del rest[name]
    names = {RUN: checkpoint.run_id, GRAPH: checkpoint.graph_id, NODE: checkpoint.node_id}
    commit = prepare.save(
        scope or limits.check_scope(checkpoint.run_id, checkpoint.graph_id, KIND),
        checkpoint.state,
        id=checkpoint.id,
        overwrite=True,
        labels=names,
        created_at=_moment_of(checkpoint.timestamp),
        stamp=tools.draw(),
        state_bytes_max=tools.state_bytes_max,
    )
    # Measured only now, when the state is known to be JSON.
    body = commit.body if isinstance(commit.body, bytes) else b""
    size = {_SIZE: length_of(checkpoint.state), _BYTES: len(body)}
    metadata = {**size, _FACADE: rest}
    return commit._replace(metadata=prepare.encode_metadata(metadata, tools.state_bytes_max))


def fork_of(source: Snapshot, patch: Mapping[str, Any] | None, tools: Tools) -> Commit:
    wire = checkpoint_of(source).to_json()
    # The fork stays with the tenant of its source.
    tenant, slash, _ = source.session_id.rpartition("/")
    run_id = f"{tenant}{slash}{new_id(tools)}"
    origin: dict[str, JSON] = {"checkpointId": source.id, "runId": wire["runId"]}
    if patch is not None:
        origin["patchState"] = patch
    wire |= {
        "id": new_id(tools),
        "runId": run_id,
        "nodeId": wire["nodeId"] or _NO_NODE,
        "timestamp": tools.draw().now // 1000,
        "state": source.state if patch is None else _patched(source.state, patch),
        "forkedFrom": origin,
    }
    fork = Checkpoint.from_json(wire)
    # In the kind of its source, so that the program that uses this kind sees it.
    scope = limits.check_scope(run_id, fork.graph_id, source.scope.kind)
    return commit_of(fork, tools, scope)._replace(forked_from=SnapshotRef(source.scope, source.id))


def patch_of(patch: object) -> dict[str, Any] | None:
    """Return a copy of the four partitions of a patch.

    Raises:
        InvalidInput: the patch or a partition is not a mapping.
    """
    if patch is None:
        return None
    if not isinstance(patch, Mapping):
        raise InvalidInput(f"patch_state must be a mapping. type=`{type(patch).__name__}`")
    chosen: dict[str, dict[str, JSON]] = {}
    for name in PARTITIONS:
        part = patch.get(name)
        if isinstance(part, Mapping):
            chosen[name] = dict(part)
        elif part is not None:
            kind = type(part).__name__
            raise InvalidInput(f"a partition must be a mapping. partition=`{name}` type=`{kind}`")
    copy: dict[str, Any] = codec.decode(
        codec.encode(chosen, what="patch_state", bytes_max=limits.STATE_BYTES_MAX)
    )
    return copy


def _patched(state: JSON, patch: Mapping[str, Any]) -> JSON:
    if not isinstance(state, dict):
        raise InvalidInput(f"only an object can be patched. type=`{type(state).__name__}`")
    for name, part in patch.items():
        before = state.get(name, {})
        if not isinstance(before, dict):
            kind = type(before).__name__
            raise InvalidInput(f"only an object can be patched. partition=`{name}` type=`{kind}`")
        state[name] = before | part
    return state


def checkpoint_of(found: Snapshot) -> Checkpoint:
    """Return the checkpoint of a snapshot; one of another program has defaults."""
    return Checkpoint.from_json({**_facts(found), "state": found.state})


def metadata_of(info: SnapshotInfo) -> CheckpointMetadata:
    """Return what listings show; the size of another program's state is in bytes."""
    facts = _facts(info)
    size = info.metadata.get(_SIZE) if info.metadata.get(_BYTES) == info.size else None
    return CheckpointMetadata(
        id=info.id,
        run_id=facts["runId"],
        graph_id=facts["graphId"],
        node_id=facts["nodeId"],
        timestamp=facts["timestamp"],
        state_size=size if type(size) is int else info.size,
        has_memory_snapshot="memorySnapshot" in facts,
    )


def is_checkpoint(info: SnapshotInfo) -> bool:
    """Return whether a snapshot is a checkpoint, and not another one with such a label or id."""
    return info.scope.kind == KIND or isinstance(info.metadata.get(_FACADE), dict)


def timestamp_of(info: SnapshotInfo) -> float:
    timestamp: float = _facts(info)["timestamp"]
    return timestamp


def _facts(info: SnapshotInfo) -> dict[str, Any]:
    """Return the wire fields of a checkpoint except its state."""
    rest = info.metadata.get(_FACADE)
    facts: dict[str, Any] = dict(rest) if isinstance(rest, dict) else {}
    if not is_timestamp(facts.get("timestamp")):
        facts["timestamp"] = int(info.created_at.timestamp() * 1000)
    return {
        **facts,
        "id": info.id,
        "graphId": info.labels.get(GRAPH, info.scope.scope_id),
        "runId": info.labels.get(RUN, info.session_id),
        "nodeId": info.labels.get(NODE, ""),
    }


def _moment_of(timestamp: float) -> datetime | None:
    """Return the time of a timestamp, None if it is out of range."""
    try:
        return times.from_us(int(timestamp * 1000))
    except (Corrupt, OverflowError, ValueError):
        return None


# Ids are unique within a scope, and a checkpoint may be in any: these search all of them.


def read(checkpoint_id: str) -> Work[Snapshot | None]:
    """Read the checkpoint of an id, else the last snapshot of that id by another program."""
    id = limits.check_id("checkpoint_id", checkpoint_id)

    def work(backend: Backend) -> Snapshot | None:
        other: SnapshotInfo | None = None
        for info in _named(backend, id):
            if is_checkpoint(info):
                break
            other = other or info
        else:
            if other is None:
                return None
            info = other
        found = backend.read_snapshots(info.scope, [id])
        return verbs.snapshot_of(found[0]) if found else None

    return work


def upsert(commit: Commit) -> Work[SnapshotInfo]:
    """Store a checkpoint in the scope that has its id, else in the scope of the commit."""

    def work(backend: Backend) -> SnapshotInfo:
        found = filter(is_checkpoint, _named(backend, commit.id or ""))
        scope = next((info.scope for info in found), commit.scope)
        return backend.commit(commit._replace(scope=scope))

    return work


def delete(checkpoint_id: str) -> Work[None]:
    id = limits.check_id("checkpoint_id", checkpoint_id)

    def work(backend: Backend) -> None:
        for info in list(filter(is_checkpoint, _named(backend, id))):
            backend.delete_snapshots(info.scope, [id])

    return work


def _named(backend: Backend, id: str) -> Iterator[SnapshotInfo]:
    """Yield the snapshots of an id in all scopes, the last saved first."""
    return verbs.each(backend, verbs.matching(Query(id=id)))
