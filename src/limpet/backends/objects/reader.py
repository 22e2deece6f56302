"""One moment of a scope, read from its objects: its head, and of the others what is asked for."""

import heapq
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import takewhile
from typing import TypeVar

from limpet.backends.objects.files import Files, Gone
from limpet.backends.objects.format import (
    Address,
    Fact,
    Named,
    NamedPage,
    StoredNote,
    StoredSegment,
)
from limpet.backends.objects.heads import Entry, Head
from limpet.core import ids
from limpet.core.encryption import WrongKeys
from limpet.core.ids import SEQ_MAX
from limpet.core.notes import NoteRow
from limpet.core.rows import Row
from limpet.errors import Corrupt
from limpet.model import ScopeKey
from limpet.storage import ScopeRecord, SegmentRow, SharedRow, TailRow

T = TypeVar("T")
U = TypeVar("U")


class ObjectReader:
    """Implements `storage.Reader`, and what else a storage asks of one moment.

    Raises `Gone` where an object that the head names is missing: the head has moved, or it is
    damage. Those in `lost` were missing before the head was read, so they are damage: Corrupt.
    """

    def __init__(
        self, files: Files, key: ScopeKey, head: Head | None, lost: Collection[str] = ()
    ) -> None:
        self._files = files
        self.key = key
        self.head = head or Head(key, None, "")
        self.record: ScopeRecord | None = self.head.record
        self.others: dict[ScopeKey, ObjectReader] = {}
        self.said_now: int | None = None
        self._lost = lost

    def _read(self, read: Callable[[ScopeKey, Sequence[T]], U], some: Sequence[T]) -> U:
        try:
            return read(self.key, some)
        except Gone as gone:
            if str(gone) in self._lost:
                raise Corrupt(f"a part of the history is missing. key=`{gone}`") from None
            raise

    def _read_one(
        self, read: Callable[[Sequence[T]], Sequence[Sequence[U]]], part: T, skip: bool
    ) -> Sequence[U]:
        """Return what a part holds; with `skip` nothing if it is damaged."""
        try:
            return read([part])[0]
        except Corrupt as cause:
            if not skip or isinstance(cause, WrongKeys):
                raise
            return ()

    # Snapshots

    def fact_at(self, seq: int) -> Fact | None:
        entry = self.head.entries.get(seq)
        if entry is not None:
            return entry.fact
        named = self.named_at(seq)
        found = () if named is None else self.facts_of([named])[0]
        return next((fact for fact in found if fact.row.seq == seq), None)

    def row_at(self, seq: int) -> Row | None:
        fact = self.fact_at(seq)
        return None if fact is None else fact.row

    def head_row(self) -> Row | None:
        """Return the snapshot that the scope shows."""
        record = self.record
        return None if record is None or record.head is None else self.row_at(record.head)

    def rows(self, ids: Sequence[str]) -> list[Row]:
        found = self.facts(ids)
        return [found[id].row for id in ids if id in found]

    def facts(self, wanted: Iterable[str]) -> dict[str, Fact]:
        """Return snapshots by id. Facts are read of no more segments than needed.

        The time in an id that we minted says which segment to read first.
        """
        left = set(wanted)
        found = {id: entry.fact for id in left if (entry := self._entries_by_id.get(id))}
        left -= found.keys()
        times = {ms for id in left if (ms := ids.time_ms_of(id)) is not None}
        segments = self.head.segments
        likely = [each for each in segments if any(_covers(each, ms) for ms in times)]
        others = [each for each in reversed(segments) if each not in likely]
        for group in (likely, others):
            if left and group:
                for segment in self._read(self._files.facts, group):
                    by_id = segment.by_id
                    here = ((id, by_id[id]) for id in left & by_id.keys())
                    found |= {id: fact for id, fact in here if not self._is_in_tail(fact)}
                left -= found.keys()
        return found

    @cached_property
    def _entries_by_id(self) -> dict[str, Entry]:
        return {entry.row.id: entry for entry in self.head.entries.values()}

    def _is_in_tail(self, fact: Fact) -> bool:
        # A state that was saved from a damaged segment is in the tail as well.
        return fact.row.seq in self.head.entries

    def row_by_nonce(self, nonce: str) -> Row | None:
        return next((fact.row for fact in self.newest_first() if fact.row.nonce == nonce), None)

    def rows_between(self, first: int, last: int) -> list[Row]:
        return [fact.row for fact in self.newest_first(last + 1, first)][::-1]

    def seqs_and_sizes(self, ids: Sequence[str]) -> list[tuple[int, int]]:
        return [(row.seq, row.size) for row in self.rows(list(dict.fromkeys(ids)))]

    def newest_kept(self, without: Collection[int]) -> int | None:
        facts = self.newest_first()
        kept = (f.row.seq for f in facts if f.row.kept and f.row.seq not in without)
        return next(kept, None)

    def newest_first(
        self, before: int | None = None, since: int = 0, *, skip: bool = False
    ) -> Iterator[Fact]:
        """Yield snapshots, drafts too, the last saved first: those before a seq, back to `since`.

        With `skip` segments that cannot be read are left out.
        """
        end = SEQ_MAX + 1 if before is None else before
        tail = sorted((seq for seq in self.head.entries if since <= seq < end), reverse=True)
        for named in reversed(self.head.segments):
            while tail and tail[0] > named.last:
                yield self.head.entries[tail.pop(0)].fact
            if named.first >= end or named.last < since:
                continue
            for fact in reversed(self._read_one(self.facts_of, named, skip)):
                while tail and tail[0] > fact.row.seq:
                    yield self.head.entries[tail.pop(0)].fact
                if since <= fact.row.seq < end and not self._is_in_tail(fact):
                    yield fact
        yield from (self.head.entries[seq].fact for seq in tail)

    def facts_of(self, named: Sequence[Named]) -> list[tuple[Fact, ...]]:
        return [each.facts for each in self._read(self._files.facts, named)]

    def count(self) -> int:
        return self.head.snapshots

    # States

    def tail_row(self, seq: int) -> TailRow | None:
        entry = self.head.entries.get(seq)
        return None if entry is None else entry.tail

    def tail(self) -> dict[int, TailRow]:
        return {seq: entry.tail for seq, entry in self.head.entries.items()}

    def named_at(self, seq: int) -> Named | None:
        """Return the segment whose range has a seq."""
        segments = self.head.segments
        at = bisect_left(segments, seq, key=lambda each: each.last)
        return segments[at] if at < len(segments) and segments[at].first <= seq else None

    def segment(self, seq: int | None) -> SegmentRow | None:
        segments = self.head.segments
        ends = [each.last for each in segments]
        at = len(ends) - 1 if seq is None else bisect_left(ends, seq)
        if not 0 <= at < len(ends):
            return None
        named = segments[at]
        try:
            found = self.stored_segment(named)
            # Without its facts it cannot be written again.
            states = found.states if found.facts else b""
        except WrongKeys:
            raise
        except Corrupt:
            states = b""
        return SegmentRow(named.first, named.last, states)

    def stored_segment(self, named: Named) -> StoredSegment:
        """Return a whole segment."""
        return self._read(self._files.segments, [named])[0]

    def shared(self, name: bytes) -> SharedRow | None:
        return None

    def has_shared(self, name: bytes) -> bool | None:
        return None

    # Notes

    def notes(self, on: Collection[str], names: Collection[str] | None = None) -> list[NoteRow]:
        if names is None:
            return [
                each.row() for snapshot in on for each in self._walk_notes((snapshot, ""), snapshot)
            ]
        wanted = {(snapshot, name) for snapshot in on for name in names}
        found = [self.head.notes[address] for address in wanted & self.head.notes.keys()]
        left = wanted - self.head.notes.keys()
        pages = dict.fromkeys(page for each in left if (page := self.page_at(each)))
        for notes in self.notes_of([*pages]):
            found += [each for each in notes if each.address in left]
        return [each.row() for each in found]

    def page_at(self, address: Address) -> NamedPage | None:
        """Return the page that has an address, if one has."""
        pages = self.head.pages
        at = bisect_left(pages, address, key=_last)
        return pages[at] if at < len(pages) and pages[at].first <= address else None

    def notes_of(self, pages: Sequence[NamedPage]) -> list[list[StoredNote]]:
        return self._read(self._files.notes_of, pages)

    def note_page(self, on: str, after: str, limit: int) -> list[NoteRow]:
        found = list[NoteRow]()
        for each in self._walk_notes((on, f"{after}\0" if after else ""), on, skip=True):
            with suppress(Corrupt):
                found.append(each.row())
            if len(found) == limit:
                break
        return found

    def note_addresses(self, on: Collection[str]) -> list[Address]:
        if self.record is None or not self.record.notes:
            return []
        found = (note for each in on for note in self._walk_notes((each, ""), each, skip=True))
        return [note.address for note in found]

    def noted(self, after: str, limit: int) -> list[str]:
        found = dict[str, None]()
        for each in self._walk_notes((f"{after}\0", ""), skip=True):
            found[each.on] = None
            if len(found) > limit:
                break
        return list(found)[:limit]

    def _walk_notes(
        self, start: Address, on: str | None = None, *, skip: bool = False
    ) -> Iterator[StoredNote]:
        """Yield the notes from an address on, in order; with `on` those of a snapshot only.

        With `skip` pages that cannot be read are left out.
        """
        pages = self.head.pages
        pages = pages[bisect_left(pages, start, key=_last) :]

        def stored() -> Iterator[StoredNote]:
            for page in pages:
                if on is not None and page.first[0] > on:
                    return
                found = self._read_one(self.notes_of, page, skip)
                yield from (each for each in found if each.address >= start)

        inline = (note for address, note in sorted(self.head.notes.items()) if address >= start)
        found = heapq.merge(inline, stored(), key=lambda note: note.address)
        return found if on is None else takewhile(lambda note: note.on == on, found)

    # Leases and forks

    def now(self, here: int, *, hint: bool = False) -> int:
        """Return the time by which the lease ends: no decision depends on clocks of others.

        It has run for as long as this process has seen it unrenewed.
        """
        record, self.said_now = self.record, here
        if not hint and record is not None and record.until is not None:
            seen_us = self._files.lease_seen_us(record)
            now = record.until - self.head.ttl_us + seen_us
            # One that has expired is followed by one that ends by the clock here: for hints.
            self.said_now = max(now, here) if now >= record.until else now
        return self.said_now

    def other(self, key: ScopeKey) -> "ObjectReader":
        head = self._files.read(key).head
        found = self.others[key] = ObjectReader(self._files, key, head, self._lost)
        return found


def _last(page: NamedPage) -> Address:
    return page.last


def _covers(named: Named, ms: int) -> bool:
    return ids.place_us(named.first) // 1000 <= ms <= ids.place_us(named.last) // 1000


def read_moment(
    files: Files, key: ScopeKey, use: Callable[[ObjectReader], T], seen: Head | None = None
) -> T:
    """Return what `use` returns for one moment; repeat it if the head moves meanwhile.

    The moment may be that of `seen`, a head that was just read.
    """
    if seen is not None:
        with suppress(Gone):
            return use(ObjectReader(files, key, seen))
    lost, again = set[str](), True
    while True:
        try:
            return use(ObjectReader(files, key, files.read(key).head, lost))
        except Gone as gone:
            lost.add(str(gone))
        except Corrupt:
            # A deletion under way may look like damage until it is over.
            if not again:
                raise
            again = False
