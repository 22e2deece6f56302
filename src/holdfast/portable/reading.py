"""Reading all that a store holds, in an order that does not depend on the engine."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from tempfile import SpooledTemporaryFile
from typing import IO, cast

from holdfast.core import limits
from holdfast.errors import Corrupt
from holdfast.model import Finding, ScopeInfo, Snapshot
from holdfast.portable.records import (
    NoteRecord,
    Record,
    ScopeRecord,
    SnapshotRecord,
    first_line,
    line_of,
)
from holdfast.scope import Scope
from holdfast.store import Store

Tell = Callable[[Finding], None]

_CHUNK_BYTES_MAX = 4 * 1024 * 1024  # of states that are read together
_SPOOL_BYTES_MAX = 1024 * 1024  # of ids, before they go to a file


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
    snapshots = size = 0
    sessions = sessions_of(store, session_id=session_id, prefix=prefix)
    for number, each in enumerate(sessions, 1):
        for scope in scopes_of(store, each):
            for record in scope_records(store.scope(*scope.key), skipped=skipped):
                line = line_of(record)
                snapshots += isinstance(record, SnapshotRecord)
                size += len(line)
                yield line
                if report is not None:
                    report(Progress(number, snapshots, size))


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
    """Yield what a scope holds: itself, its snapshots, its draft, its notes.

    What is saved meanwhile is left for the next time.
    """
    head = _head(scope, skipped)
    draft = None if head is None or head.kept else head
    kept = _kept(scope, skipped)
    first = next(kept, None)
    notes = _notes(scope)
    note = next(notes, None)
    if head is None and first is None and note is None:
        return  # it only has a lease, or was deleted meanwhile
    yield ScopeRecord(scope.key, None if head is None else head.id)
    if first is not None:
        yield SnapshotRecord.of(first)
        yield from map(SnapshotRecord.of, kept)
    if draft is not None:
        yield SnapshotRecord.of(draft)
    if note is not None:
        yield note
        yield from notes


def _head(scope: Scope, skipped: Tell | None) -> Snapshot | None:
    """Return what the scope shows; if that is damaged, what would be shown without it."""
    try:
        return scope.load()
    except Corrupt as damage:
        _tell(scope, None, damage, skipped)
    kept = (_loaded(scope, [info.id], lambda told: None) for info in scope.history())
    return next(chain.from_iterable(kept), None)


def _kept(scope: Scope, skipped: Tell | None) -> Iterator[Snapshot]:
    """Yield the kept snapshots, the oldest first."""
    chunk: list[str] = []
    size = count = 0
    for id, length in _oldest_first(scope):
        count += 1
        if chunk and (len(chunk) >= limits.PAGE_STATES_MAX or size + length > _CHUNK_BYTES_MAX):
            yield from _loaded(scope, chunk, skipped)
            chunk, size = [], 0
        chunk.append(id)
        size += length
    yield from _loaded(scope, chunk, skipped)
    if count != sum(1 for _ in scope.ids()):
        _find_unlisted(scope, skipped)


def _find_unlisted(scope: Scope, skipped: Tell | None) -> None:
    """Tell of what is so damaged that a history leaves it out, which knows only its id."""
    for id in scope.ids():
        try:
            scope.info(id)
        except Corrupt as damage:
            _tell(scope, id, damage, skipped)


def _oldest_first(scope: Scope) -> Iterator[tuple[str, int]]:
    """Yield ids with the sizes of their states. History is listed the other way, so it waits.

    Not in memory: an id may have 512 characters, and a history has no end.
    """
    with closing(cast(IO[bytes], SpooledTemporaryFile(_SPOOL_BYTES_MAX))) as spool:
        places: list[int] = []
        page: list[tuple[str, int]] = []
        for info in scope.history():
            page.append((info.id, info.size))
            if len(page) >= limits.PAGE_ITEMS_MAX:
                places.append(spool.tell())
                spool.write(json.dumps(page).encode() + b"\n")
                page = []
        yield from reversed(page)
        for place in reversed(places):
            spool.seek(place)
            yield from reversed(json.loads(spool.readline()))


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
