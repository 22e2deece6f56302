"""Checks a bucket scope by scope, and repairs what can be repaired without a loss.

Keys are listed before the head is read, as in a sweep. What cannot be read is put aside, and a lost
head is built again. Nothing is removed in a scope whose head is missing or cannot be read: its
segments are all that is left of its history.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import groupby, islice
from typing import Final, NamedTuple, TypeVar

from limpet.backends.buckets.protocol import Listed, Moved, Stored, Sweepable
from limpet.backends.objects import keys
from limpet.backends.objects.building import part_keys
from limpet.backends.objects.files import Gone, Pointed, walk
from limpet.backends.objects.format import (
    Fact,
    Named,
    NamedPage,
    StoredNote,
    StoredSegment,
    line_of,
    parse_page,
)
from limpet.backends.objects.heads import Head, dump_head, nonce_of
from limpet.backends.objects.keys import INDEX, ObjectKey
from limpet.backends.objects.listing import Listings
from limpet.backends.objects.reader import ObjectReader, read_moment
from limpet.core import findings, ids
from limpet.core.codec import decode
from limpet.core.encryption import WrongKeys
from limpet.core.segments import Segment
from limpet.errors import Corrupt, LimpetError, Unsupported
from limpet.model import ANY, Finding, ScopeKey
from limpet.protocol import Stamp
from limpet.storage import TRAIL_BYTES_MAX, Reader, ScopeRecord, StateReader

P = TypeVar("P", Named, NamedPage)
Page = tuple[list[Finding], str | None]
"""Of findings, and where the next one begins."""

_INFO = ("foreign_file", "notes_left", "pointer_dangling", "segment_left", "temporary_left")
_ERROR = ("head_damaged", "head_missing", "keys_wrong", "link_skipped", "note_damaged",
          "notes_missing", "segment_damaged", "segment_missing", "state_damaged")  # fmt: skip
SEVERITIES: Final = {
    **dict.fromkeys(_INFO, "info"),
    **dict.fromkeys(_ERROR, "error"),
    "pointer_missing": "warning",
}
_GRACE_US: Final = 24 * 3600 * 1_000_000  # for pointers that a running write has written
_CHUNK: Final = 256
_STATES: Final = 32  # read at a time
_LEFTOVERS_MAX: Final = 10_000


class Checking(Listings):
    draw: Callable[[], Stamp]
    states: Callable[[Reader], StateReader]

    def check(self, after: str, *, repair: bool, limit: int) -> Page:
        if not after:
            self.files.check_ours()
        part, _, key = after.partition(":")
        steps: dict[str, Callable[[str, bool, int], Page]] = {
            "": self._objects,
            "pointers": self._pointers,
            "leftovers": self._leftovers,
        }
        found, last = steps[part](key, repair, limit)
        if last is not None:
            return found, f"{part}:{last}"
        return found, {"": "pointers:", "pointers": "leftovers:"}.get(part)

    # Objects

    def _objects(self, after: str, repair: bool, limit: int) -> Page:
        page = self.files.bucket.list(keys.ROOT, after=after, limit=limit)
        last = None
        if len(page) == limit:
            # What belongs to the last scope, too: each is checked as a whole, and once.
            folder, last = _folder_of(page[-1]), page[-1].key
            page += walk(self.files.bucket, folder, last)
            last = max(f"{folder}~", page[-1].key) if last.startswith(folder) else last
        found: list[Finding] = []
        for folder, group in groupby(page, key=_folder_of):
            listed = [(each, keys.parse(each.key)) for each in group]
            found += [
                _finding_of("foreign_file", "a file that is not ours", key=each.key)
                for each, key in listed
                if key is None
            ]
            ours = [(each, key) for each, key in listed if key is not None]
            if ours:
                found += self._folder(folder, ours, repair)
        return found, last

    def _folder(
        self, folder: str, listed: Sequence[tuple[Listed, ObjectKey]], repair: bool
    ) -> Iterator[Finding]:
        path = f"{folder}head"
        (stored,) = self.files.bucket.get([path])
        if stored is None:
            yield from self._headless(folder, repair)
            return
        try:
            head = self.files.parsed(stored, path)
        except (Corrupt, Unsupported) as error:
            yield from self._lost(folder, stored, error, repair)
            return
        try:
            if self.files.ciphers.encrypts:
                self.files.read(head.key)  # which knows whether it was put back
        except Corrupt as error:
            yield _damaged_head(head.key, error)
            return
        if head.record is not None:
            yield from self._scope(head, stored.version, repair)
        line = None if head.record is None else line_of(head.record.pk)
        # Deletions have left over other lines.
        others = [(each.key, head.key) for each, key in listed if key.line not in (None, line)]
        yield from self._dangling(others, repair)
        left = self.unnamed(head, [each for each, _ in listed])
        if left and repair:
            self.sweep(head.key, left)
        fact = "a part of a history that a killed process has left over"
        for each in left:
            code = "segment_left" if "/segments/" in each.key else "notes_left"
            yield _finding_of(code, fact, scope=head.key, repaired=repair, key=each.key)

    def _scope(self, head: Head, version: str | None, repair: bool) -> Iterator[Finding]:
        damage = list(self._damage(head))
        if damage:
            # What another process has changed meanwhile is no damage.
            if self._is_current(head):
                lost = [part for _, part in damage if isinstance(part, Named | NamedPage)]
                gone = [seq for seq in head.entries if _builds_on(head, seq, lost)]
                repaired = repair and bool(lost) and self._put_aside(head, version, lost, gone)
                for one, part in damage:
                    yield replace(one, repaired=repaired and part in (*lost, *gone))
            return
        try:
            yield from self._unpointed(ObjectReader(self.files, head.key, head), head, repair)
        except Gone:
            return  # the head has moved

    def _unpointed(self, reader: ObjectReader, head: Head, repair: bool) -> Iterator[Finding]:
        """Report snapshots that the index does not point to."""
        key = head.key
        line = "" if head.record is None else line_of(head.record.pk)
        wanted: dict[str, Fact | None] = dict.fromkeys(keys.line_signs(key, line))
        older = dict[str, list[str]]()  # pointers that older keys have written instead
        for fact in reader.newest_first():
            for current, *others in self.index.spellings(key, fact):
                wanted[current], older[current] = fact, others
        names = list(wanted)
        for start in range(0, len(names), _CHUNK):
            lost = self._missing(names[start : start + _CHUNK])
            spelt = {each: older.get(each, []) for each in lost}
            lost = [each for each in lost if self._missing(spelt[each]) == spelt[each]]
            if not lost or not self._is_current(head):
                continue
            if repair:
                self.index.mend(key, lost, wanted)
            for each in lost:
                found = wanted[each]
                yield _finding_of(
                    "pointer_missing",
                    "a snapshot that the index does not point to",
                    scope=key,
                    id=None if found is None else found.row.id,
                    repaired=repair,
                )

    def _missing(self, some: Sequence[str]) -> list[str]:
        there = self.files.bucket.get(some)
        return [key for key, each in zip(some, there, strict=True) if each is None]

    def _damage(self, head: Head) -> Iterator[tuple[Finding, Named | NamedPage | int | None]]:
        """Return what cannot be read of a scope whose head can.

        With it is the part that is damaged, or the seq of the state. None: it is not to be put
        aside, as others can read it, or more of it can be read.
        """
        unread = list[Named | NamedPage]()
        for part, path in zip(head.parts, part_keys(head), strict=True):
            missing, damaged = "notes_missing", "note_damaged"
            about: dict[str, object] = {"scope": head.key}
            if isinstance(part, Named):
                missing, damaged = "segment_missing", "segment_damaged"
                about |= {"segment": part.name, "snapshots": part.snapshots}
            else:
                about |= {"page": part.name, "notes": part.notes}
            (stored,) = self.files.bucket.get([path])
            try:
                if stored is None:
                    yield _finding_of(missing, "part of a history is missing", **about), part
                    unread.append(part)
                elif not isinstance(found := _read_part(path, stored.data), StoredSegment):
                    yield from _damaged_notes(head.key, found)
            except LimpetError as error:
                is_lost = not isinstance(error, WrongKeys | Unsupported)
                fact = "part of a history fails its check"
                yield _damage_of(damaged, fact, error, **about), part if is_lost else None
                unread.append(part)
        yield from _damaged_notes(head.key, head.notes.values())
        try:
            yield from self._damaged_states(head, unread)
        except Corrupt as error:
            yield _damaged_head(head.key, error), None

    def _damaged_states(
        self, head: Head, unread: Sequence[Named | NamedPage]
    ) -> Iterator[tuple[Finding, int]]:
        reader = ObjectReader(self.files, head.key, head, part_keys(head))
        read = head._replace(segments=tuple(each for each in head.segments if each not in unread))
        facts = ObjectReader(self.files, head.key, read, part_keys(head)).newest_first()
        while chunk := list(islice(facts, _STATES)):
            states = self.states(reader)
            for fact in chunk:
                seq = fact.row.seq
                try:
                    decode(states.of(fact.row))
                except WrongKeys:
                    continue  # what it builds on was reported
                except Corrupt as error:
                    about = {"scope": head.key, "id": fact.row.id, "why": str(error)}
                    yield _finding_of("state_damaged", "a state cannot be read", **about), seq

    def _is_current(self, head: Head) -> bool:
        found = self.files.read(head.key).head
        return found is not None and found.w == head.w

    # Pointers

    def _pointers(self, after: str, repair: bool, limit: int) -> Page:
        page = self.files.bucket.list(INDEX, after=after, limit=limit)
        modified = {each.key: each.modified for each in page}
        nowhere = [
            (each.key, each.scope)
            for each in self.index.followed(page)
            if self._leads_nowhere(each, modified[each.key])
        ]
        found = list(self._dangling(nowhere, repair))
        found += [
            _finding_of("foreign_file", "a file that is not ours", key=each.key)
            for each in page
            if keys.parse_pointer(each.key) is None
        ]
        return found, page[-1].key if len(page) == limit else None

    def _leads_nowhere(self, pointed: Pointed, modified: int) -> bool:
        """Return whether no snapshot needs a pointer, and none of a running write will."""
        if modified >= self.draw().now - _GRACE_US:
            return False
        parts = pointed.pointer.parts

        def read(reader: ObjectReader) -> bool:
            if reader.record is None:
                return True
            if "line" in parts:
                return parts["line"] != line_of(reader.record.pk)
            return pointed.key not in self.pointers(reader)

        try:
            return read_moment(self.files, pointed.scope, read)
        except LimpetError:
            return False  # not known

    def pointers(self, reader: ObjectReader) -> dict[str, str]:
        """Return for each pointer that a scope may have the one that the current key writes."""
        return self.index.current(reader.key, reader.newest_first())

    # Leftovers

    def _leftovers(self, after: str, repair: bool, limit: int) -> Page:
        below = self.files.bucket.below
        if not isinstance(below, Sweepable):
            return [], None
        left = below.leftovers(limit=_LEFTOVERS_MAX)
        mended = bool(repair and left and below.sweep())
        return [
            _finding_of("temporary_left", each.reason, repaired=mended, key=each.key)
            if each.stale
            else _finding_of("foreign_file", each.reason, key=each.key)
            for each in left
        ], None

    def list_damage(self, scope: ScopeKey | None) -> list[Finding]:
        if scope is None:
            return self._list_unlisted()
        try:
            while True:
                head = self.files.read(scope).head
                found = [] if head is None else [each for each, _ in self._damage(head)]
                if not found or head is None or self._is_current(head):
                    return found  # else what another process has changed meanwhile is no damage
        except (Corrupt, Unsupported) as error:
            return [_damage_of("head_damaged", "a head fails its check", error, scope=scope)]

    def _list_unlisted(self) -> list[Finding]:
        found: list[Finding] = []
        parsed = ((each, keys.parse(each.key)) for each in walk(self.files.bucket, keys.ROOT))
        nameless = (each for each, key in parsed if key and not key.is_head and not key.scope)
        for folder, _ in groupby(nameless, key=_folder_of):
            if self.files.bucket.get([f"{folder}head"], first=1) == [None]:
                fact = "its snapshots have no head, and its name is lost with it"
                found.append(_finding_of("head_missing", fact, key=folder))
        below = self.files.bucket.below
        if isinstance(below, Sweepable):
            found += [
                _finding_of("link_skipped", f"it is not read: {left.reason}", key=left.key)
                for left in below.leftovers(limit=_LEFTOVERS_MAX)
                if not left.stale
            ]
        return found

    # What is mended

    def _put_aside(
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

    def _headless(self, folder: str, repair: bool) -> Iterator[Finding]:
        """Report what is there without a head: it is lost, or a deletion was interrupted."""
        listed = self._below(folder)
        if not listed:
            return  # the deletion is over
        scope = self._scope_of(listed)
        if scope is None or any(self.files.is_lost(scope, each.key) for each, _ in listed):
            yield from self._lost(folder, None, None, repair)
            return
        if self.files.bucket.get([f"{folder}head"], first=1) != [None]:
            return  # it has come meanwhile
        yield from self._dangling([(each.key, scope) for each, key in listed if key.line], repair)
        fact = "the rest of a scope that was deleted: delete its session again"
        for each, key in listed:
            if key.part:
                code = "segment_left" if key.segment else "notes_left"
                yield _finding_of(code, fact, scope=scope, key=each.key)

    def _dangling(self, found: Sequence[tuple[str, ScopeKey]], repair: bool) -> Iterator[Finding]:
        """Report pointers that lead nowhere; with `repair` they are removed."""
        if repair and found:
            self.files.delete([path for path, _ in found])
        for path, scope in found:
            fact = "a pointer that leads nowhere"
            yield _finding_of("pointer_dangling", fact, scope=scope, repaired=repair, key=path)

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

    def _lost(
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
            yield _damage_of(code, fact, error, scope=scope, key=f"{folder}head")
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
            signs = keys.line_signs(scope, newest.line)
            self.index.mend(scope, signs, signs)
        yield _finding_of(
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
                part = _read_part(each.key, stored.data)
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


def _read_part(path: str, data: bytes) -> StoredSegment | list[StoredNote]:
    """Return a segment or the notes of a page, or raise Corrupt unless all of it can be read."""
    name = path.rpartition("/")[2]
    if "/segments/" not in path:
        return parse_page(name, data)
    segment = StoredSegment(name, data)
    found = Segment.parse(segment.states)
    if not {fact.row.seq for fact in segment.facts} <= {*found.seqs}:
        raise Corrupt("a segment lacks states")
    return segment


def _builds_on(head: Head, seq: int, some: Iterable[Named | NamedPage]) -> bool:
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


def _damage_of(code: str, fact: str, error: LimpetError | None, **values: object) -> Finding:
    """Return the finding of an object that cannot be read, which need not be damaged."""
    if isinstance(error, WrongKeys):
        code, fact = "keys_wrong", "an object cannot be read with the keys that are given"
    return _finding_of(code, fact, **values, why="" if error is None else str(error))


def _finding_of(code: str, fact: str, **values: object) -> Finding:
    return findings.finding(SEVERITIES[code], code, fact, **values)  # type: ignore[arg-type]


def _damaged_notes(key: ScopeKey, notes: Iterable[StoredNote]) -> Iterator[tuple[Finding, None]]:
    for note in notes:
        try:
            decode(note.row().value)
        except Corrupt as error:
            about = {"scope": key, "id": note.on or None, "note": note.name}
            yield _damage_of("note_damaged", "a note fails its check", error, **about), None


def _folder_of(listed: Listed) -> str:
    return f"{listed.key.partition('/snapshots/')[0]}/snapshots/"


def _damaged_head(scope: ScopeKey, error: LimpetError) -> Finding:
    fact, path = "a head fails its check", keys.head_key(scope)
    return _damage_of("head_damaged", fact, error, scope=scope, key=path)
