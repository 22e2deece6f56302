"""Checkpoints as snapshots: addresses, encoding and decoding. Pure.

The state of a snapshot is the checkpoint without its id, which is that of the snapshot. Channels
come first, so that two states with a growing list have a long common beginning.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeGuard, cast

import orjson
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    EXCLUDED_METADATA_KEYS,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)

from limpet.api.integrations import Commit, Stamp, codec, limits, prepare, retention, times
from limpet.compat.langgraph.classes import MESSAGE_NAMES
from limpet.compat.langgraph.decode import ValueDecoder
from limpet.compat.langgraph.encode import ValueEncoder
from limpet.compat.langgraph.messages import (
    MessageCache,
    MessageRun,
    Template,
    read_template,
    template_of,
)
from limpet.compat.langgraph.serde import ValueRules
from limpet.compat.langgraph.tags import MESSAGE, SEALED, encoded_name
from limpet.errors import Corrupt, InvalidInput
from limpet.model import Note, ScopeKey, SnapshotInfo

KIND = "thread"
FACADE = "langgraph"
ABSENT = retention.NEEDS_PARENT  # in the metadata: delta channels without a value here
DELTA_HISTORY = "delta_history"  # in the state: the deltas of removed ancestors, by channel
RUN = "run_id"

_VALUES = "channel_values"
_COUNTERS = "counters_since_delta_snapshot"
_FIRST_VERSION = f"{1:032}.{0:016}"

Config: TypeAlias = RunnableConfig
Write: TypeAlias = tuple[str, str, Any]


class ValueCodec(NamedTuple):
    rules: ValueRules
    cache: MessageCache
    decoder: ValueDecoder


class SplitCheckpoint(NamedTuple):
    """A checkpoint split up: cheaper to rebuild than to decode, and to compare with the next.

    `channels` are runs of messages, or JSON; `rest` is JSON without the channels.
    """

    id: str
    channels: dict[str, MessageRun | bytes]
    versions: Mapping[str, Any]
    rest: bytes
    size: int

    def unchanged(self, versions: Mapping[str, Any]) -> dict[str, MessageRun | bytes]:
        """Return the channels that a child with these versions has, too.

        Only versions that are text count: they have a random part, so none is used twice.
        """
        return {
            name: channel
            for name, channel in self.channels.items()
            if type(version := versions.get(name)) is str and version == self.versions.get(name)
        }


# Addresses


def scope_of(thread_id: object, namespace: object) -> ScopeKey:
    if not isinstance(namespace, str):
        kind = type(namespace).__name__
        raise InvalidInput(f"checkpoint_ns must be a str. type=`{kind}`")
    return _scope(session_of(thread_id), namespace)


@lru_cache(1024)  # a turn asks for its scope a dozen times
def _scope(session_id: str, namespace: str) -> ScopeKey:
    return limits.check_scope(session_id, f":{namespace}" if namespace else "main", KIND)


def session_of(thread_id: object) -> str:
    """Return the session of a thread: its id; with one more `!` if it is nothing but those.

    For no session has an empty id, and no two threads may share one.
    """
    id = str(thread_id)
    return id if id.strip("!") else f"{id}!"


def thread_of(session_id: str) -> str:
    return session_id if session_id.strip("!") else session_id[1:]


def scope_in(config: Config) -> ScopeKey:
    found = configurable(config)
    if found.get("thread_id") is None:
        raise InvalidInput("the config has no thread_id")
    return scope_of(found["thread_id"], found.get("checkpoint_ns") or "")


def namespace_of(scope: ScopeKey) -> str | None:
    """Return the namespace of a scope; None if it is not LangGraph's."""
    if scope.kind != KIND:
        return None
    if scope.scope_id == "main":
        return ""
    return scope.scope_id[1:] if scope.scope_id.startswith(":") else None


def configurable(config: Any) -> Mapping[str, Any]:
    # A dict first: to ask whether something else is a mapping takes ten times as long.
    found = config.get("configurable") if isinstance(config, (dict, Mapping)) else None
    if not isinstance(found, (dict, Mapping)):
        raise InvalidInput("the config must be a dict with a `configurable`")
    return found


def id_in(config: Any) -> str | None:
    found = configurable(config).get("checkpoint_id")
    return None if not found else limits.check_id("checkpoint_id", found)


def config_of(scope: ScopeKey, checkpoint_id: str) -> Config:
    namespace = namespace_of(scope)
    return {
        "configurable": {
            "thread_id": thread_of(scope.session_id),
            "checkpoint_ns": scope.scope_id if namespace is None else namespace,
            "checkpoint_id": checkpoint_id,
        }
    }


# Writing


def commit_of(
    codec_: ValueCodec,
    scope: ScopeKey,
    parent_id: str | None,
    checkpoint: Mapping[str, Any],
    meta: dict[str, Any],
    *,
    stamp: Stamp,
    bytes_max: int,
    before: SplitCheckpoint | None,
) -> tuple[Commit, SplitCheckpoint]:
    """Encode a checkpoint; what it has in common with `before` is not encoded again.

    Raises:
        InvalidInput: a value cannot be stored exactly.
    """
    id = limits.check_id("checkpoint id", checkpoint["id"])
    body, split = _encoded_state(codec_, checkpoint, parent_id, bytes_max, before)
    # Only the run id: more labels would make each checkpoint a tenth larger.
    run = meta.get(RUN)
    is_label = isinstance(run, str | int) and not isinstance(run, bool)
    labels = prepare.encode_labels({RUN: label_of(run)}) if is_label else b"{}"
    commit = Commit(
        scope=scope,
        body=body,
        status="completed",
        labels=labels,
        metadata=_encoded_metadata(codec_, meta, checkpoint, bytes_max),
        stamp=stamp,
        id=id,
        parent=None if parent_id == id else parent_id,
        created_at=_made_at(checkpoint.get("ts")),
    )
    return commit, split


def _encoded_state(
    codec_: ValueCodec,
    checkpoint: Mapping[str, Any],
    parent_id: str | None,
    bytes_max: int,
    before: SplitCheckpoint | None,
) -> tuple[bytes, SplitCheckpoint]:
    encoder = ValueEncoder(codec_.rules, codec_.cache, [_VALUES], bytes_max=bytes_max)
    versions = dict(checkpoint.get("channel_versions") or {})
    last = {} if before is None else before.channels
    is_parent = before is not None and before.id == parent_id
    unchanged = before.unchanged(versions) if before is not None and is_parent else {}
    channels = {
        name: unchanged.get(name) or encoder.channel(name, value, last.get(name))
        for name, value in checkpoint[_VALUES].items()
    }
    rest = {k: v for k, v in checkpoint.items() if k not in (_VALUES, "id", DELTA_HISTORY)}
    if next(iter(rest), "").startswith("$"):
        raise InvalidInput("the first key of a checkpoint must not begin with $")
    after = encoder.open_value(rest)
    parts: list[bytes] = [b'{"channel_values":']
    separator = b"{"
    for name, channel in channels.items():
        json = (channel,) if isinstance(channel, bytes) else (b"[", channel.body, b"]")
        parts += (separator, encoded_name(name), b":", *json)
        separator = b","
    parts += (b"{}" if separator == b"{" else b"}", b"," + after[1:] if rest else b"}")
    body = joined(parts, "the checkpoint", bytes_max)
    return body, SplitCheckpoint(checkpoint["id"], channels, versions, after, len(body))


def joined(parts: list[bytes], what: str, bytes_max: int) -> bytes:
    body = b"".join(parts)
    if len(body) > bytes_max:
        raise InvalidInput(f"{what} is too large. bytes=`{len(body)}` max=`{bytes_max}`")
    return body


def metadata_of(config: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata with the scalars of the config, as LangGraph's savers do."""
    found = dict(metadata)
    for others in (config.get("metadata") or {}, config.get("configurable") or {}):
        for key in others:
            known = key in found or key in EXCLUDED_METADATA_KEYS or key.startswith("__")
            if not known and isinstance(value := others[key], str | int | float):
                found[key] = value
    return found


def _encoded_metadata(
    codec_: ValueCodec, meta: dict[str, Any], checkpoint: Mapping[str, Any], bytes_max: int
) -> bytes:
    encoder = ValueEncoder(codec_.rules, codec_.cache, ["metadata"], bytes_max=bytes_max)
    parts = [b'{"langgraph":', encoder.value(meta)]
    # Only of delta channels: a prune keeps the ancestors of a checkpoint that lacks some.
    deltas = delta_channels(meta) & checkpoint.get("channel_versions", {}).keys()
    if absent := deltas - checkpoint[_VALUES].keys():
        parts += (b',"langgraph_absent":', orjson.dumps(sorted(absent)))
    parts.append(b"}")
    return joined(parts, "the metadata", bytes_max)


def delta_channels(meta: Mapping[str, Any]) -> set[str]:
    counters = meta.get(_COUNTERS)
    return set(counters) if isinstance(counters, Mapping) else set()


def label_of(value: Any) -> str:
    """Return a value as a label; the hash of one that is too long or not valid text."""
    text = str(value)
    try:
        return limits.check_text("label", text, chars_max=limits.LABEL_CHARS_MAX)
    except InvalidInput:
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _made_at(ts: Any) -> int | None:
    try:
        moment = datetime.fromisoformat(ts)
        return times.to_us("ts", moment) if moment.tzinfo is not None else None
    except (TypeError, ValueError, InvalidInput):
        return None


# Reading


def tuple_of(
    codec_: ValueCodec, info: SnapshotInfo, checkpoint: dict[str, Any], notes: Iterable[Note]
) -> CheckpointTuple:
    return CheckpointTuple(
        config=config_of(info.scope, info.id),
        checkpoint=cast("Checkpoint", checkpoint),
        metadata=cast("CheckpointMetadata", read_metadata(codec_, info)),
        parent_config=None if info.parent_id is None else config_of(info.scope, info.parent_id),
        pending_writes=writes_of(codec_, notes),
    )


def checkpoint_of(codec_: ValueCodec, info: SnapshotInfo, body: bytes) -> dict[str, Any]:
    """Return the checkpoint of a snapshot, also of one that another application saved."""
    tree = tree_of(info, body)
    tree.pop(DELTA_HISTORY, None)
    values = tree.pop(_VALUES)
    if FACADE not in info.metadata:
        return _made(info, values, tree)  # JSON of another application has no tags
    for name, each in values.items():
        values[name] = codec_.decoder.value(each)
    return _made(info, values, codec_.decoder.read(tree))


def split_checkpoint(codec_: ValueCodec, info: SnapshotInfo, body: bytes) -> SplitCheckpoint | None:
    """Return a stored checkpoint split up; None if it has no messages or is not ours."""
    if FACADE not in info.metadata or body.startswith(b" "):  # it has integers beyond 64 bits
        return None
    tree = tree_of(info, body)
    if DELTA_HISTORY in tree:
        return None
    values = tree.pop(_VALUES)
    runs = {name: _run(codec_, each) for name, each in values.items() if type(each) is list}
    if not any(runs.values()):
        return None
    channels = {name: runs.get(name) or orjson.dumps(each) for name, each in values.items()}
    versions = tree.get("channel_versions")
    known = versions if isinstance(versions, dict) else {}
    return SplitCheckpoint(info.id, channels, known, orjson.dumps(tree), len(body))


def _run(codec_: ValueCodec, trees: list[Any]) -> MessageRun | None:
    templates: list[Template] = []
    for tree in trees:
        template = _template(codec_, tree) if type(tree) is dict else None
        if template is None:
            return None
        templates.append(template)
    for template in templates:
        codec_.cache.keep(template)
    return MessageRun(templates) if templates else None


def _template(codec_: ValueCodec, tree: dict[str, Any]) -> Template | None:
    # A tag is the first key; elsewhere it is a key of the application.
    tag = next(iter(tree), None)
    if codec_.rules.sealed and tag == SEALED:
        message = codec_.decoder.value(tree)
        if type(message) in MESSAGE_NAMES:
            return template_of(message, orjson.dumps(tree))
    return read_template(tree) if tag == MESSAGE and not codec_.rules.sealed else None


def _made(info: SnapshotInfo, values: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    return {
        "v": rest.pop("v", 4),
        "id": info.id,
        "ts": rest.pop("ts", None) or info.created_at.isoformat(),
        _VALUES: values,
        **rest,
    }


def rebuild_checkpoint(
    codec_: ValueCodec, info: SnapshotInfo, split: SplitCheckpoint
) -> dict[str, Any]:
    """Return a checkpoint that shares nothing mutable with any other."""
    values: dict[str, Any] = {}
    for name, channel in split.channels.items():
        if isinstance(channel, MessageRun):
            values[name] = channel.make()
        else:
            values[name] = codec_.decoder.value(codec.decode(channel))
    return _made(info, values, codec_.decoder.read(codec.decode(split.rest)))


def tree_of(info: SnapshotInfo, body: bytes) -> dict[str, Any]:
    """Return the state of a snapshot as JSON, in the layout of a checkpoint."""
    tree = codec.decode(body)
    if FACADE in info.metadata:
        if _is_checkpoint(tree):
            return tree
        raise foreign(info, "the state is not that of a checkpoint")
    # Saved by another application: its keys are the channels.
    values = tree if isinstance(tree, dict) else {"__root__": tree}
    return {
        _VALUES: values,
        "channel_versions": dict.fromkeys(values, _FIRST_VERSION),
        "versions_seen": {},
        "updated_channels": None,
    }


def read_metadata(codec_: ValueCodec, info: SnapshotInfo) -> dict[str, Any]:
    tree = info.metadata.get(FACADE)
    meta = {} if tree is None else codec_.decoder.value(tree)
    if not isinstance(meta, dict):
        raise foreign(info, "the metadata is not that of a checkpoint")
    return meta


def foreign(info: SnapshotInfo, fact: str) -> Corrupt:
    return Corrupt(f"{fact}. id=`{info.id}`", scope=info.scope, id=info.id)


def _is_checkpoint(tree: Any) -> TypeGuard[dict[str, Any]]:
    if not isinstance(tree, dict) or not isinstance(tree.get(_VALUES), dict):
        return False
    # The rest is decoded as one object: its first key must not be a tag.
    first = next((key for key in tree if key not in (_VALUES, DELTA_HISTORY)), "")
    return not first.startswith("$")


# Pending writes


def writes_of(codec_: ValueCodec, notes: Iterable[Note]) -> list[Write]:
    """Return the writes of notes in the order in which LangGraph applies them."""
    read = codec_.decoder.value
    return [(task_id, channel, read(tree)) for task_id, channel, tree in trees_of(notes)]


def trees_of(notes: Iterable[Note]) -> list[Write]:
    """Return the writes of notes as JSON, in the same order."""
    found: list[tuple[tuple[str, str, int], Write]] = []
    for note in notes:
        match note.value:
            case {"task_path": str(path), "writes": list(writes)}:
                for item in writes:
                    if not is_write(item):
                        where = f"task_id=`{note.name}` id=`{note.snapshot_id}`"
                        raise Corrupt(f"what a task wrote is malformed. {where}")
                    idx, channel, tree = item
                    found.append(((path, note.name, idx), (note.name, channel, tree)))
    return [write for _, write in sorted(found, key=lambda each: each[0])]


def is_write(item: Any) -> bool:
    match item:
        case [int(), str(), _]:
            return True
    return False
