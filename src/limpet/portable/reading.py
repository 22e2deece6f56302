"""Reading all that a store holds, in an order that does not depend on the engine."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from tempfile import SpooledTemporaryFile
from typing import IO, cast

from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.core import limits
from limpet.core.ids import seq_of
from limpet.errors import Corrupt, Unavailable
from limpet.model import Finding, ScopeInfo, Snapshot
from limpet.portable.records import (
    Counts,
    NoteRecord,
    Record,
    ScopeRecord,
    SnapshotRecord,
    first_line,
    last_line,
    line_of,
)

Tell = Callable[[Finding], None]

_CHUNK_BYTES_MAX = 4 * 1024 * 1024  # of states that are read together
_SPOOL_BYTES_MAX = 1024 * 1024  # of ids, before they go to a file
_LOOKS_MAX = 20


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: sessions begun, snapshots and bytes of their lines that were dealt with."""

    sessions: int
    snapshots: int
    bytes: int


Report = Callable[[Progress], None]


def export_lines(
    store: Store,
    *,
    session_id: str | None = None,
    prefix: str = "",
    skipped: Tell | None = None,
    report: Report | None = None,
) -> Iterator[bytes]:
    """Yield everything that a store holds, or one session, or those of a prefix, as lines.

    What is damaged is told to `skipped` and left out; without it, it is raised.

    Raises:
        Corrupt: a snapshot cannot be read.
    """
    yield first_line()
    counts, size = Counts(), 0
    sessions = sessions_of(store, session_id=session_id, prefix=prefix)
    for number, each in enumerate(sessions, 1):
        for scope in scopes_of(store, each):
            for record in scope_records(store.scope(*scope.key), skipped=skipped):
                line = line_of(record)
                counts = counts.plus(record)
                size += len(line)
                yield line
                if report is not None:
                    report(Progress(number, counts.snapshots, size))
    yield last_line(counts)


def sessions_of(store: Store, *, session_id: str | None, prefix: str) -> list[str]:
    """Return the sessions that are asked for, in text order."""
    if session_id is not None:
        found = next(iter(store.scopes(session_id, prefix=prefix)), None)
        return [] if found is None else [session_id]
    return sorted(store.sessions(prefix=prefix))  # object stores list them in the order of keys


def scopes_of(store: Store, session_id: str) -> list[ScopeInfo]:
    """Return the scopes of a session by kind and id."""
    found = store.scopes(session_id)
    return sorted(found, key=lambda each: (each.key.kind, each.key.scope_id))


def scope_records(scope: Scope, *, skipped: Tell | None = None) -> Iterator[Record]:
    """Yield what a scope holds at one moment: itself, its snapshots, its draft, its notes.

    What is saved meanwhile is left for the next time.

    Raises:
        Unavailable: what it shows changes faster than it can be listed.
    """
    head, listing = _look(scope, skipped)
    with closing(listing):
        kept = _kept(scope, listing, head, skipped)
        first = next(kept, None)
        notes = _notes(scope)
        note = next(notes, None)
        if head is None and first is None and note is None:
            return  # it only has a lease, or was deleted meanwhile
        yield ScopeRecord(scope.key, None if head is None else head.id)
        if first is not None:
            yield SnapshotRecord.of(first)
            yield from map(SnapshotRecord.of, kept)
        if head is not None and not head.kept:
            yield SnapshotRecord.of(head)
        if note is not None:
            yield note
            yield from notes
    for damage in scope.driver.run(lambda backend: backend.list_damage(scope.key)):
        if skipped is None:
            raise Corrupt(damage.message)
        skipped(damage)


class _Listing:
    """The ids of a scope with the sizes of their states, to be read with the oldest first.

    History is listed the other way, so it waits; not in memory, since an id may have 512 characters
    and a history has no end. What stands above `place` is left out.
    """

    def __init__(self, scope: Scope, place: int, head_id: str | None) -> None:
        spool = SpooledTemporaryFile(_SPOOL_BYTES_MAX)  # noqa: SIM115  # see `close`
        self._spool = cast(IO[bytes], spool)
        self._places: list[int] = []
        self._page: list[tuple[str, int]] = []
        self.holds_head = False
        for info in scope.history():
            if seq_of(info.revision) <= place:
                self.holds_head |= info.id == head_id
                self._add(info.id, info.size)

    def _add(self, id: str, size: int) -> None:
        self._page.append((id, size))
        if len(self._page) >= limits.PAGE_ITEMS_MAX:
            self._places.append(self._spool.tell())
            self._spool.write(json.dumps(self._page).encode() + b"\n")
            self._page = []

    def __iter__(self) -> Iterator[tuple[str, int]]:
        yield from reversed(self._page)
        for place in reversed(self._places):
            self._spool.seek(place)
            yield from reversed(json.loads(self._spool.readline()))

    def close(self) -> None:
        """Let go of the file."""
        self._spool.close()


def _look(scope: Scope, skipped: Tell | None) -> tuple[Snapshot | None, _Listing]:
    """Return what a scope shows, and what it had kept by then."""
    for _ in range(_LOOKS_MAX):
        newest = next(scope.history(limit=1), None)
        head = _head(scope, skipped)
        known = [seq_of(info.revision) for info in (newest, head) if info is not None]
        listing = _Listing(scope, max(known, default=-1), None if head is None else head.id)
        if head is None or listing.holds_head == head.kept:
            return head, listing
        listing.close()  # what it shows was deleted, or a draft was kept, in between
    raise Unavailable(f"it changes faster than it can be read. scope=`{scope.key.scope_id}`")


def _head(scope: Scope, skipped: Tell | None) -> Snapshot | None:
    """Return what the scope shows; if that is damaged, what would be shown without it."""
    try:
        return scope.load()
    except Corrupt as damage:
        if not _is_kept(scope):  # else it is told where it stands in history
            _tell(scope, None, damage, skipped)
    kept = (_loaded(scope, [info.id], lambda told: None) for info in scope.history())
    return next(chain.from_iterable(kept), None)


def _is_kept(scope: Scope) -> bool:
    try:
        info = scope.info()
    except Corrupt:
        return False
    return info is not None and info.kept


def _kept(
    scope: Scope, listing: _Listing, head: Snapshot | None, skipped: Tell | None
) -> Iterator[Snapshot]:
    """Yield the kept snapshots, the oldest first, and the head as it was read, gone or not."""
    chunk: list[str] = []
    size = 0
    for id, length in listing:
        is_head = head is not None and head.id == id
        is_full = len(chunk) >= limits.PAGE_STATES_MAX or size + length > _CHUNK_BYTES_MAX
        if chunk and (is_full or is_head):
            yield from _loaded(scope, chunk, skipped)
            chunk, size = [], 0
        if head is not None and is_head:
            yield head
        else:
            chunk.append(id)
            size += length
    yield from _loaded(scope, chunk, skipped)


def _loaded(scope: Scope, ids: list[str], skipped: Tell | None) -> Iterator[Snapshot]:
    """Yield snapshots; those that were deleted meanwhile are left out."""
    try:
        found = list(scope.load_many(ids))
    except Corrupt as damage:
        if skipped is None:
            raise
        if len(ids) == 1:
            _tell(scope, ids[0], damage, skipped)
            return
        for id in ids:  # one that is damaged must not take the others with it
            yield from _loaded(scope, [id], skipped)
        return
    yield from found


def _notes(scope: Scope) -> Iterator[NoteRecord]:
    """Yield the notes of the scope, then those on ids, by id and name."""
    for each in sorted(scope.notes(), key=lambda note: note.name):
        yield NoteRecord.of(scope.key, each)
    for id in sorted(scope.noted_ids()):
        for each in sorted(scope.notes(on=id), key=lambda note: note.name):
            yield NoteRecord.of(scope.key, each)


def _tell(scope: Scope, id: str | None, damage: Corrupt, skipped: Tell | None) -> None:
    if skipped is None:
        raise damage
    skipped(Finding("error", "damaged", str(damage), scope.key, id))
