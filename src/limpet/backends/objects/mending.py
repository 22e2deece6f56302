"""Repairing a scope: what cannot be read is put aside, and a lost head is built again.

Nothing is removed in a scope whose head is missing or cannot be read: its segments are all that is
left of its history.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, TypeVar

from limpet.backends.buckets.protocol import Listed, Moved, Stored
from limpet.backends.objects import keys
from limpet.backends.objects.building import part_keys
from limpet.backends.objects.files import Gone, walk
from limpet.backends.objects.format import (
    Named,
    NamedPage,
    StoredNote,
    StoredSegment,
    parse_page,
)
from limpet.backends.objects.heads import Head, dump_head, nonce_of
from limpet.backends.objects.keys import ObjectKey
from limpet.backends.objects.listing import Listings
from limpet.backends.objects.reader import ObjectReader
from limpet.core import findings, ids
from limpet.core.encryption import WrongKeys
from limpet.core.segments import Segment
from limpet.errors import Corrupt, LimpetError, Unsupported
from limpet.model import ANY, Finding, ScopeKey
from limpet.protocol import Stamp
from limpet.storage import TRAIL_BYTES_MAX, ScopeRecord

P = TypeVar("P", Named, NamedPage)

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
    draw: Callable[[], Stamp]

    def put_aside(
        self,
        head: Head,
        version: str | None,
        lost: Collection[Named | NamedPage],
        gone: Collection[int],
    ) -> bool:
        """Write a head without parts that cannot be read, nor the states that build on them.

        What is there is kept next to the others: the new head will not name it.
        """
        smaller = head._replace(
            segments=tuple(each for each in head.segments if each not in lost),
            pages=tuple(each for each in head.pages if each not in lost),
            entries={seq: entry for seq, entry in head.entries.items() if seq not in gone},
        )
        paths = [path for path in part_keys(head) if path not in part_keys(smaller)]
        if gone:
            paths.append(keys.head_key(head.key))
        found = zip(paths, self.files.bucket.get(paths), strict=True)
        aside = {path: stored for path, stored in found if stored is not None}
        if not self._replaced(smaller, version, aside):
            return False
        self.sweep(head.key)
        return True

    def _replaced(self, head: Head, expect: str | None, aside: Mapping[str, Stored]) -> bool:
        """Keep what is there next to the others, then write a head that does not name it.

        Return whether the head was still as expected.
        """
        for path, stored in aside.items():
            self.files.bucket.put(_aside(path, stored), stored[0], expect=ANY)
        try:
            data = dump_head(self._recounted(head))
            self.files.bucket.put(keys.head_key(head.key), data, expect=expect)
        except (Moved, Gone):
            return False
        self.files.held.pop(head.key)
        return True

    def _recounted(self, head: Head) -> Head:
        """Return a head of another version, with a record that fits what the head names."""
        reader, record = ObjectReader(self.files, head.key, head), head.record
        if record is None:
            return head
        nonce = bytes.fromhex(self.draw().nonce)
        version = int.from_bytes(nonce, signed=True)
        tip = shown = reader.newest_kept(())
        if record.head is not None and reader.row_at(record.head) is not None:
            shown = record.head
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

    def headless(self, folder: str, repair: bool) -> Iterator[Finding]:
        """Report what is there without a head: it is lost, or a deletion was interrupted."""
        listed = self._below(folder)
        if not listed:
            return  # the deletion is over
        scope = self._scope_of(listed)
        if scope is None or any(self.files.is_lost(scope, each.key) for each, _ in listed):
            yield from self.lost(folder, None, None, repair)
            return
        if self.files.bucket.get([f"{folder}head"], first=1) != [None]:
            return  # it has come meanwhile
        yield from self.dangling([(each.key, scope) for each, key in listed if key.line], repair)
        fact = "the rest of a scope that was deleted: delete its session again"
        for each, key in listed:
            if key.part:
                code = "segment_left" if key.segment else "notes_left"
                yield finding_of(code, fact, scope=scope, key=each.key)

    def dangling(self, found: Sequence[tuple[str, ScopeKey]], repair: bool) -> Iterator[Finding]:
        """Report pointers that lead nowhere; with `repair` they are removed."""
        if repair and found:
            self.files.delete([path for path, _ in found])
        for path, scope in found:
            fact = "a pointer that leads nowhere"
            yield finding_of("pointer_dangling", fact, scope=scope, repaired=repair, key=path)

    def _below(self, folder: str) -> list[tuple[Listed, ObjectKey]]:
        found = ((each, keys.parse(each.key)) for each in walk(self.files.bucket, folder))
        return [(each, key) for each, key in found if key is not None]

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
        return next((each.scope for each in self._readable(listed).segments.values()), None)

    def lost(
        self, folder: str, stored: Stored | None, error: LimpetError | None, repair: bool
    ) -> Iterator[Finding]:
        code = "head_missing" if stored is None else "head_damaged"
        fact = "the head of a scope is missing" if stored is None else "a head fails its check"
        listed = self._below(folder)
        scope, found = self._scope_of(listed), self._readable(listed)
        # What others can read, with its key or as another version, must not be replaced.
        is_locked = any(
            isinstance(each, WrongKeys | Unsupported) for each in (error, *found.errors)
        )
        if not repair or is_locked or not found.segments or scope is None:
            yield damage_of(code, fact, error, scope=scope, key=f"{folder}head")
            return
        aside = found.damaged if stored is None else {**found.damaged, f"{folder}head": stored}
        # One may be there together with the one that took over its content: the newer is chosen.
        order = sorted(found.segments, key=lambda each: (each.last, each.snapshots), reverse=True)
        newest = found.segments[order[0]]
        segments = _disjoint([each for each in order if found.segments[each].line == newest.line])
        minted = (
            fact.row.id
            for each in segments
            for fact in found.segments[each].facts
            if ids.tag_of(fact.row.id) is not None
        )
        last = newest.facts[-1].row
        record = ScopeRecord(
            scope,
            int(newest.line, 16),
            0,
            last=max(ids.place_at(self.draw().now), last.seq),
            floor=max(minted, default=""),
        )
        head = Head(scope, record, "", {}, tuple(segments), tuple(_disjoint(found.pages)))
        rebuilt = self._replaced(head, None if stored is None else stored.version, aside)
        if rebuilt:
            self.index.write(scope, keys.line_signs(scope, newest.line))
        yield finding_of(
            code,
            f"{fact}: it was rebuilt from its segments, and what was saved later is lost",
            scope=scope,
            id=last.id,
            repaired=rebuilt,
            snapshots=sum(each.snapshots for each in segments),
        )

    def _readable(self, listed: Iterable[tuple[Listed, ObjectKey]]) -> "_Readable":
        """Return what can be read of the parts that are there, the last written first."""
        found = _Readable({}, [], {}, [])
        for each, key in sorted(listed, key=lambda pair: -pair[0].modified):
            (stored,) = self.files.bucket.get([each.key]) if key.part else [None]
            if key.part is None or stored is None:
                continue
            try:
                part = read_part(each.key, stored.data)
                if not isinstance(part, StoredSegment):
                    found.pages.append(NamedPage.of(key.part, part, stored.size))
                elif keys.segment_key(part.scope, key.part) != each.key:
                    raise Corrupt("a segment is that of another scope")
                elif part.facts and part.line:
                    found.segments[part.named(key.part)] = part
            except LimpetError as error:
                found.errors.append(error)
                found.damaged[each.key] = stored
        return found


class _Readable(NamedTuple):
    """The parts of a scope: those that can be read, and by key those that cannot, and why."""

    segments: dict[Named, StoredSegment]
    pages: list[NamedPage]
    damaged: dict[str, Stored]
    errors: list[LimpetError]


def read_part(path: str, data: bytes) -> StoredSegment | list[StoredNote]:
    """Return a segment or the notes of a page, or raise Corrupt unless all of it can be read."""
    name = path.rpartition("/")[2]
    if "/segments/" not in path:
        return parse_page(name, data)
    segment = StoredSegment(name, data)
    found = Segment.parse(segment.states)
    if not {fact.row.seq for fact in segment.facts} <= {*found.seqs}:
        raise Corrupt("a segment lacks states")
    return segment


def builds_on(head: Head, seq: int, some: Iterable[Named | NamedPage]) -> bool:
    """Return whether a state of the tail needs one in some segments."""
    while (entry := head.entries.get(seq)) is not None:
        base = entry.tail.base
        if base is None or base >= seq:
            return False
        seq = base
    return any(isinstance(each, Named) and each.first <= seq <= each.last for each in some)


def _aside(path: str, stored: Stored) -> str:
    """Return the key under which what is damaged is kept."""
    folder, _, name = path.partition("/snapshots/")
    if name == "head":
        name = f"head.{blake2b(stored[0], digest_size=8).hexdigest()}"
    return f"{folder}/snapshots/damaged/{name.rpartition('/')[2]}"


def _disjoint(found: Sequence[P]) -> list[P]:
    """Return the parts that do not overlap an earlier one, in the order of their contents."""
    chosen = list[P]()
    for part in found:
        if all(part.last < other.first or part.first > other.last for other in chosen):
            chosen.append(part)
    return sorted(chosen, key=lambda part: part.first)


def damage_of(code: str, fact: str, error: LimpetError | None, **values: object) -> Finding:
    """Return the finding of an object that cannot be read, which need not be damaged."""
    if isinstance(error, WrongKeys):
        code, fact = "keys_wrong", "an object cannot be read with the keys that are given"
    return finding_of(code, fact, **values, why="" if error is None else str(error))


def finding_of(code: str, fact: str, **values: object) -> Finding:
    return findings.finding(SEVERITIES[code], code, fact, **values)  # type: ignore[arg-type]
