"""Checkpoints as snapshots: where they stand, what is written of them, and what is read. Pure.

The state of a snapshot is the checkpoint without its id, which is that of the snapshot. Channels
come first: a list that grows is then the beginning that two states have in common.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import orjson
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS, CheckpointTuple

from limpet.compat.langgraph.allowed import Shape
from limpet.compat.langgraph.decode import Reader
from limpet.compat.langgraph.encode import Writer
from limpet.compat.langgraph.forms import MESSAGE, written_name
from limpet.compat.langgraph.messages import MessageCache, Run, read_template
from limpet.core import codec, limits, prepare, times
from limpet.errors import Corrupt, InvalidInput
from limpet.model import Note, ScopeKey, SnapshotInfo

# What stored JSON must look like to be a checkpoint, or what a task wrote. Pure.

_APART = frozenset(("channel_values", "delta_history"))  # read by themselves


def is_checkpoint(tree: Any) -> TypeGuard[dict[str, Any]]:
    """Tell whether a state has the channels of a checkpoint, and beside them what is an object."""
    if not isinstance(tree, dict) or not isinstance(tree.get("channel_values"), dict):
        return False
    first = next((key for key in tree if key not in _APART), "")
    return not first.startswith("$")  # it would stand for something else than an object


def is_write(item: Any) -> bool:
    """Tell whether something is one write in the note of a task."""
    match item:
        case [int(), str(), _]:
            return True
    return False


def write_in(note: Note, path: str, item: Any) -> tuple[tuple[str, str, int], tuple[str, str, Any]]:
    """Return one write in the note of a task: its order among others, then task, channel, value.

    Raises:
        Corrupt: it makes no sense.
    """
    if is_write(item):
        place, channel, tree = item
        return (path, note.name, place), (note.name, channel, tree)
    where = f"task_id=`{note.name}` id=`{note.snapshot_id}`"
    raise Corrupt(f"what a task wrote makes no sense. {where}")


KIND = "thread"
FACADE = "langgraph"
ABSENT = "langgraph_absent"  # channels of a delta graph that have no value in this checkpoint
CARRIED = "delta_history"  # in the state: what a checkpoint keeps of ancestors that are gone
CARRIES = "langgraph_carries"  # of which channels
RUN = "run_id"

_VALUES = "channel_values"
_COUNTERS = "counters_since_delta_snapshot"
_FIRST_VERSION = f"{1:032}.{0:016}"

Config: TypeAlias = RunnableConfig
Write: TypeAlias = tuple[str, str, Any]


class Codec(NamedTuple):
    """How values are written and read, and the messages that were written already."""

    shape: Shape
    cache: MessageCache
    reader: Reader


class Warm(NamedTuple):
    """A checkpoint taken apart: to make it again costs less than to read it.

    `channels` are runs of messages, or JSON; `rest` is JSON without the channels.
    """

    channels: dict[str, Run | bytes]
    rest: bytes
    size: int


class Draft(NamedTuple):
    """A checkpoint, encoded."""

    scope: ScopeKey
    id: str
    parent_id: str | None
    body: bytes
    labels: bytes
    metadata: bytes
    created_at: int | None
    warm: Warm | None = None


# Addresses


def scope_of(thread_id: object, namespace: object) -> ScopeKey:
    """Return where the checkpoints of a thread are, in one of its namespaces."""
    if not isinstance(namespace, str):
        kind = type(namespace).__name__
        raise InvalidInput(f"checkpoint_ns must be text. type=`{kind}`")
    return limits.check_scope(str(thread_id), f":{namespace}" if namespace else "main", KIND)


def scope_in(config: Config) -> ScopeKey:
    """Return where the checkpoints that a config speaks of are."""
    found = configurable(config)
    if found.get("thread_id") is None:
        raise InvalidInput("the config names no thread: it needs a thread_id")
    return scope_of(found["thread_id"], found.get("checkpoint_ns") or "")


def namespace_of(scope: ScopeKey) -> str | None:
    """Return the namespace of a scope; None if it is none of LangGraph's."""
    if scope.kind != KIND:
        return None
    if scope.scope_id == "main":
        return ""
    return scope.scope_id[1:] if scope.scope_id.startswith(":") else None


def configurable(config: Any) -> dict[str, Any]:
    """Return the part of a config that names things."""
    found = config.get("configurable") if isinstance(config, Mapping) else None
    if not isinstance(found, Mapping):
        raise InvalidInput("a config must have a `configurable`")
    return dict(found)


def id_in(config: Any) -> str | None:
    """Return the checkpoint that a config names."""
    found = configurable(config).get("checkpoint_id")
    return None if not found else limits.check_id("checkpoint_id", found)


def config_of(scope: ScopeKey, checkpoint_id: str) -> Config:
    """Return the config that names a checkpoint."""
    namespace = namespace_of(scope)
    return {
        "configurable": {
            "thread_id": scope.session_id,
            "checkpoint_ns": scope.scope_id if namespace is None else namespace,
            "checkpoint_id": checkpoint_id,
        }
    }


# Writing


def draft_of(
    codec_: Codec,
    config: Config,
    checkpoint: Mapping[str, Any],
    metadata: Any,
    *,
    bytes_max: int,
    before: Warm | None = None,
) -> Draft:
    """Return a checkpoint as it is stored; `before` is the last one there, to compare with.

    Raises:
        InvalidInput: something in it could not be read back as it is.
    """
    id = limits.check_id("checkpoint id", checkpoint["id"])
    parent_id = id_in(config)
    meta = metadata_of(config, metadata)
    body, warm = body_of(codec_, checkpoint, bytes_max, before)
    return Draft(
        scope=scope_in(config),
        id=id,
        parent_id=None if parent_id == id else parent_id,
        body=body,
        labels=prepare.encode_labels(_labels_of(meta)),
        metadata=_encoded_metadata(codec_, meta, checkpoint, bytes_max),
        created_at=_made_at(checkpoint.get("ts")),
        warm=warm,
    )


def body_of(
    codec_: Codec, checkpoint: Mapping[str, Any], bytes_max: int, before: Warm | None = None
) -> tuple[bytes, Warm | None]:
    """Return the state of a checkpoint, and what it can be made of again."""
    writer = Writer(codec_.shape, codec_.cache, [_VALUES])
    last: Mapping[str, Run | bytes] = {} if before is None else before.channels
    channels = {
        name: writer.channel(name, value, last.get(name))
        for name, value in checkpoint[_VALUES].items()
    }
    rest: list[bytes] = []
    for key, value in checkpoint.items():
        if key not in (_VALUES, "id", CARRIED):
            rest += (b",", written_name(key), b":")
            writer.write_open(value, rest)
    if len(rest) > 1 and rest[1].startswith(b'"$'):
        raise InvalidInput("a checkpoint must not begin with a key that begins with $")
    rest.append(b"}")
    after = b"".join(rest)
    parts: list[bytes] = [b'{"channel_values":']
    separator = b"{"
    for name, channel in channels.items():
        parts += (separator, written_name(name), b":", *_json(channel))
        separator = b","
    parts += (b"{}" if separator == b"{" else b"}", after)
    body = joined(parts, writer.wide, "the checkpoint", bytes_max)
    if writer.wide or codec_.shape.sealed:
        return body, None
    return body, Warm(channels, b"{" + after[1:] if len(after) > 1 else b"{}", len(body))


def _json(channel: Run | bytes) -> Iterable[bytes]:
    return (channel,) if isinstance(channel, bytes) else (b"[", *channel.parts, b"]")


def joined(parts: list[bytes], wide: bool, what: str, bytes_max: int) -> bytes:
    """Return the bytes of a value that is written in parts."""
    body = b"".join((b" ", *parts) if wide else parts)
    if len(body) > bytes_max:
        raise InvalidInput(f"{what} is too large. bytes=`{len(body)}` max=`{bytes_max}`")
    return body


def metadata_of(config: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a checkpoint: what is given, and what a config says besides."""
    found = dict(metadata)
    for others in (config.get("metadata"), config.get("configurable")):
        for key, value in (others or {}).items():
            known = key in found or key in EXCLUDED_METADATA_KEYS or key.startswith("__")
            if not known and isinstance(value, str | int | float):
                found[key] = value
    return found


def _encoded_metadata(
    codec_: Codec, meta: dict[str, Any], checkpoint: Mapping[str, Any], bytes_max: int
) -> bytes:
    writer = Writer(codec_.shape, codec_.cache, ["metadata"])
    parts = [b'{"langgraph":']
    writer.write(meta, parts)
    absent = _absent(meta, checkpoint)
    if absent:
        parts += (b',"langgraph_absent":', orjson.dumps(absent))
    parts.append(b"}")
    return joined(parts, writer.wide, "the metadata", bytes_max)


def _absent(meta: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> list[str]:
    """Return the channels without a value here, if the graph has some that keep deltas.

    Whoever looks for such a value then need not read this checkpoint.
    """
    if not meta.get(_COUNTERS):
        return []
    return sorted(checkpoint.get("channel_versions", {}).keys() - checkpoint[_VALUES].keys())


def delta_channels(meta: Mapping[str, Any]) -> set[str]:
    """Return the channels of which a checkpoint's metadata counts the deltas."""
    counters = meta.get(_COUNTERS)
    return set(counters) if isinstance(counters, Mapping) else set()


def _labels_of(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return what is found by an index: it costs too much for what nobody looks for."""
    run = meta.get(RUN)
    is_label = isinstance(run, str | int) and not isinstance(run, bool)
    return {RUN: label_of(run)} if is_label else {}


def label_of(value: Any) -> str:
    """Return a fact as a label; one that cannot be one stands under its hash."""
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
    codec_: Codec, info: SnapshotInfo, checkpoint: dict[str, Any], notes: Iterable[Note]
) -> CheckpointTuple:
    """Return a checkpoint with its metadata and the writes that wait on it."""
    return CheckpointTuple(
        config=config_of(info.scope, info.id),
        checkpoint=checkpoint,  # type: ignore[arg-type]
        metadata=read_metadata(codec_, info),  # type: ignore[arg-type]
        parent_config=None if info.parent_id is None else config_of(info.scope, info.parent_id),
        pending_writes=writes_of(codec_, notes),
    )


def checkpoint_of(codec_: Codec, info: SnapshotInfo, body: bytes) -> dict[str, Any]:
    """Return the checkpoint that a snapshot is, whoever saved it."""
    tree = tree_of(info, body)
    tree.pop(CARRIED, None)
    values = tree.pop(_VALUES)
    if FACADE not in info.metadata:
        return _made(info, values, tree)  # what is not ours stays as it is
    for name, each in values.items():
        values[name] = codec_.reader.value(each)
    return _made(info, values, codec_.reader.read(tree))


def taken_apart(codec_: Codec, info: SnapshotInfo, body: bytes) -> Warm | None:
    """Return a checkpoint that was read, taken apart, so that what is saved next costs less.

    None if it has no messages, or is one that somebody else saved.
    """
    if codec_.shape.sealed or FACADE not in info.metadata or body.startswith(b" "):
        return None
    tree = tree_of(info, body)
    if CARRIED in tree:
        return None
    values = tree.pop(_VALUES)
    runs = {name: _run(codec_, each) for name, each in values.items() if type(each) is list}
    if not any(runs.values()):
        return None
    channels = {name: runs.get(name) or orjson.dumps(each) for name, each in values.items()}
    return Warm(channels, orjson.dumps(tree), len(body))


def _run(codec_: Codec, trees: list[Any]) -> Run | None:
    """Return the messages of a channel as a run; None if it has others."""
    # A message says so first; elsewhere it is somebody's own key.
    said = (type(tree) is dict and next(iter(tree), None) == MESSAGE for tree in trees)
    if not trees or not all(said):
        return None
    templates = [read_template(tree) for tree in trees]
    if None in templates:
        return None
    for template in templates:
        codec_.cache.keep(template)  # type: ignore[arg-type]
    return Run(templates)  # type: ignore[arg-type]


def _made(info: SnapshotInfo, values: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    return {
        "v": rest.pop("v", 4),
        "id": info.id,
        "ts": rest.pop("ts", None) or info.created_at.isoformat(),
        _VALUES: values,
        **rest,
    }


def made_again(codec_: Codec, info: SnapshotInfo, warm: Warm) -> dict[str, Any]:
    """Return the checkpoint that was taken apart, with nothing in it that others have."""
    read = codec_.reader.read
    values: dict[str, Any] = {}
    for name, channel in warm.channels.items():
        if isinstance(channel, Run) and channel.plain:
            values[name] = channel.make()
        else:
            values[name] = read(codec.decode(b"".join(_json(channel))))
    return _made(info, values, read(codec.decode(warm.rest)))


def tree_of(info: SnapshotInfo, body: bytes) -> dict[str, Any]:
    """Return the state of a snapshot as JSON, in the form of a checkpoint."""
    tree = codec.decode(body)
    if FACADE in info.metadata:
        if is_checkpoint(tree):
            return tree
        raise Corrupt(f"the state is not that of a checkpoint. id=`{info.id}`")
    # Saved by somebody else: their state is what the channels hold.
    values = tree if isinstance(tree, dict) else {"__root__": tree}
    return {
        _VALUES: values,
        "channel_versions": dict.fromkeys(values, _FIRST_VERSION),
        "versions_seen": {},
        "updated_channels": None,
    }


def read_metadata(codec_: Codec, info: SnapshotInfo) -> dict[str, Any]:
    """Return the metadata of a checkpoint."""
    tree = info.metadata.get(FACADE)
    meta = {} if tree is None else codec_.reader.value(tree)
    if not isinstance(meta, dict):
        raise Corrupt(f"the metadata is not that of a checkpoint. id=`{info.id}`")
    return meta


# Writes that wait


def writes_of(codec_: Codec, notes: Iterable[Note]) -> list[Write]:
    """Return the writes that notes hold, in the order in which LangGraph applies them."""
    read = codec_.reader.value
    return [(task_id, channel, read(tree)) for task_id, channel, tree in trees_of(notes)]


def trees_of(notes: Iterable[Note]) -> list[Write]:
    """Return the writes that notes hold as JSON, in the same order."""
    found: list[tuple[tuple[str, str, int], Write]] = []
    for note in notes:
        match note.value:
            case {"task_path": str(path), "writes": list(writes)}:
                found += [write_in(note, path, each) for each in writes]
    return [write for _, write in sorted(found, key=lambda each: each[0])]
