"""Read and write one checkpoint: `get_tuple`, `put` and `put_writes`, for both APIs.

The functions have the signatures of the saver's methods, so that the async ones are derived.
"""

from __future__ import annotations  # those of inner functions are not evaluated on each call

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import orjson
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.types import INTERRUPT

from limpet import Store
from limpet.api.integrations import (
    Backend,
    Commit,
    NoteWrite,
    Recent,
    Steps,
    codec,
    contend,
    limits,
    verbs,
)
from limpet.compat.langgraph import records, upstream
from limpet.compat.langgraph.concurrent import RunGuard, superseded
from limpet.compat.langgraph.encode import ValueEncoder
from limpet.compat.langgraph.records import SplitCheckpoint, ValueCodec, is_write
from limpet.compat.langgraph.tags import encoded_name
from limpet.errors import Conflict, Corrupt, InvalidInput
from limpet.model import Note, ScopeKey, SnapshotInfo

_KNOWN_BYTES_MAX = 32 * 1024 * 1024  # of JSON; the fields of the messages come on top
_KNOWN_BYTES_MIN = 16 * 1024


class KnownHead(NamedTuple):
    """The head of a scope when it was last read or saved; None twice if it has none.

    `split` is the checkpoint split up, or a function that does it when it is needed, since that
    takes longer than to read it. `size` is that of its JSON.
    """

    id: str | None
    revision: str | None
    size: int = 0
    split: SplitCheckpoint | Callable[[], SplitCheckpoint | None] | None = None

    def cost(self) -> int:
        return max(self.size, _KNOWN_BYTES_MIN)


class SaverContext:
    """What the functions behind a saver need: encoding, clock and randomness, and its cache.

    A known head may be out of date: the commit then fails, and is tried again with a new one.
    """

    def __init__(self, codec_: ValueCodec, store: Store, guard: RunGuard) -> None:
        self.codec = codec_
        self.store = store
        self.tools = store.driver.tools
        self.guard = guard
        self.delta_channels = set[str]()  # those that were saved
        self.heads: Recent[ScopeKey, KnownHead] = Recent(_KNOWN_BYTES_MAX, KnownHead.cost)

    @property
    def backend(self) -> Backend:
        return self.store.driver.opened.backend  # opens the store: not when a saver is made

    def remember(self, scope: ScopeKey, info: SnapshotInfo | None) -> KnownHead:
        """Keep the head of a scope that was read; it stays split up if it is still the same."""
        known = self.heads.get(scope)
        if known is None or known.revision != (info and info.revision):
            known = KnownHead(None, None) if info is None else KnownHead(info.id, info.revision)
            self.heads.put(scope, known)
        return known

    def last_split(self, scope: ScopeKey) -> tuple[str | None, SplitCheckpoint | None]:
        """Return the last known checkpoint of a scope with its revision: it may be out of date."""
        known = self.heads.get(scope)
        if known is None:
            return None, None
        if callable(known.split):
            known = known._replace(split=known.split())
            self.heads.put(scope, known)
        return known.revision, known.split if isinstance(known.split, SplitCheckpoint) else None


def get_tuple(context: SaverContext, config: RunnableConfig) -> Steps[CheckpointTuple | None]:
    scope, wanted = records.scope_in(config), records.id_in(config)
    lease = yield from context.guard.wait(config, scope)
    found: CheckpointTuple | None = yield partial(_read, context, scope, wanted)
    context.guard.loaded(config, scope, wanted, found and found.checkpoint["id"])
    return context.guard.hold(config, found, lease)


def _read(
    context: SaverContext, scope: ScopeKey, wanted: str | None, backend: Backend
) -> CheckpointTuple | None:
    revision, split = context.last_split(scope) if wanted is None else (None, None)
    # If the last one is still the latest, its state need not be read.
    info = None if split is None else backend.read_info(scope, None)
    if split is not None and info is not None and info.revision == revision:
        checkpoint = records.rebuild_checkpoint(context.codec, info, split)
    else:
        found = backend.read_snapshots(scope, [wanted])
        if not found:
            if wanted is None:
                context.remember(scope, None)
            return None
        ((info, body),) = found
        if wanted is None:
            later = partial(records.split_checkpoint, context.codec, info, body)
            context.heads.put(scope, KnownHead(info.id, info.revision, len(body), later))
        checkpoint = records.checkpoint_of(context.codec, info, body)
    notes = notes_on(backend, scope, [info.id])
    return records.tuple_of(context.codec, info, checkpoint, notes)


def notes_on(backend: Backend, scope: ScopeKey, ids: Sequence[str | None]) -> list[Note]:
    """Return all notes on some checkpoints; None means those on the scope itself."""
    return [*verbs.each(backend, verbs.notes_of(scope, ids))] if ids else []


def put(
    context: SaverContext,
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: ChannelVersions,
) -> Steps[RunnableConfig]:
    scope, parent_id = records.scope_in(config), records.id_in(config)
    commit, split = records.commit_of(
        context.codec,
        scope,
        parent_id,
        checkpoint,
        records.metadata_of(config, metadata),
        stamp=context.tools.draw(),
        bytes_max=context.tools.state_bytes_max,
        before=context.last_split(scope)[1],
    )
    context.delta_channels |= records.delta_channels(metadata)
    continues = context.guard.continues(config, scope, parent_id, metadata.get("source"))
    if continues:
        yield from context.guard.check_holder(config, scope)
    saved = yield from save(context, commit, split, continues=continues)
    # The thread id as the caller gave it: it may be an int or a UUID.
    given = config["configurable"]
    named = {"thread_id": given["thread_id"], "checkpoint_ns": given.get("checkpoint_ns") or ""}
    return {"configurable": {**named, "checkpoint_id": saved.id}}


def save(
    context: SaverContext,
    draft: Commit,
    split: SplitCheckpoint | None = None,
    *,
    continues: bool = False,
) -> Steps[SnapshotInfo]:
    """Save or replace a checkpoint. It becomes the head unless the head has a greater id.

    Raises:
        Conflict: it `continues` a run, and its parent is no longer the head.
    """
    scope = draft.scope
    expected: str | None = None
    stamp = draft.stamp

    def fits(head: KnownHead) -> bool:
        return not continues or head.id in (draft.parent, draft.id)

    def attempt() -> Steps[SnapshotInfo]:
        nonlocal expected
        head = context.heads.get(scope)
        if head is None or not fits(head):
            head = context.remember(scope, (yield lambda backend: backend.read_info(scope, None)))
        expected = head.revision
        if not fits(head):
            raise superseded(scope, draft.parent, head.id)
        becomes_head = continues or head.id is None or (draft.id or "") >= head.id
        commit = draft._replace(stamp=stamp, head=becomes_head, overwrite=True, expect=expected)
        stored: SnapshotInfo = yield lambda backend: backend.commit(commit)
        if becomes_head:
            size = 0 if split is None else split.size
            context.heads.put(scope, KnownHead(stored.id, stored.revision, size, split))
        return stored

    def changed(backend: Backend) -> bool:
        nonlocal stamp
        stamp = context.tools.draw()
        return context.remember(scope, backend.read_info(scope, None)).revision != expected

    return contend(context.tools, attempt, changed)


def put_writes(
    context: SaverContext,
    config: RunnableConfig,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str = "",
    indexes: Sequence[int] = (),
) -> Steps[None]:
    """Save what a task wrote as a note on its checkpoint, which need not exist yet.

    Earlier writes at the same index stay, unless all channels are special: errors, interrupts and
    resume values are replaced. An import gives the `indexes`, which may have gaps.
    """
    bytes_max = context.tools.state_bytes_max
    scope, on = records.scope_in(config), records.id_in(config)
    if on is None:
        raise InvalidInput("writes belong to a checkpoint: the config needs a checkpoint_id")
    name = limits.check_id("task_id", task_id)
    path = limits.check_text("task_path", task_path, chars_max=bytes_max)
    replace = all(channel in WRITES_IDX_MAP for channel, _ in writes)
    items: dict[int, bytes] = {}
    for index, (channel, value) in zip(indexes or range(len(writes)), writes, strict=True):
        idx = WRITES_IDX_MAP.get(channel, index)
        where = ["writes", channel]
        encoder = ValueEncoder(context.codec.rules, context.codec.cache, where, bytes_max=bytes_max)
        items[idx] = b"[%d,%b,%b]" % (idx, encoded_name(channel), encoder.value(value))
    before: Note | None = None  # nearly always these are the first writes of the task
    # A run saves next, unless it ends here. But it waits for writes of delta channels before.
    is_awaited = replace or not context.delta_channels.isdisjoint(each for each, _ in writes)
    joins = not is_awaited and upstream.run_of(config) is not None

    def attempt() -> Steps[None]:
        expect = None if before is None else before.revision
        if before is None:
            head = (b'{"task_path":', orjson.dumps(path), b',"writes":[')
            parts = [*head, b",".join(items.values()), b"]}"]
        else:
            merged = _merged(before.value, items, replace=replace)
            if merged is None:
                return
            parts = [codec.encode(merged, what="writes")]
        body = records.joined(parts, "what a task wrote", bytes_max)
        write = NoteWrite(scope, name, on, body, context.tools.draw(), expect, joins=joins)
        yield lambda backend: backend.write_notes([write])

    def changed(backend: Backend) -> bool:
        nonlocal before
        seen = before and before.revision
        found = backend.list_notes(scope, on=[on], name=name, after="", limit=1)
        before = found[0] if found else None
        return seen != (before and before.revision)

    if items:
        yield from contend(context.tools, attempt, changed)
    if any(channel == INTERRUPT for channel, _ in writes):
        yield from context.guard.interrupted(config, scope)


def _merged(before: Any, items: dict[int, bytes], *, replace: bool) -> Any:
    """Return the note of a task with more writes; None if that changes nothing."""
    new = {idx: codec.decode(item) for idx, item in items.items()}
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
