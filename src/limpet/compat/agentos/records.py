"""The records of `ICheckpointStore`, and how a checkpoint is stored as a snapshot. Pure.

Only the fields by which a checkpoint is found are checked. All others pass through unchanged. It is
saved in the scope of its graph in the session of its run, and stays there. Its labels say to which
run and graph it belongs now, so that a move to another one is a single overwrite.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Self

from limpet.api.integrations import Commit, Tools, codec, limits, new_id, prepare, times
from limpet.compat.agentos.javascript import length_of
from limpet.compat.wire import ABSENT, WireRecord, require
from limpet.errors import Corrupt
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


@dataclass(frozen=True)
class Checkpoint(WireRecord):
    """The state of a graph run after one of its nodes.

    `timestamp` is in milliseconds since 1970. `state` is an object with the partitions `input`,
    `scratch`, `artifacts` and `diagnostics`. `node_results` holds the result of each node,
    `visited_nodes` the completed ones in order. `memory_snapshot` and `skipped_nodes` are optional.
    `forked_from` is written by `fork`: the `checkpointId` and `runId` that the run began from, and
    the `patchState` if there was one.
    """

    id: str
    graph_id: str
    run_id: str
    node_id: str
    timestamp: float
    state: JSON
    memory_snapshot: JSON = ABSENT
    node_results: JSON = field(default_factory=dict)
    visited_nodes: JSON = field(default_factory=list)
    skipped_nodes: JSON = ABSENT
    pending_edges: JSON = field(default_factory=list)
    forked_from: JSON = ABSENT
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)

    def check(self) -> Self:
        """Return it, or raise InvalidInput if it cannot be saved."""
        limits.check_id("id", self.id)
        for name in ("graph_id", "run_id", "node_id"):
            check_name(name, getattr(self, name))
        fact = "the timestamp must be a number of milliseconds"
        require(is_timestamp(self.timestamp), fact, self.timestamp)
        require(isinstance(self.state, dict), "the state must be an object", self.state)
        return self


@dataclass(frozen=True)
class CheckpointMetadata(WireRecord):
    """What a listing shows of a checkpoint.

    `state_size` is the length of the state as JavaScript writes it, in units of UTF-16.
    """

    id: str
    run_id: str
    graph_id: str
    node_id: str
    timestamp: float
    state_size: int
    has_memory_snapshot: bool


def check_name(name: str, value: object) -> str:
    """Return the id of a run, a graph or a node. They are labels, of up to 256 characters."""
    return limits.check_text(name, value, chars_min=1, chars_max=limits.LABEL_CHARS_MAX)


def is_timestamp(value: object) -> bool:
    """Return whether a value is a number; saving it refuses one that is not finite."""
    return isinstance(value, int | float) and not isinstance(value, bool)


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


def patch_of(patch: Any) -> dict[str, Any] | None:
    """Return a copy of the four partitions of a patch.

    Raises:
        InvalidInput: the patch or a partition is not a mapping.
    """
    if patch is None:
        return None
    require(isinstance(patch, Mapping), "patch_state must be a mapping", patch)
    chosen = {name: patch[name] for name in PARTITIONS if patch.get(name) is not None}
    for name, part in chosen.items():
        require(
            isinstance(part, Mapping), f"a partition must be a mapping. partition=`{name}`", part
        )
    copy: dict[str, Any] = codec.decode(
        codec.encode(
            {n: {**part} for n, part in chosen.items()},
            what="patch_state",
            bytes_max=limits.STATE_BYTES_MAX,
        )
    )
    return copy


def _patched(state: JSON, patch: Mapping[str, Any]) -> JSON:
    fact = "only an object can be patched"
    require(isinstance(state, dict), fact, state)
    for name, part in patch.items():
        before = state.get(name, {})
        require(isinstance(before, dict), f"{fact}. partition=`{name}`", before)
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
    try:
        return times.from_us(int(timestamp * 1000))
    except (Corrupt, OverflowError, ValueError):
        return None
