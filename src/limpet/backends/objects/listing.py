"""Listings: of one scope, of scopes and sessions, and across scopes.

Scopes are found by a listing of keys, and at most one read for each: the rest of a folder is
skipped once its scope is known. An index pointer only says which scope to read.
"""

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, islice
from typing import NamedTuple, TypeVar

from limpet.backends.buckets.protocol import Listed
from limpet.backends.objects import keys
from limpet.backends.objects.files import PAGE, Files, Index, Pointed, walk
from limpet.backends.objects.format import Fact
from limpet.backends.objects.heads import Head
from limpet.backends.objects.keys import ROOT, ObjectKey
from limpet.backends.objects.reader import ObjectReader, read_moment
from limpet.backends.support.recent import Recent
from limpet.core import ids
from limpet.core.encryption import WrongKeys
from limpet.core.limits import CACHE_BYTES_MAX
from limpet.core.notes import NoteRow, last_written
from limpet.core.rows import Row, newest_page
from limpet.errors import Corrupt, LimpetError, Unsupported
from limpet.model import ScopeKey, SnapshotRef
from limpet.protocol import NoteQuery, Query, SessionAge
from limpet.storage import ScopeQuery, ScopeRecord

T = TypeVar("T")

_CHUNK = 32  # heads read together
_EMPTY_BYTES_MAX = 8 * 1024  # a head without snapshots is smaller
_LEAVES_MAX = 4096  # candidates compared at a time
_ID_BYTES = 128  # in memory
# How much the clock of a writer may be ahead of the storage's: only a head that was modified since
# a snapshot's time, less this, can hold a newer one.
_SKEW_US = 3600 * 1_000_000


class Listing(NamedTuple):
    """A scope, and its head: None if it has none, an error if that cannot be read."""

    scope: ScopeKey
    head: Head | LimpetError | None


class Listings:
    files: Files
    index: Index

    def __init__(self) -> None:
        # By scope: the nonce of its head, and its ids in text order.
        self._sorted: Recent[ScopeKey, tuple[str, list[str]]] = Recent(
            CACHE_BYTES_MAX, lambda each: _ID_BYTES * (1 + len(each[1]))
        )
        super().__init__()

    def list_rows(self, query: Query, limit: int) -> list[tuple[ScopeKey, Row]]:
        if query.scope is not None:
            if not query.scope.session_id.startswith(query.prefix):
                return []
            return self._of_scope(query.scope, query, limit)
        if query.id is not None:
            scopes = self._scopes_with(query.id, query.prefix)
            found = _newest(limit, (self._of_any(each, query, limit) for each in scopes))
        else:
            found = (self._labelled if query.labels else self._everywhere)(query, limit)
        if not found:
            self.files.check_ours()
        return found

    def _of_scope(
        self,
        scope: ScopeKey,
        query: Query,
        limit: int | None,
        since: int = 0,
        seen: Head | None = None,
    ) -> list[tuple[ScopeKey, Row]]:
        """Return a page of one scope: what is not older than `since`.

        A segment that is damaged hides nothing of the rest; but what a query needs of it to tell
        must be there.

        Raises:
            Corrupt: the head is damaged, or missing.
        """
        skip = query.id is None and not query.leaves

        def read(reader: ObjectReader) -> list[tuple[ScopeKey, Row]]:
            if query.id is not None and not query.leaves:
                found, after = reader.facts([query.id]).values(), query.after
                facts: Iterable[Fact] = (
                    f for f in found if _fits(f, query) and (not after or f.row.seq < after)
                )
            else:
                facts = _matching(reader, query, since, skip=skip)
            return [(scope, fact.row) for fact in islice(facts, limit)]

        return read_moment(self.files, scope, read, seen)

    def _of_any(
        self,
        scope: ScopeKey,
        query: Query,
        limit: int | None,
        since: int = 0,
        seen: Head | None = None,
    ) -> list[tuple[ScopeKey, Row]]:
        """As `_of_scope`, and nothing where a head cannot be read: `check` reports it."""
        with suppress(Corrupt, Unsupported):
            return self._of_scope(scope, query, limit, since, seen)
        return []

    def list_ids(self, scope: ScopeKey, after: str, limit: int) -> list[str]:
        def read(reader: ObjectReader) -> list[str]:
            known = self._sorted.get(scope)  # a page would else cost as much as all of them
            if known is None or known[0] != reader.head.w:
                facts = list(reader.newest_first(skip=True))
                known = reader.head.w, sorted(f.row.id for f in facts if f.row.kept)
                if len(facts) == reader.count():  # else a segment was damaged
                    self._sorted.put(scope, known)
            start = bisect_right(known[1], after)
            return known[1][start : start + limit]

        return read_moment(self.files, scope, read)

    def list_sessions(self, prefix: str, after: str, limit: int) -> list[str]:
        start = f"{keys.session_prefix(after)}~" if after else ""
        found = self._walk(keys.sessions_prefix(prefix), start, one_each=True)
        ids = (each.scope.session_id for each in found)
        return list(islice((id for id in ids if id.startswith(prefix)), limit))

    def list_newest(self, prefix: str, after: SessionAge | None, limit: int) -> list[SessionAge]:
        found = (
            (each, self._head_row(each)) for each in self.walk_scopes(ScopeQuery(prefix=prefix))
        )
        heads = (
            (each.scope.session_id, None if row is None else row.created_at) for each, row in found
        )
        return newest_page(heads, after, limit)

    def list_scopes(
        self, query: ScopeQuery, limit: int | None = None
    ) -> list[tuple[ScopeRecord, Row | None]]:
        page = islice(self.walk_scopes(query), limit)
        return [(_record_of(each), self._head_row(each)) for each in page]

    def _head_row(self, listing: Listing) -> Row | None:
        if not isinstance(listing.head, Head):
            return None  # `check` reports a damaged one
        try:
            return read_moment(self.files, listing.scope, ObjectReader.head_row, listing.head)
        except Corrupt:
            return None

    def sizes(self, session_id: str | None) -> list[tuple[str, int, int]]:
        heads = ((each.scope, each.head) for each in self.walk_scopes(ScopeQuery(session_id)))
        return [
            (scope.session_id, head.snapshots, head.logical)
            if isinstance(head, Head)
            else (scope.session_id, 0, 0)
            for scope, head in heads
        ]

    def stored_bytes(self, session_id: str | None) -> int:
        prefix = ROOT if session_id is None else keys.session_prefix(session_id)
        parsed = ((each, keys.parse(each.key)) for each in walk(self.files.bucket, prefix))
        # A scope that was deleted may have left a head that holds nothing.
        scopes = (each.scope for each in self.walk_scopes(ScopeQuery(session_id)))
        folders = {keys.scope_prefix(each) for each in scopes}
        return sum(each.size for each, key in parsed if key is not None and key.folder in folders)

    def find_notes(
        self, query: NoteQuery, limit: int, take: Callable[[ScopeKey, NoteRow], T | None]
    ) -> list[T]:
        """Reads all notes of the scopes: nothing is ordered by time in a bucket."""
        walked = self.walk_scopes(ScopeQuery(prefix=query.under))
        scopes = (each.scope for each in walked if query.covers(each.scope))
        notes = ((key, row) for key in scopes for row in self._notes_of(key))
        return last_written(notes, limit, take)

    def _notes_of(self, key: ScopeKey) -> list[NoteRow]:
        with suppress(Corrupt, Unsupported):
            return read_moment(self.files, key, lambda reader: reader.note_page("", "", PAGE**2))
        return []

    def walk_scopes(self, query: ScopeQuery) -> Iterator[Listing]:
        """Yield the scopes that hold anything, also those whose head cannot be read."""
        below = keys.sessions_prefix(query.prefix)
        if query.session_id is not None:
            below = keys.session_prefix(query.session_id)
        start = "" if query.after is None else f"{keys.scope_prefix(query.after)}~"
        found = self._walk(below, start, one_each=False)
        return (each for each in found if query.covers(each.scope))

    def _walk(self, prefix: str, after: str, *, one_each: bool) -> Iterator[Listing]:
        done, start = "", after  # keys that begin with `done` are skipped
        while True:
            page = self.files.bucket.list(prefix, after=after, limit=PAGE)
            pairs = ((each, key) for each in page if (key := keys.parse(each.key)) is not None)
            groups = groupby(pairs, key=lambda pair: pair[1].folder)
            listed = ((folder, list(pairs)) for folder, pairs in groups)
            while chunk := list(islice(listed, _CHUNK)):
                for folder, found in self._read_heads(chunk, one_each):
                    if found is not None and not (done and folder.startswith(done)):
                        yield found
                        done = _session_folder(folder) if one_each else folder
            if len(page) < PAGE:
                if not done and not start:
                    self.files.check_ours()
                return
            last = page[-1].key
            # Names that sort after `~` are foreign: then nothing is skipped.
            jump = f"{done}~"
            after = jump if done and last.startswith(done) and last < jump else last

    def _read_heads(
        self, chunk: Sequence[tuple[str, list[tuple[Listed, ObjectKey]]]], one_each: bool
    ) -> Iterator[tuple[str, Listing | None]]:
        known = {
            folder: Listing(scope, None)
            for folder, pairs in chunk
            if one_each and (scope := pairs[0][1].scope) and any(_is_proof(*p) for p in pairs)
        }
        unread = [folder for folder, _ in chunk if folder not in known]
        found = self.files.list_heads([f"{folder}head" for folder in unread])
        heads = dict(zip(unread, found, strict=True))
        for folder, pairs in chunk:
            if folder in known:
                yield folder, known[folder]
                continue
            head, scope = heads[folder], pairs[0][1].scope
            is_held = isinstance(head, LimpetError)
            if isinstance(head, Head):
                scope = head.key
                is_held = head.record is not None and head.record.holds_anything
            elif head is None and scope is not None:
                is_held = any(self.files.is_lost(scope, each.key) for each, _ in pairs)
            yield folder, Listing(scope, head) if is_held and scope is not None else None

    # Across scopes

    def _scopes_with(self, id: str, prefix: str) -> Iterator[ScopeKey]:
        """Return the scopes that may hold a snapshot with this id."""
        scopes = [each.scope for each in self.index.walk(keys.id_prefix(id))]
        tag = ids.tag_of(id)
        if tag is not None:
            scopes += [each.scope for each in self.index.walk(keys.line_prefix(tag))]
        return (s for s in dict.fromkeys(scopes) if s.session_id.startswith(prefix))

    def _labelled(self, query: Query, limit: int) -> list[tuple[ScopeKey, Row]]:
        """Follow the pointers of one label minute by minute, until there are enough snapshots."""
        label, *_ = query.labels
        found: list[tuple[ScopeKey, Row]] = []
        spelt = self.files.ciphers.labels(query.prefix, *label)
        for minute, group in groupby(self._pointed_by_any(spelt, query.after), key=_minute):
            scopes = {p.scope for p in group if p.scope.session_id.startswith(query.prefix)}
            first, end = keys.minute_range(minute)
            until = query._replace(after=end if query.after is None else min(end, query.after))
            pages = [self._of_any(each, until, None, first) for each in sorted(scopes)]
            found += _newest(limit, pages)
            if len(found) >= limit:
                break
        return found[:limit]

    def _pointed_by_any(
        self, spelt: Sequence[tuple[str, str]], after: int | None
    ) -> Iterator[Pointed]:
        """Yield the pointers of a label, however it is spelt: whole minutes, the newest first."""
        if len(spelt) == 1:
            yield from self._pointed(*spelt[0], after)
            return
        count = PAGE
        while True:
            # Older keys first: `rekey` writes a new pointer before it removes the old one.
            pages = [list(islice(self._pointed(*each, after), count)) for each in reversed(spelt)]
            # The minute in which a page ends may have more.
            end = max((_minute(page[-1]) for page in pages if len(page) == count), default=-1)
            some = [each for page in pages for each in page if _minute(each) > end]
            yield from sorted(some, key=_minute, reverse=True)
            if end < 0:
                return
            if not some:
                count *= 2
            after, _ = keys.minute_range(end)

    def _pointed(self, name: str, value: str, after: int | None) -> Iterator[Pointed]:
        start = "" if after is None else keys.label_start(name, value, after)
        return self.index.walk(keys.label_prefix(name, value), start)

    def _everywhere(self, query: Query, limit: int) -> list[tuple[ScopeKey, Row]]:
        """Read heads, those modified last first, until no other one can hold newer snapshots."""
        below = keys.sessions_prefix(query.prefix)
        heads = [
            (each.modified, each.key)
            for each in walk(self.files.bucket, below or ROOT)
            if each.key.endswith("/head")
        ]
        heads.sort(reverse=True)
        found: list[tuple[ScopeKey, Row]] = []
        for start in range(0, len(heads), _CHUNK):
            if len(found) == limit:
                oldest = ids.place_us(found[-1][1].seq)
                if heads[start][0] + _SKEW_US < oldest:
                    break
            chunk = self.files.list_heads([path for _, path in heads[start : start + _CHUNK]])
            read = [each for each in chunk if isinstance(each, Head)]  # `check` reports others
            pages = (
                self._of_any(each.key, query, limit, seen=each)
                for each in read
                if each.key.session_id.startswith(query.prefix)
            )
            found = _newest(limit, [found, *pages])
        return found

    def find_refs(self, id_prefix: str, limit: int) -> list[SnapshotRef]:
        found: dict[SnapshotRef, None] = {}
        for scope in self._scopes_beginning(id_prefix):
            with suppress(WrongKeys):  # a session without its key does not hide the others
                found |= dict.fromkeys(
                    read_moment(self.files, scope, lambda r: _refs(r, id_prefix))
                )
            if len(found) >= limit:
                break
        return list(found)[:limit]

    def _scopes_beginning(self, id_prefix: str) -> Iterator[ScopeKey]:
        """Return the scopes with an id that begins with a text, and maybe others, each once.

        The tag of a minted id is at its end: if the text may begin one, all scopes are read.
        """
        seen: set[ScopeKey] = set()
        pointed: Iterable[Pointed] = self.index.walk(keys.ids_prefix(id_prefix))
        if ids.may_begin_minted(id_prefix):
            pointed = self.index.walk(keys.LINES)
        for each in pointed:
            if each.scope not in seen:
                seen.add(each.scope)
                yield each.scope


def _matching(
    reader: ObjectReader, query: Query, since: int = 0, *, skip: bool = False
) -> Iterator[Fact]:
    every = reader.newest_first(query.after, since, skip=skip)
    facts = (fact for fact in every if _fits(fact, query))
    return facts if not query.leaves else _leaves(reader, facts)


def _leaves(reader: ObjectReader, facts: Iterator[Fact]) -> Iterator[Fact]:
    while chunk := list(islice(facts, _LEAVES_MAX)):
        names = {fact.row.id for fact in chunk}
        kept = (fact.row for fact in reader.newest_first() if fact.row.kept)
        inner = {row.parent_id for row in kept if row.parent_id in names}
        yield from (fact for fact in chunk if fact.row.id not in inner)


def _fits(fact: Fact, query: Query) -> bool:
    row = fact.row
    if not row.kept or query.id not in (None, row.id) or query.status not in (None, row.status):
        return False
    if not query.labels:
        return True
    labels = fact.labels
    return all(labels.get(name) == value for name, value in query.labels)


def _refs(reader: ObjectReader, id_prefix: str) -> list[SnapshotRef]:
    rows = (fact.row for fact in reader.newest_first())
    return [SnapshotRef(reader.key, r.id) for r in rows if r.kept and r.id.startswith(id_prefix)]


def _is_proof(listed: Listed, key: ObjectKey) -> bool:
    """Return whether a key and a size show that a scope is not empty."""
    return key.is_head and listed.size > _EMPTY_BYTES_MAX


def _session_folder(folder: str) -> str:
    return f"{keys.ROOT}{folder[len(keys.ROOT) :].partition('/')[0]}/"


def _record_of(listing: Listing) -> ScopeRecord:
    """Return the record of a scope, one that says nothing if it cannot be read."""
    record = listing.head.record if isinstance(listing.head, Head) else None
    return record or ScopeRecord(listing.scope, 0, 0)


def _minute(pointed: Pointed) -> int:
    return pointed.pointer.minute


def _newest(limit: int, pages: Iterable[list[tuple[ScopeKey, Row]]]) -> list[tuple[ScopeKey, Row]]:
    rows = (pair for page in pages for pair in page)
    return heapq.nlargest(limit, rows, key=lambda pair: pair[1].seq)
