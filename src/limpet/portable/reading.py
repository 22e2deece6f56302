"""Reads the content of a store as records, in an order that does not depend on the engine."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import attrgetter
from tempfile import SpooledTemporaryFile
from typing import IO, cast

from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.core import limits
from limpet.core.ids import seq_of
from limpet.errors import Corrupt, Unavailable, Unsupported
from limpet.model import Finding, ScopeKey, Snapshot, SnapshotInfo
from limpet.portable.records import (
    Counts,
    ExportRecord,
    LineChecks,
    NoteRecord,
    ScopeRecord,
    SnapshotRecord,
    first_line,
    last_line,
    line_of,
)
from limpet.protocol import OWN_SESSION

OnFinding = Callable[[Finding], None]

_CHUNK_BYTES_MAX = 4 * 1024 * 1024  # of states read at once
_SPOOL_BYTES_MAX = 1024 * 1024  # of ids in memory; more go to a file
_ATTEMPTS_MAX = 20


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: sessions begun, snapshots and bytes of lines done."""

    sessions: int
    snapshots: int
    bytes: int


OnProgress = Callable[[Progress], None]


def export_lines(
    store: Store,
    *,
    session_id: str | None = None,
    prefix: str = "",
    skipped: OnFinding | None = None,
    report: OnProgress | None = None,
    origins: str = "",
) -> Iterator[bytes]:
    """Yield a store, one session, or those of a prefix, as lines.

    Forks of sessions whose id does not begin with `origins` do not say what they were forked from.
    Damaged data, snapshots whose head is lost, and links in a folder are reported to `skipped` and
    left out; without it, Corrupt is raised.
    """
    checks = LineChecks()
    yield checks.add(first_line())
    counts, size = Counts(), 0
    scopes = scopes_of(store, session_id=session_id, prefix=prefix)
    for number, (_, keys) in enumerate(groupby(scopes, attrgetter("session_id")), 1):
        for key in keys:
            for record in scope_records(store.scope(*key), skipped=skipped):
                line = checks.add(line_of(_without_origin(record, origins)))
                counts = counts.plus(record)
                size += len(line)
                yield line
                if report is not None:
                    report(Progress(number, counts.snapshots, size))
    for each in unlisted(store, session_id=session_id, prefix=prefix):
        if skipped is None:
            raise Corrupt(each.message)
        skipped(each)
    yield checks.add(last_line(counts))


def _without_origin(record: ExportRecord, prefix: str) -> ExportRecord:
    """Leave out the origin of a fork, unless its session begins with a prefix."""
    if not isinstance(record, SnapshotRecord) or record.forked_from is None:
        return record
    is_shown = record.forked_from.scope.session_id.startswith(prefix)
    return record if is_shown else replace(record, forked_from=None)


def unlisted(store: Store, *, session_id: str | None, prefix: str) -> list[Finding]:
    """Return what no listing shows: snapshots whose head is lost, and links."""
    found = store.driver.run(lambda backend: backend.list_unlisted())
    if session_id is None and not prefix:
        return found
    known = [(each, each.scope.session_id) for each in found if each.scope is not None]
    return [
        each for each, name in known if name.startswith(prefix) and name == (session_id or name)
    ]


def sees_all(store: Store) -> bool:
    """Return whether a store is seen whole: a token may be bound to a prefix."""
    try:
        next(store.scopes(OWN_SESSION), None)
    except Unsupported:
        return False
    return True


def scopes_of(store: Store, *, session_id: str | None, prefix: str = "") -> list[ScopeKey]:
    """Return the scopes of a store, in the order of an export; object stores have another."""
    found = [*store.scopes(session_id, prefix=prefix)]
    if session_id is None and OWN_SESSION.startswith(prefix) and sees_all(store):
        found += store.scopes(OWN_SESSION)  # no listing shows it
    keys = [each.key for each in found if each.key.session_id.startswith(prefix)]
    return sorted(keys, key=lambda key: (key.session_id, key.kind, key.scope_id))


def scope_records(scope: Scope, *, skipped: OnFinding | None = None) -> Iterator[ExportRecord]:
    """Yield a scope as of one moment: itself, its snapshots, its draft, its notes.

    Later saves are left out. Unavailable if the head changes faster than the scope can be listed.
    """
    head, listing = _read_listing(scope, skipped)
    with closing(listing):
        kept = _kept(scope, listing, head, skipped)
        first = next(kept, None)
        notes = _notes(scope)
        note = next(notes, None)
        if head is None and first is None and note is None:
            return  # it has only a lease, or was deleted
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


class _IdSpool:
    """The ids of a scope up to revision `seq_max`, with the sizes of their states, oldest first.

    History is listed newest first, so the ids wait in a temporary file: a history may be long.
    """

    def __init__(self, scope: Scope, seq_max: int, head_id: str | None) -> None:
        spool = SpooledTemporaryFile(_SPOOL_BYTES_MAX)  # noqa: SIM115  # see `close`
        self._spool = cast(IO[bytes], spool)
        self._page_offsets: list[int] = []
        self._page: list[tuple[str, int]] = []
        self.holds_head = False
        for info in _listed(scope):
            if seq_of(info.revision) <= seq_max:
                self.holds_head |= info.id == head_id
                self._add(info.id, info.size)

    def _add(self, id: str, size: int) -> None:
        self._page.append((id, size))
        if len(self._page) >= limits.PAGE_ITEMS_MAX:
            self._page_offsets.append(self._spool.tell())
            self._spool.write(json.dumps(self._page).encode() + b"\n")
            self._page = []

    def __iter__(self) -> Iterator[tuple[str, int]]:
        yield from reversed(self._page)
        for offset in reversed(self._page_offsets):
            self._spool.seek(offset)
            yield from reversed(json.loads(self._spool.readline()))

    def close(self) -> None:
        self._spool.close()


def _read_listing(scope: Scope, skipped: OnFinding | None) -> tuple[Snapshot | None, _IdSpool]:
    """Return the head of a scope, and the ids that it had kept by then."""
    for _ in range(_ATTEMPTS_MAX):
        newest = next(_listed(scope, limit=1), None)
        head = _head(scope, skipped)
        known = [seq_of(info.revision) for info in (newest, head) if info is not None]
        listing = _IdSpool(scope, max(known, default=-1), None if head is None else head.id)
        if head is None or listing.holds_head == head.kept:
            return head, listing
        listing.close()  # meanwhile the head was deleted, or a draft was kept
    raise Unavailable(f"the scope changes faster than it can be read. scope=`{scope.key.scope_id}`")


def _listed(scope: Scope, limit: int | None = None) -> Iterator[SnapshotInfo]:
    with suppress(Corrupt):  # `list_damage` reports it
        yield from scope.history(limit=limit)


def _head(scope: Scope, skipped: OnFinding | None) -> Snapshot | None:
    """Return the head; if it is damaged, the newest kept snapshot that is not."""
    try:
        return scope.load()
    except Corrupt as damage:
        if not _is_kept(scope):  # else it is reported with the history
            _skip(scope, None, damage, skipped)
    kept = (_loaded(scope, [info.id], lambda finding: None) for info in _listed(scope))
    return next(chain.from_iterable(kept), None)


def _is_kept(scope: Scope) -> bool:
    try:
        info = scope.info()
    except Corrupt:
        return False
    return info is not None and info.kept


def _kept(
    scope: Scope, listing: _IdSpool, head: Snapshot | None, skipped: OnFinding | None
) -> Iterator[Snapshot]:
    """Yield the kept snapshots, oldest first; the head as it was read, even if deleted since."""
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


def _loaded(scope: Scope, ids: list[str], skipped: OnFinding | None) -> Iterator[Snapshot]:
    """Load snapshots; those that were deleted meanwhile are left out."""
    try:
        found = list(scope.load_many(ids))
    except Corrupt as damage:
        if skipped is None:
            raise
        if len(ids) == 1:
            _skip(scope, ids[0], damage, skipped)
            return
        for id in ids:  # one by one: only the damaged ones are skipped
            yield from _loaded(scope, [id], skipped)
        return
    yield from found


def _notes(scope: Scope) -> Iterator[NoteRecord]:
    with suppress(Corrupt):  # `list_damage` reports it
        for on in (None, *sorted(scope.noted_ids())):
            for each in sorted(scope.notes(on=on), key=lambda note: note.name):
                yield NoteRecord.of(scope.key, each)


def _skip(scope: Scope, id: str | None, damage: Corrupt, skipped: OnFinding | None) -> None:
    if skipped is None:
        raise damage
    skipped(Finding("error", "damaged", str(damage), scope.key, id))
