"""Read and write one checkpoint: `get_tuple`, `put` and `put_writes`, for both APIs."""

from __future__ import annotations  # those of inner functions are not evaluated on each call

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import orjson
from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple
from langgraph.checkpoint.serde.types import INTERRUPT

from limpet.api.opened import Tools
from limpet.api.verbs import Steps, Work, contend, each, notes_of
from limpet.backends.support.recent import Recent
from limpet.compat.langgraph import records
from limpet.compat.langgraph.concurrent import RunGuard, superseded
from limpet.compat.langgraph.encode import ValueEncoder
from limpet.compat.langgraph.records import Config, SplitCheckpoint, ValueCodec, is_write
from limpet.compat.langgraph.tags import encoded_name
from limpet.core import codec, limits
from limpet.errors import Conflict, Corrupt, InvalidInput
from limpet.model import Note, ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Commit, Found, NoteWrite

P = ParamSpec("P")
T = TypeVar("T")

_HEADS_MAX = 4096
_SPLIT_BYTES_MAX = 32 * 1024 * 1024  # of JSON; the fields of the messages come on top


class KnownHead(NamedTuple):
    """The head of a scope when it was last read; None twice if it has none."""

    id: str | None
    revision: str | None


class Unsplit(NamedTuple):
    """A checkpoint that was read, to be split up when it is needed: that takes longer than to read.

    Then None if it cannot be.
    """

    size: int
    split: Callable[[], SplitCheckpoint | None]


class SplitCache:
    """The last checkpoints that were saved or read, each with its revision. Bounded by size."""

    def __init__(self, bytes_max: int = _SPLIT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._recent: Recent[ScopeKey, tuple[str, SplitCheckpoint | Unsplit]] = Recent(
            bytes_max, lambda each: max(each[1].size, bytes_max // 256)
        )

    def last(self, scope: ScopeKey) -> SplitCheckpoint | None:
        """Return the last known checkpoint of a scope, which may be out of date."""
        return self._found(scope)[1]

    def at(self, scope: ScopeKey, revision: str) -> SplitCheckpoint | None:
        found, split = self._found(scope)
        return split if found == revision else None

    def _found(self, scope: ScopeKey) -> tuple[str | None, SplitCheckpoint | None]:
        revision, found = self._recent.get(scope) or (None, None)
        if not isinstance(found, Unsplit):
            return revision, found
        split = found.split()
        self.keep(scope, revision or "", split)
        return revision, split

    def keep(self, scope: ScopeKey, revision: str, found: SplitCheckpoint | Unsplit | None) -> None:
        if found is None or found.size > self._bytes_max // 2:
            self._recent.pop(scope)
        else:
            self._recent.put(scope, (revision, found))


class SaverContext:
    """What the functions behind a saver need: encoding, clock and randomness, and its caches.

    A cached head may be out of date: the commit then fails, and is tried again with a new one.
    """

    def __init__(self, codec_: ValueCodec, tools: Tools, guard: RunGuard) -> None:
        self.codec = codec_
        self.tools = tools
        self.guard = guard
        self.heads: Recent[ScopeKey, KnownHead] = Recent(_HEADS_MAX)
        self.splits = SplitCache()

    def remember_head(self, scope: ScopeKey, info: SnapshotInfo | None) -> KnownHead:
        head = KnownHead(None, None) if info is None else KnownHead(info.id, info.revision)
        self.heads.put(scope, head)
        return head


def bound(
    function: Callable[Concatenate[Backend, P], T], *args: P.args, **kwargs: P.kwargs
) -> Work[T]:
    """Return `function(backend, …)` as work. Unlike a lambda, it is safe to use in a loop."""
    return lambda backend: function(backend, *args, **kwargs)


# Reading


def get_tuple(context: SaverContext, config: Config) -> Steps[CheckpointTuple | None]:
    scope, wanted = records.scope_in(config), records.id_in(config)
    lease = yield from context.guard.wait(config, scope)

    def work(backend: Backend) -> CheckpointTuple | None:
        found = _cached_latest(context, backend, scope) if wanted is None else None
        if found is None:
            read = backend.read_snapshots(scope, [wanted])
            if wanted is None:
                context.remember_head(scope, read[0][0] if read else None)
            if not read:
                return None
            found = _decoded(context, read[0], latest=wanted is None)
        info, checkpoint = found
        notes = notes_on(backend, scope, [info.id])
        return records.tuple_of(context.codec, info, checkpoint, notes)

    found: CheckpointTuple | None = yield work
    context.guard.loaded(config, scope, wanted, found and found.checkpoint["id"])
    return context.guard.hold(config, found, lease)


def _cached_latest(
    context: SaverContext, backend: Backend, scope: ScopeKey
) -> tuple[SnapshotInfo, dict[str, Any]] | None:
    """Return the latest checkpoint if it is in the cache: its state need not be read."""
    if context.splits.last(scope) is None:
        return None
    info = backend.read_info(scope, None)
    split = None if info is None else context.splits.at(scope, info.revision)
    if info is None or split is None:
        return None
    context.remember_head(scope, info)
    return info, records.rebuild_checkpoint(context.codec, info, split)


def _decoded(
    context: SaverContext, found: Found, *, latest: bool
) -> tuple[SnapshotInfo, dict[str, Any]]:
    info, body = found
    if latest:
        split = partial(records.split_checkpoint, context.codec, info, body)
        context.splits.keep(info.scope, info.revision, Unsplit(len(body), split))
    return info, records.checkpoint_of(context.codec, info, body)


def notes_on(backend: Backend, scope: ScopeKey, ids: Sequence[str | None]) -> list[Note]:
    """Return all notes on some checkpoints; None means those on the scope itself."""
    return [*each(backend, notes_of(scope, ids))] if ids else []


# Saving


def put(
    context: SaverContext, config: Config, checkpoint: Any, metadata: Any
) -> Steps[SnapshotInfo]:
    commit, split = records.commit_of(
        context.codec,
        config,
        checkpoint,
        metadata,
        stamp=context.tools.draw(),
        bytes_max=context.tools.state_bytes_max,
        before=context.splits.last(records.scope_in(config)),
    )
    source = metadata.get("source")
    continues = context.guard.continues(config, commit.scope, records.id_in(config), source)
    if continues:
        yield from context.guard.check_holder(config, commit.scope)
    return (yield from save(context, commit, split, continues=continues))


def save(
    context: SaverContext,
    draft: Commit,
    split: SplitCheckpoint | None,
    *,
    continues: bool = False,
) -> Steps[SnapshotInfo]:
    """Save or replace a checkpoint. It becomes the head unless the head has a greater id.

    Raises:
        Conflict: it `continues` a run, and its parent is no longer the head.
    """
    scope = draft.scope
    seen: list[str | None] = []

    def fits(head: KnownHead) -> bool:
        return not continues or head.id in (draft.parent, draft.id)

    def attempt() -> Steps[SnapshotInfo | None]:
        head = context.heads.get(scope)
        if head is None or not fits(head):
            info = yield lambda backend: backend.read_info(scope, None)
            head = context.remember_head(scope, info)
            if not fits(head):
                return None
        stamp = context.tools.draw() if seen else draft.stamp
        seen[:] = [head.revision]
        becomes_head = continues or head.id is None or (draft.id or "") >= head.id
        commit = draft._replace(
            stamp=stamp, head=becomes_head, overwrite=True, expect=head.revision
        )
        stored: SnapshotInfo = yield lambda backend: backend.commit(commit)
        if becomes_head:
            context.remember_head(scope, stored)
            context.splits.keep(scope, stored.revision, split)
        return stored

    def changed(backend: Backend) -> bool:
        now = context.remember_head(scope, backend.read_info(scope, None))
        return [now.revision] != seen

    saved = yield from contend(context.tools, attempt, changed)
    if saved is None:
        latest = context.heads.get(scope)
        raise superseded(scope, draft.parent, None if latest is None else latest.id)
    return saved


def put_writes(
    context: SaverContext,
    config: Config,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
) -> Steps[None]:
    """Save what a task wrote as a note on its checkpoint, which need not exist yet.

    Earlier writes at the same index stay, unless all channels are special: errors, interrupts and
    resume values are replaced.
    """
    scope, on = records.scope_in(config), records.id_in(config)
    if on is None:
        raise InvalidInput("writes belong to a checkpoint: the config needs a checkpoint_id")
    name = limits.check_id("task_id", task_id)
    path = limits.check_text("task_path", task_path, chars_max=context.tools.state_bytes_max)
    replace = bool(writes) and all(channel in WRITES_IDX_MAP for channel, _ in writes)
    items, wide = _encoded_items(context.codec, writes, context.tools.state_bytes_max)

    def write(value: list[bytes], wide: bool, expect: str | None) -> Work[None]:
        body = records.joined(value, wide, "what a task wrote", context.tools.state_bytes_max)
        draft = NoteWrite(scope, name, on, body, context.tools.draw(), expect)
        return lambda backend: backend.write_notes([draft])

    def read(backend: Backend) -> Note | None:
        found = backend.list_notes(scope, on=[on], name=name, after="", limit=1)
        return found[0] if found else None

    seen: list[str | None] = [None]

    def attempt() -> Steps[None]:
        if not items:
            return
        if seen == [None]:  # nearly always these are the first writes of the task
            yield write(_encoded_note(path, items), wide, None)
            return
        before = yield read
        if before is None:
            seen[:] = [None]
            yield write(_encoded_note(path, items), wide, None)
            return
        seen[:] = [before.revision]
        merged = _merged(before.value, items, wide, replace=replace)
        if merged is not None:
            yield write([codec.encode(merged, what="writes")], wide=False, expect=before.revision)

    def changed(backend: Backend) -> bool:
        now = read(backend)
        revision = None if now is None else now.revision
        if [revision] == seen:
            return False
        seen[:] = [revision or ""]
        return True

    yield from contend(context.tools, attempt, changed)
    if any(channel == INTERRUPT for channel, _ in writes):
        yield from context.guard.interrupted(config, scope)


def _encoded_items(
    codec_: ValueCodec, writes: Sequence[tuple[str, Any]], bytes_max: int
) -> tuple[dict[int, bytes], bool]:
    """Return each write as JSON by its index, and whether integers beyond 64 bits are in them."""
    items: dict[int, bytes] = {}
    wide = False
    for position, (channel, value) in enumerate(writes):
        idx = WRITES_IDX_MAP.get(channel, position)
        path = ["writes", channel]
        encoder = ValueEncoder(codec_.rules, codec_.cache, path, bytes_max=bytes_max)
        parts = [b"[%d," % idx, encoded_name(channel), b","]
        encoder.write(value, parts)
        parts.append(b"]")
        items[idx] = b"".join(parts)
        wide = wide or encoder.wide
    return items, wide


def _encoded_note(path: str, items: dict[int, bytes]) -> list[bytes]:
    writes = b",".join(items.values())
    return [b'{"task_path":', orjson.dumps(path), b',"writes":[', writes, b"]}"]


def _merged(before: Any, items: dict[int, bytes], wide: bool, *, replace: bool) -> Any:
    """Return the note of a task with more writes; None if that changes nothing."""
    prefix = b" " if wide else b""
    new = {idx: codec.decode(prefix + item) for idx, item in items.items()}
    match before:
        case {"task_path": str(), "writes": list(writes)}:
            if not all(map(is_write, writes)):
                raise Corrupt("the stored writes of a task are malformed: run `limpet check`")
            old = {item[0]: item for item in writes}
        case _:
            raise Conflict("the note of a task is not a note of writes")
    merged = {**old, **new} if replace else {**new, **old}
    if codec.encode([*merged.values()]) == codec.encode([*old.values()]):  # 1 is not True
        return None
    return {**before, "writes": [merged[idx] for idx in sorted(merged)]}
