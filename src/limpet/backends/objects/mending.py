"""Repairing a scope: what cannot be read is put aside, and a lost head is built again.

Nothing is removed in a scope whose head is missing or cannot be read: its segments are all that is
left of its history.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Final

from limpet.backends.buckets.protocol import Listed, Moved, Stored
from limpet.backends.objects import keys
from limpet.backends.objects.building import part_keys
from limpet.backends.objects.files import Gone, Held, walk
from limpet.backends.objects.format import Named, NamedPage, StoredSegment, parse_page
from limpet.backends.objects.heads import Head, dump_head, nonce_of
from limpet.backends.objects.keys import ObjectKey
from limpet.backends.objects.listing import Listings
from limpet.backends.objects.reader import ObjectReader
from limpet.core import findings, ids
from limpet.core.encryption import WrongKeys
from limpet.core.segments import Segment
from limpet.errors import Corrupt, LimpetError, Unsupported
from limpet.model import ANY, Finding, ScopeKey
from limpet.storage import TRAIL_BYTES_MAX, ScopeRecord

SEVERITIES: Final = {
    "foreign_file": "info",
    "head_damaged": "error",
    "head_missing": "error",
    "keys_wrong": "error",
    "link_skipped": "error",
    "note_damaged": "error",
    "notes_left": "info",
    "notes_missing": "error",
    "pointer_dangling": "info",
    "pointer_missing": "warning",
    "segment_damaged": "error",
    "segment_left": "info",
    "segment_missing": "error",
    "state_damaged": "error",
    "temporary_left": "info",
}


class Mending(Listings):
    def put_aside(
        self, held: Held, lost: Collection[Named | NamedPage], gone: Collection[int]
    ) -> bool:
        """Write a head without parts that cannot be read, nor the states that build on them.

        What is there is kept next to the others: the new head will not name it.
        """
        head = held.head
        if head is None or head.record is None:
            return False
        smaller = head._replace(
            segments=tuple(each for each in head.segments if each not in lost),
            pages=tuple(each for each in head.pages if each not in lost),
            entries={seq: entry for seq, entry in head.entries.items() if seq not in gone},
        )
        paths = [path for path in part_keys(head) if path not in part_keys(smaller)]
        if gone:
            paths.append(keys.head_key(head.key))
        for path, stored in zip(paths, self.files.bucket.get(paths), strict=True):
            if stored is not None:
                self.files.bucket.put(_aside(path, stored), stored[0], expect=ANY)
        try:
            now = self._recounted(smaller, head.record)
            self.files.bucket.put(keys.head_key(head.key), dump_head(now), expect=held.version)
        except (Moved, Gone):
            return False  # it has changed meanwhile
        self.files.held.pop(head.key)
        self.sweep(head.key)
        return True

    def _recounted(self, head: Head, record: ScopeRecord) -> Head:
        """Return a head with a record, of another version, that fits what the head names."""
        reader = ObjectReader(self.files, head.key, head._replace(record=record))
        nonce = bytes.fromhex(self.draw().nonce)
        version = int.from_bytes(nonce, signed=True)
        tip = reader.newest_kept(())
        shown = record.head if record.head is not None and self._shows(reader, record.head) else tip
        notes = len(head.notes) + sum(page.notes for page in head.pages)
        after = record._replace(
            version=version,
            head=shown,
            tip=tip,
            notes=notes,
            tail_count=len(head.entries),
            tail_bytes=sum(len(entry.body) for entry in head.entries.values()),
            offsets=record.offsets if tip == record.tip else None,
            trail=(nonce + record.trail)[:TRAIL_BYTES_MAX],
            epoch=version,
        )
        return head._replace(record=after, w=nonce_of(version))

    def _shows(self, reader: ObjectReader, seq: int) -> bool:
        return reader.row_at(seq) is not None

    def sweep(self, key: ScopeKey, listed: Sequence[Listed] | None = None) -> int:
        """Remove the segments and pages that the head does not name and never will.

        Return their bytes. Listed before the head is read: what is listed, not named, and not
        written to replace the present head can no longer be committed. Nothing is removed without
        a head.
        """
        if listed is None:
            listed = list(walk(self.files.bucket, keys.scope_prefix(key)))
        head = self.files.read(key).head if listed else None
        doomed = [] if head is None else self.unnamed(head, listed)
        if doomed:
            self.files.delete([each.key for each in doomed])
        return sum(each.size for each in doomed)

    def unnamed(self, head: Head, listed: Sequence[Listed]) -> list[Listed]:
        """Return the segments and pages that this head does not name, and no later one can."""
        named = set(part_keys(head))
        found = ((each, keys.parse(each.key)) for each in listed if each.key not in named)
        base = f".after-{head.w}"
        return [each for each, key in found if key and key.part and not key.part.endswith(base)]

    # A head that is lost

    def headless(
        self, folder: str, listed: Sequence[tuple[Listed, ObjectKey]], repair: bool
    ) -> Iterator[Finding]:
        """Report what is there without a head: it is lost, or a deletion was interrupted."""
        scope = self._scope_of(listed)
        signs = [each.key for each, key in listed if key.line or key.segment]
        if scope is None or any(self._is_lost(scope, each) for each in signs):
            yield from self.lost(folder, None, None, repair)
            return
        if self.files.bucket.get([f"{folder}head"], first=1) != [None]:
            return  # it has come meanwhile
        for each, key in listed:
            if key.line:
                if repair:
                    self.files.delete([each.key])
                yield dangling(each.key, scope, repair)
            elif key.part:
                code = "segment_left" if key.segment else "notes_left"
                fact = "the rest of a scope that was deleted: delete its session again"
                yield finding_of(code, fact, scope=scope, key=each.key)

    def _is_lost(self, scope: ScopeKey, path: str) -> bool:
        try:
            return self.files.is_lost(scope, path)
        except Unsupported:
            return True

    def _scope_of(self, listed: Sequence[tuple[Listed, ObjectKey]]) -> ScopeKey | None:
        """Return the scope of a folder; where keys do not have all of its name, others have it."""
        for _, key in listed:
            if key.scope is not None:
                return key.scope
            if key.line:  # the sign that the line lives has it
                pointed = self.index.walk(keys.line_prefix(ids.tag_of_place(int(key.line, 16))))
                scopes = (found.scope for found in pointed)
                scope = next((it for it in scopes if keys.scope_prefix(it) == key.folder), None)
                if scope is not None:
                    return scope
        found, _, _ = self._readable([each for each, key in listed if key.segment])
        return found[0][1].scope if found else None

    def lost(
        self, folder: str, stored: Stored | None, error: LimpetError | None, repair: bool
    ) -> Iterator[Finding]:
        code = "head_missing" if stored is None else "head_damaged"
        fact = "the head of a scope is missing" if stored is None else "a head fails its check"
        below = [(each, keys.parse(each.key)) for each in walk(self.files.bucket, folder)]
        found, damaged, is_locked = self._readable([each for each, _ in below])
        # What others can read, with its key or as another version, must not be replaced.
        pages = None
        with suppress(WrongKeys, Unsupported):
            pages = self._pages_below(folder)
        is_locked = is_locked or pages is None or isinstance(error, WrongKeys | Unsupported)
        scope = self._scope_of([(each, key) for each, key in below if key])
        if not repair or is_locked or not found or scope is None:
            yield damage_of(code, fact, error, scope=scope, key=f"{folder}head")
            return
        for path, each in damaged.items():
            # Kept next to the others: the new head will not name it.
            self.files.bucket.put(_aside(path, each), each[0], expect=ANY)
        chosen = _disjoint(found)
        rebuilt = self._rebuilt(scope, chosen, pages or (), stored)
        last = chosen[-1][1].facts[-1].row
        yield finding_of(
            code,
            f"{fact}: it was rebuilt from its segments, and what was saved later is lost",
            scope=scope,
            id=last.id,
            repaired=rebuilt,
            snapshots=sum(len(segment.facts) for _, segment in chosen),
        )

    def _readable(
        self, listed: Sequence[Listed]
    ) -> tuple[list[tuple[Named, StoredSegment]], dict[str, Stored], bool]:
        """Return the segments, by key those that are damaged, and whether others can read some."""
        found, damaged, is_locked = list[tuple[Named, StoredSegment]](), dict[str, Stored](), False
        for each in listed:
            key = keys.parse(each.key)
            if key is None or not key.segment:
                continue
            (stored,) = self.files.bucket.get([each.key])
            if stored is None:
                continue
            try:
                segment = StoredSegment(key.segment, stored.data)
                verify_segment(key.segment, stored.data)
                if keys.segment_key(segment.scope, key.segment) != each.key:
                    raise Corrupt("a segment is that of another scope")
                if segment.facts and segment.line:
                    found.append((segment.named(key.segment), segment))
            except LimpetError as error:
                is_locked = is_locked or isinstance(error, WrongKeys | Unsupported)
                damaged[each.key] = stored
        return found, damaged, is_locked

    def _rebuilt(
        self,
        scope: ScopeKey,
        chosen: Sequence[tuple[Named, StoredSegment]],
        pages: tuple[NamedPage, ...],
        stored: Stored | None,
    ) -> bool:
        newest, stamp = chosen[-1][1], self.draw()
        names = (fact.row.id for _, segment in chosen for fact in segment.facts)
        record = ScopeRecord(
            scope,
            int(newest.line, 16),
            0,
            last=max(ids.place_at(stamp.now), newest.facts[-1].row.seq),
            floor=max((id for id in names if ids.tag_of(id) is not None), default=""),
        )
        head = Head(scope, record, "", {}, tuple(named for named, _ in chosen), pages)
        if stored is not None:
            self.files.bucket.put(_aside(keys.head_key(scope), stored), stored[0], expect=ANY)
        try:
            expect = None if stored is None else stored.version
            data = dump_head(self._recounted(head, record))
            self.files.bucket.put(keys.head_key(scope), data, expect=expect)
        except Moved:
            return False  # it has changed meanwhile
        self.index.write(
            scope, [keys.line_key(scope, newest.line), keys.started_key(scope, newest.line)]
        )
        return True

    def _pages_below(self, folder: str) -> tuple[NamedPage, ...]:
        """Return the pages of notes that are not damaged, of those that overlap the newest."""
        chosen = list[NamedPage]()
        listed = walk(self.files.bucket, f"{folder}notes/")
        for each in sorted(listed, key=lambda each: -each.modified):
            key, (stored,) = keys.parse(each.key), self.files.bucket.get([each.key])
            if key is None or key.page is None or stored is None:
                continue
            try:
                notes = parse_page(key.page, stored.data)
            except WrongKeys:
                raise
            except Corrupt:
                continue
            page = NamedPage(key.page, notes[0].address, notes[-1].address, len(notes), stored.size)
            if all(page.last < other.first or page.first > other.last for other in chosen):
                chosen.append(page)
        return tuple(sorted(chosen, key=lambda page: page.first))


def verify_segment(name: str, data: bytes) -> None:
    """Raise Corrupt unless all of a segment can be read."""
    segment = StoredSegment(name, data)
    found = Segment.parse(segment.states)
    if not {fact.row.seq for fact in segment.facts} <= {*found.seqs}:
        raise Corrupt("a segment lacks states")


def is_within(seq: int, some: Iterable[Named | NamedPage]) -> bool:
    return any(isinstance(each, Named) and each.first <= seq <= each.last for each in some)


def builds_on(head: Head, seq: int, some: Iterable[Named | NamedPage]) -> bool:
    """Return whether a state of the tail needs one in some segments."""
    while (entry := head.entries.get(seq)) is not None:
        base = entry.tail.base
        if base is None or base >= seq:
            return False
        seq = base
    return is_within(seq, some)


def _aside(path: str, stored: Stored) -> str:
    """Return the key under which what is damaged is kept."""
    folder, _, name = path.partition("/snapshots/")
    if name == "head":
        name = f"head.{blake2b(stored[0], digest_size=8).hexdigest()}"
    return f"{folder}/snapshots/damaged/{name.rpartition('/')[2]}"


def _disjoint(
    found: Sequence[tuple[Named, StoredSegment]],
) -> list[tuple[Named, StoredSegment]]:
    """Return the segments of one line that do not overlap, oldest first.

    A segment may be there together with the one that took over its content: the newer is chosen.
    """
    order = sorted(found, key=lambda each: (each[0].last, each[0].snapshots), reverse=True)
    chosen = list[tuple[Named, StoredSegment]]()
    for named, segment in order:
        first = chosen[-1][0].first if chosen else ids.SEQ_MAX
        if named.last < first and (not chosen or segment.line == chosen[0][1].line):
            chosen.append((named, segment))
    return chosen[::-1]


def damage_of(code: str, fact: str, error: LimpetError | None, **values: object) -> Finding:
    """Return the finding of an object that cannot be read, which need not be damaged."""
    if isinstance(error, WrongKeys):
        code, fact = "keys_wrong", "an object cannot be read with the keys that are given"
    return finding_of(code, fact, **values, why="" if error is None else str(error))


def finding_of(code: str, fact: str, **values: object) -> Finding:
    return findings.finding(SEVERITIES[code], code, fact, **values)  # type: ignore[arg-type]


def dangling(path: str, scope: ScopeKey, repair: bool) -> Finding:
    fact = "a pointer that leads nowhere"
    return finding_of("pointer_dangling", fact, scope=scope, repaired=repair, key=path)
