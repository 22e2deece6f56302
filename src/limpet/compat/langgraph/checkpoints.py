"""The verbs about one checkpoint, written once for both faces."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple

from limpet.api.opened import Tools
from limpet.api.verbs import Steps, Work, contend
from limpet.compat.langgraph import records
from limpet.compat.langgraph.encode import Writer
from limpet.compat.langgraph.forms import written_name
from limpet.compat.langgraph.records import Codec, Config, Draft, Warm, is_write
from limpet.core import codec, limits
from limpet.errors import Conflict, Corrupt, InvalidInput
from limpet.model import Expect, Note, ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Commit, Found, NoteWrite

# What each scope showed when it was last looked at, so that a save need not look again.
#
# And what a saver itself saved there last, taken apart: a thread goes on from where it was left.

_SCOPES_MAX = 4096
_STATES_MAX = 256
_BYTES_MAX = 32 * 1024 * 1024  # as JSON; beside it stand the fields of the messages


class Head(NamedTuple):
    """What a scope shows: its id and revision, or two times None if there is nothing."""

    id: str | None
    revision: str | None


class Heads:
    """A bounded memory. It may be behind, which the next save notices.

    Without a lock, as what it is: a process that is forked off may find one held for good.
    """

    def __init__(self) -> None:
        self._heads: dict[ScopeKey, Head] = {}

    def of(self, scope: ScopeKey) -> Head | None:
        """Return what is known of a scope."""
        return self._heads.get(scope)

    def saw(self, scope: ScopeKey, info: SnapshotInfo | None) -> Head:
        """Remember what a scope shows."""
        head = Head(None, None) if info is None else Head(info.id, info.revision)
        self._heads.pop(scope, None)
        self._heads[scope] = head
        if len(self._heads) > _SCOPES_MAX:
            self._heads.pop(list(self._heads)[0], None)  # noqa: RUF015  # others may change it
        return head

    def forget(self, scope: ScopeKey) -> None:
        """Know nothing of a scope any more."""
        self._heads.pop(scope, None)


class WarmStates:
    """The last checkpoints of some scopes, by the revision that they got. Bounded, as `Heads`."""

    def __init__(self, bytes_max: int = _BYTES_MAX) -> None:
        self._states: dict[ScopeKey, tuple[str, Warm]] = {}
        self._bytes_max = bytes_max

    def last(self, scope: ScopeKey) -> Warm | None:
        """Return the last checkpoint of a scope that was seen, whether or not it is the last."""
        found = self._states.get(scope)
        return None if found is None else found[1]

    def at(self, scope: ScopeKey, revision: str) -> Warm | None:
        """Return the checkpoint of a scope, if it is still that of this revision."""
        found = self._states.get(scope)
        return found[1] if found is not None and found[0] == revision else None

    def keep(self, scope: ScopeKey, revision: str, warm: Warm | None) -> None:
        """Remember what a scope shows; those that were not used for longest are forgotten."""
        self._states.pop(scope, None)
        if warm is None or warm.size > self._bytes_max // 2:
            return
        self._states[scope] = (revision, warm)
        left = self._bytes_max
        for place, (each, (_, state)) in enumerate(reversed(list(self._states.items()))):
            left -= state.size
            if left < 0 or place >= _STATES_MAX:
                self._states.pop(each, None)


class Desk(NamedTuple):
    """What every verb needs: how values are written, time and chance, and what heads were seen."""

    codec: Codec
    tools: Tools
    heads: Heads
    warm: WarmStates


# Reading


def get(desk: Desk, config: Config) -> Work[CheckpointTuple | None]:
    """Read the checkpoint that a config names, or the latest of its thread and namespace."""
    scope, wanted = records.scope_in(config), records.id_in(config)

    def work(backend: Backend) -> CheckpointTuple | None:
        found = _as_saved(desk, backend, scope) if wanted is None else None
        if found is None:
            read = backend.read_snapshots(scope, [wanted])
            if wanted is None:
                desk.heads.saw(scope, read[0][0] if read else None)
            if not read:
                return None
            found = _as_read(desk, read[0], latest=wanted is None)
        info, checkpoint = found
        notes = notes_on(backend, scope, [info.id])
        return records.tuple_of(desk.codec, info, checkpoint, notes)

    return work


def _as_saved(
    desk: Desk, backend: Backend, scope: ScopeKey
) -> tuple[SnapshotInfo, dict[str, Any]] | None:
    """Return the latest checkpoint if it is what this saver saw last, without reading it."""
    if desk.warm.last(scope) is None:
        return None
    info = backend.read_info(scope, None)
    warm = None if info is None else desk.warm.at(scope, info.revision)
    if info is None or warm is None:
        return None
    desk.heads.saw(scope, info)
    return info, records.made_again(desk.codec, info, warm)


def _as_read(desk: Desk, found: Found, *, latest: bool) -> tuple[SnapshotInfo, dict[str, Any]]:
    """Return a checkpoint that was read; the latest is remembered, since it is what goes on."""
    info, body = found
    warm = records.taken_apart(desk.codec, info, body) if latest else None
    if warm is None:
        return info, records.checkpoint_of(desk.codec, info, body)
    desk.warm.keep(info.scope, info.revision, warm)
    return info, records.made_again(desk.codec, info, warm)


def notes_on(backend: Backend, scope: ScopeKey, ids: Sequence[str | None]) -> list[Note]:
    """Return all notes on some checkpoints; None stands for those of the scope itself."""
    places: list[str | None] = list(ids)
    found: list[Note] = []
    after = ""
    while places:
        page = backend.list_notes(
            scope, on=places, name=None, after=after, limit=limits.PAGE_ITEMS_MAX
        )
        found += page
        if len(page) < limits.PAGE_ITEMS_MAX:
            break
        after = page[-1].name
        places = places[places.index(page[-1].snapshot_id) :]
    return found


# Saving


def put(desk: Desk, config: Config, checkpoint: Any, metadata: Any) -> Steps[SnapshotInfo]:
    """Save a checkpoint, or replace it; it becomes the head if none with a greater id is there."""
    draft = records.draft_of(
        desk.codec,
        config,
        checkpoint,
        metadata,
        bytes_max=desk.tools.state_bytes_max,
        before=desk.warm.last(records.scope_in(config)),
    )
    return save(desk, draft)


def save(desk: Desk, draft: Draft) -> Steps[SnapshotInfo]:
    """Store a checkpoint that is encoded."""
    heads, scope = desk.heads, draft.scope
    seen: list[str | None] = []

    def attempt() -> Steps[SnapshotInfo]:
        head = heads.of(scope)
        if head is None:
            info = yield lambda backend: backend.read_info(scope, None)
            head = heads.saw(scope, info)
        seen[:] = [head.revision]
        ahead = head.id is None or draft.id >= head.id
        commit = commit_of(desk, draft, head=ahead, expect=head.revision)
        stored: SnapshotInfo = yield lambda backend: backend.commit(commit)
        if ahead:
            heads.saw(scope, stored)
            desk.warm.keep(scope, stored.revision, draft.warm)
        return stored

    def changed(backend: Backend) -> bool:
        now = heads.saw(scope, backend.read_info(scope, None))
        return [now.revision] != seen

    return contend(desk.tools, attempt, changed)


def commit_of(desk: Desk, draft: Draft, *, head: bool, expect: Expect) -> Commit:
    """Return the commit of a checkpoint, which may be there already."""
    return Commit(
        scope=draft.scope,
        body=draft.body,
        status="completed",
        labels=draft.labels,
        metadata=draft.metadata,
        stamp=desk.tools.draw(),
        id=draft.id,
        parent=draft.parent_id,
        head=head,
        overwrite=True,
        expect=expect,
        created_at=draft.created_at,
    )


def put_writes(
    desk: Desk, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
) -> Steps[None]:
    """Save what a task wrote, beside a checkpoint that need not be there yet.

    What the task wrote at the same place before stays, unless all of it is special: errors,
    interrupts and what they are resumed with are replaced.
    """
    scope, on = records.scope_in(config), records.id_in(config)
    if on is None:
        raise InvalidInput("writes need the checkpoint that they wait on: a checkpoint_id")
    name = limits.check_id("task_id", task_id)
    path = limits.check_text("task_path", task_path, chars_max=desk.tools.state_bytes_max)
    replace = bool(writes) and all(channel in WRITES_IDX_MAP for channel, _ in writes)
    items, wide = _items(desk.codec, writes)

    def write(value: list[bytes], wide: bool, expect: str | None) -> Work[Note]:
        body = records.joined(value, wide, "what a task wrote", desk.tools.state_bytes_max)
        draft = NoteWrite(scope, name, on, body, desk.tools.draw(), expect)
        return lambda backend: backend.write_note(draft)

    def read(backend: Backend) -> Note | None:
        found = backend.list_notes(scope, on=[on], name=name, after="", limit=1)
        return found[0] if found else None

    seen: list[str | None] = [None]

    def attempt() -> Steps[None]:
        if not items:
            return
        if seen == [None]:  # nearly always this is the first that the task wrote
            yield write(_encoded(path, items), wide, None)
            return
        before = yield read
        if before is None:
            seen[:] = [None]
            yield write(_encoded(path, items), wide, None)
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

    return contend(desk.tools, attempt, changed)


def _items(codec_: Codec, writes: Sequence[tuple[str, Any]]) -> tuple[dict[int, bytes], bool]:
    """Return each write under its place, encoded; later ones of one place count."""
    items: dict[int, bytes] = {}
    wide = False
    for place, (channel, value) in enumerate(writes):
        idx = WRITES_IDX_MAP.get(channel, place)
        writer = Writer(codec_.shape, codec_.cache, ["writes", channel])
        parts = [b"[%d," % idx, written_name(channel), b","]
        writer.write(value, parts)
        parts.append(b"]")
        items[idx] = b"".join(parts)
        wide = wide or writer.wide
    return items, wide


def _encoded(path: str, items: dict[int, bytes]) -> list[bytes]:
    writes = b",".join(items.values())
    return [b'{"task_path":', orjson.dumps(path), b',"writes":[', writes, b"]}"]


def _merged(before: Any, items: dict[int, bytes], wide: bool, *, replace: bool) -> Any:
    """Return what a task wrote, with more of it; None if that changes nothing."""
    mark = b" " if wide else b""
    new = {idx: codec.decode(mark + item) for idx, item in items.items()}
    match before:
        case {"task_path": str(), "writes": list(writes)}:
            if not all(map(is_write, writes)):
                raise Corrupt("what a task wrote before makes no sense")
            old = {item[0]: item for item in writes}
        case _:
            raise Conflict("the note of a task holds something else")
    merged = {**old, **new} if replace else {**new, **old}
    if codec.encode([*merged.values()]) == codec.encode([*old.values()]):  # 1 is not True
        return None
    return {**before, "writes": [merged[idx] for idx in sorted(merged)]}
