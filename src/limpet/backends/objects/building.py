"""How a change becomes objects: the next head of a scope, and the parts that it needs.

A part is a segment or a page of notes. It is never changed: one of which something goes is written
again, under another name.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from limpet.backends.objects import keys
from limpet.backends.objects.files import Gone, Index, stamped
from limpet.backends.objects.format import (
    Address,
    Fact,
    Named,
    NamedPage,
    StoredNote,
    dump_page,
    dump_segment,
    line_of,
    sum_of,
)
from limpet.backends.objects.heads import Entry, Head, nonce_of
from limpet.backends.objects.reader import ObjectReader
from limpet.core import ids
from limpet.core.limits import KIB
from limpet.core.rows import EMPTY, Row
from limpet.errors import Corrupt
from limpet.model import ScopeKey
from limpet.storage import Change, ScopeRecord, TailRow, Taken

_INLINE_NOTES_MAX: Final = 64
_INLINE_BYTES_MAX: Final = 16 * KIB
_PAGE_NOTES_MAX: Final = 256
_PAGE_BYTES_MAX: Final = 128 * KIB


class Built(NamedTuple):
    """A head to be stored, and what is written before it and removed after it.

    `parts` are new objects by key, `removed` the keys of those that the head before named;
    `pointers` are new, `unneeded` ones have no use any more.
    """

    head: Head
    parts: Mapping[str, bytes] = {}
    removed: Sequence[str] = ()
    pointers: Sequence[str] = ()
    unneeded: Collection[str] = ()


def part_keys(head: Head) -> list[str]:
    """Return the keys of the segments and pages that a head names."""
    return [
        *(keys.segment_key(head.key, each.name) for each in head.segments),
        *(keys.page_key(head.key, each.name) for each in head.pages),
    ]


class Builder:
    """Builds the next head of the moment that a change was made for.

    `after` is the record of the change, `attempt` a nonce. No two attempts at one change have a
    part in common: the earlier one may still be stored after the later one has failed and removed
    its parts.
    """

    def __init__(
        self,
        index: Index,
        change: Change,
        after: ScopeRecord,
        reader: ObjectReader,
        *,
        attempt: str,
        compress: bool,
    ) -> None:
        self._index, self._change, self._after, self._reader = index, change, after, reader
        self._before, self._attempt, self._compress = reader.head, attempt, compress
        self._parts: dict[str, bytes] = {}
        self._made: dict[int, Fact] = {}  # new snapshots
        self._stamps: dict[int, dict[tuple[str, str], int]] = {}  # of the labels of a minute
        self._replaced: dict[int, Fact] = {}
        self._gone: list[Fact] = []  # and other versions than those that are there from now on
        self._left: list[Fact] = []  # the snapshots of segments that are written again
        self._pool: dict[int, Fact] = {}  # snapshots that go from one place to another

    def built(self) -> Built:
        """Return what the change writes.

        Raises:
            Taken: a seq or an id of it is taken.
            Gone: a part that has to be written again is missing.
        """
        change, before = self._change, self._before
        is_save = not (change.replace or change.rows_gone or change.segments or change.tail_gone)
        if change.rows and not change.replace:
            self._check_taken(change.rows)
        else:
            self._replaced = self._other_versions()
        entries = self._entries()
        segments = before.segments if is_save else self._segments(entries)
        pages, notes = self._notes()
        head = before._replace(
            record=self._after,
            w=nonce_of(self._after.version),
            entries=entries,
            segments=segments,
            pages=pages,
            notes=notes,
            pending=self._pending(),
            over=before.w if before.record is None else before.over,
        )
        if self._after.until != (None if change.before is None else change.before.until):
            head = head._replace(ttl_us=self._ttl_us())
        removed = list[str]()
        if segments is not before.segments or pages is not before.pages:
            named = {*part_keys(head)}
            removed = [path for path in part_keys(before) if path not in named]
        # A draft is replaced with every save, and is not what its caller deletes.
        if change.replace or change.notes_gone or (change.rows_gone and not change.rows):
            head = head._replace(unswept=True)
        pointers = self._pointers()
        return Built(head, self._parts, removed, pointers, self._unneeded(head))

    def _check_taken(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row.seq in self._before.entries and row.seq not in self._change.rows_gone:
                raise Taken
            if self._is_own(row):
                found = self._reader.facts([row.id]).get(row.id)
                if found is not None and found.row.seq not in self._change.rows_gone:
                    raise Taken

    def _is_own(self, row: Row) -> bool:
        """Return whether a new snapshot has an id that its caller gave."""
        before = self._change.before
        return row.id != self._after.floor or (before is not None and before.floor == row.id)

    def _other_versions(self) -> dict[int, Fact]:
        """Return the next versions of snapshots, and note what goes with those before."""
        found = dict[int, Fact]()
        for row in self._change.rows:
            fact = self._reader.fact_at(row.seq)
            if fact is not None:
                new = fact._replace(row=row)
                stamp = ids.place(row.updated_at, 0, self._after.version)
                found[row.seq] = stamped(new, dict(fact.stamps), stamp)
                self._gone.append(fact)
        return found

    # The tail

    def _entries(self) -> dict[int, Entry]:
        change, entries = self._change, dict(self._before.entries)
        tails = {tail.seq: tail for tail in change.tail}
        for seq in change.rows_gone:
            if (entry := entries.pop(seq, None)) is not None:
                self._gone.append(entry.fact)
        for seq in change.tail_gone:
            if (entry := entries.pop(seq, None)) is not None:
                self._pool[seq] = entry.fact
        for seq, fact in self._replaced.items():
            if seq in entries:
                entries[seq] = entries[seq].with_fact(fact)
        for row in () if change.replace else change.rows:
            fact = self._made[row.seq] = self._stamped(row)
            if (tail := tails.pop(row.seq, None)) is None:
                self._pool[row.seq] = fact  # its state comes in a segment
            else:
                entries[row.seq] = Entry.of(fact, tail)
        for seq, tail in tails.items():
            entries[seq] = self._with_tail(entries.get(seq), tail)
        return dict(sorted(entries.items())) if tails else entries

    def _stamped(self, row: Row) -> Fact:
        """Return a new snapshot; a pointer that another one of its minute has is shared."""
        is_minted = ids.tag_of(row.id) == ids.tag_of_place(self._after.pk)
        fact = Fact(row, own=not is_minted)
        if not row.kept or row.labels == EMPTY:
            return fact
        minute = keys.minute_of(row.seq)
        known = self._stamps.get(minute)
        if known is None:
            entries = self._before.entries.values()
            near = [each.fact for each in entries if keys.minute_of(each.seq) == minute]
            known = {pair: at for each in near for pair, at in each.stamps}
            self._stamps[minute] = known
        fact = stamped(fact, known, row.seq)
        known |= fact.stamps
        return fact

    def _with_tail(self, entry: Entry | None, tail: TailRow) -> Entry:
        if entry is not None:
            return entry.with_tail(tail)
        fact = self._replaced.get(tail.seq) or self._reader.fact_at(tail.seq)
        if fact is None:
            raise Corrupt(f"a snapshot is missing. seq=`{tail.seq}`")
        return Entry.of(fact, tail)

    # Segments

    def _segments(self, entries: Mapping[int, Entry]) -> tuple[Named, ...]:
        change, before = self._change, self._before.segments
        ends = {*change.segments_gone, *(row.last for row in change.segments)}
        taken = [named for named in before if named.last in ends]
        kept = [named for named in before if named.last not in ends]
        for facts in self._reader.facts_of(taken):
            self._take(facts)
        made = list[Named]()
        for row in change.segments:
            inside = [fact for seq, fact in self._pool.items() if row.first <= seq <= row.last]
            blob = row.blob, sum_of(row.blob)
            made.append(self._segment((row.first, row.last), inside, blob, entries))
        for named in kept:
            touched = {*change.rows_gone, *self._replaced} - entries.keys()
            if not any(named.first <= seq <= named.last for seq in touched):
                made.append(named)
                continue
            # Its states stay as they are, or cannot be read.
            found = self._reader.stored_segment(named)
            self._pool = {}
            self._take(found.facts)
            if left := list(self._pool.values()):
                made.append(self._segment((named.first, named.last), left, found.blob, entries))
        return tuple(sorted(made, key=lambda named: named.last))

    def _take(self, facts: Iterable[Fact]) -> None:
        gone = self._change.rows_gone
        self._gone += (fact for fact in facts if fact.row.seq in gone)
        left = [fact for fact in facts if fact.row.seq not in gone]
        self._pool |= {fact.row.seq: self._replaced.get(fact.row.seq, fact) for fact in left}

    def _segment(
        self,
        ends: tuple[int, int],
        facts: Sequence[Fact],
        blob: tuple[bytes, str],
        entries: Mapping[int, Entry],
    ) -> Named:
        inside = sorted((f for f in facts if f.row.seq not in entries), key=lambda f: f.row.seq)
        self._left += inside
        name = keys.part_name(ends[1], self._attempt, self._before.w)
        compress = self._compress
        data, named = dump_segment(self._after, name, ends, inside, blob, compress=compress)
        self._parts[keys.segment_key(self._after.key, name)] = data
        return named

    # Notes

    def _notes(self) -> tuple[tuple[NamedPage, ...], Mapping[Address, StoredNote]]:
        change, before, pages = self._change, self._before, self._before.pages
        if not change.notes and not change.notes_gone:
            return pages, before.notes
        notes = dict(before.notes)
        changed = {*change.notes_gone, *((row.on, row.name) for row in change.notes)}
        touched = dict.fromkeys(page for each in changed if (page := self._reader.page_at(each)))
        for address in changed:
            notes.pop(address, None)
        notes |= {(row.on, row.name): StoredNote.of(row) for row in change.notes}
        texts = dict[NamedPage, list[StoredNote]]()
        for page, found in zip(touched, self._reader.notes_of([*touched]), strict=True):
            left = [note for note in found if note.address not in changed]
            if len(left) < len(found):
                texts[page] = left
        if change.new_note and (texts or not changed.isdisjoint(before.notes)):
            raise Taken
        size = sum(len(note.value) + len(note.about) for note in notes.values())
        # A first head names no part: a deletion of its session could remove that before the head
        # is there.
        is_begun = bool(before.w)
        if is_begun and (len(notes) > _INLINE_NOTES_MAX or size > _INLINE_BYTES_MAX):
            with suppress(Corrupt):  # no note is refused because another one is damaged
                return self._paged(pages, texts, notes), {}
        return self._paged(pages, texts, {}), notes

    def _paged(
        self,
        pages: Sequence[NamedPage],
        texts: dict[NamedPage, list[StoredNote]],
        more: Mapping[Address, StoredNote],
    ) -> tuple[NamedPage, ...]:
        """Return the pages with other notes in some of them, and more notes where they belong."""
        groups = dict[NamedPage | None, list[StoredNote]]()
        for address, note in more.items():
            below = [page for page in pages if page.first <= address]
            home = below[-1] if below else next(iter(pages), None)
            groups.setdefault(home, []).append(note)
        again = [page for page in groups if page is not None and page not in texts]
        stored = self._reader.notes_of(again)
        found = {page: [*notes] for page, notes in zip(again, stored, strict=True)} | texts
        made = list[NamedPage]()
        homes: Sequence[NamedPage | None] = pages or ([None] if more else [])
        for home in homes:
            if home is not None and home not in found:
                made.append(home)
                continue
            whole = [*groups.get(home, ()), *(() if home is None else found[home])]
            made += self._pages_of(sorted(whole, key=lambda note: note.address), len(made))
        return tuple(made)

    def _pages_of(self, notes: Sequence[StoredNote], place: int) -> list[NamedPage]:
        made, some, size = list[NamedPage](), list[StoredNote](), 0
        for note in notes:
            if len(some) >= _PAGE_NOTES_MAX or (some and size + len(note.value) > _PAGE_BYTES_MAX):
                made.append(self._page(some, place + len(made)))
                some, size = [], 0
            some.append(note)
            size += len(note.value)
        return [*made, self._page(some, place + len(made))] if some else made

    def _page(self, notes: Sequence[StoredNote], place: int) -> NamedPage:
        name = keys.part_name(place, self._attempt, self._before.w)
        key, compress = self._after.key, self._compress
        data, named = dump_page(key, name, notes, compress=compress)
        self._parts[keys.page_key(key, name)] = data
        return named

    # The rest

    def _ttl_us(self) -> int:
        until, now = self._after.until, self._reader.said_now
        return 0 if until is None or now is None else until - now

    def _pending(self) -> tuple[ScopeKey, int] | None:
        """Return the source of a fork, which may be deleted until it is stored."""
        if self._before.record is not None:
            return None
        for key, other in self._reader.others.items():
            if key.session_id == self._after.key.session_id and other.record is not None:
                return key, other.record.pk
        return None

    def _pointers(self) -> list[str]:
        key, index = self._after.key, self._index
        is_first = self._before.record is None
        found = [keys.line_key(key, line_of(self._after.pk))] if is_first else []
        for row in () if self._change.replace else self._change.rows:
            # The others are shared with a snapshot of the tail, which has written them.
            own = f".{row.seq:016x}"
            fact = self._made[row.seq]
            found += (k for k in index.pointers_of(key, fact) if k.endswith(own))
        known = {each for fact in self._gone for each in index.pointers_of(key, fact)}
        some = (each for fact in self._replaced.values() for each in index.pointers_of(key, fact))
        return found + [each for each in some if each not in known]

    def _unneeded(self, head: Head) -> set[str]:
        if not self._gone:
            return set()
        left = [*self._left, *(entry.fact for entry in head.entries.values())]
        needed = self._index.current(head.key, [*left, *self._neighbours(head)])
        return {*self._index.current(head.key, self._gone)} - needed.keys()

    def _neighbours(self, head: Head) -> list[Fact]:
        """Return the snapshots in other segments that may share a pointer with removed ones."""
        minutes = {keys.minute_of(fact.row.seq) for fact in self._gone if fact.pointers}
        near = [
            each
            for each in head.segments
            if keys.segment_key(head.key, each.name) not in self._parts
            and any(keys.minute_of(each.first) <= m <= keys.minute_of(each.last) for m in minutes)
        ]
        try:
            return [fact for facts in self._reader.facts_of(near) for fact in facts]
        except (Corrupt, Gone):
            return list(self._gone)  # not known: their pointers stay
