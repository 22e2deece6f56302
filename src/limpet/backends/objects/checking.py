"""Checks a bucket scope by scope, repairs what can be repaired without a loss, and renews keys.

Keys are listed before the head is read, as in a sweep. Nothing is removed in a scope whose head is
missing or cannot be read: its segments are all that is left of its history.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import groupby, islice
from typing import Final, TypeVar

from limpet.backends.buckets.protocol import Listed, Moved, Stored, Sweepable
from limpet.backends.objects import keys
from limpet.backends.objects.building import part_keys
from limpet.backends.objects.files import Gone, Held, walk
from limpet.backends.objects.format import (
    Fact,
    Head,
    Named,
    NamedPage,
    StoredNote,
    StoredSegment,
    dump_head,
    line_of,
    nonce_of,
    parse_page,
)
from limpet.backends.objects.index import Pointed
from limpet.backends.objects.keys import INDEX, ObjectKey
from limpet.backends.objects.listing import Listings
from limpet.backends.objects.reader import ObjectReader
from limpet.core import findings, ids
from limpet.core.codec import decode
from limpet.core.encryption import WrongKeys
from limpet.core.segments import Segment
from limpet.errors import Corrupt, InvalidInput, LimpetError, Unsupported
from limpet.model import ANY, Finding, ScopeKey
from limpet.storage import TRAIL_BYTES_MAX, ScopeRecord

T = TypeVar("T")

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
_GRACE_US: Final = 24 * 3600 * 1_000_000  # for pointers to scopes and lines that do not exist yet
_CHUNK: Final = 256
_STATES: Final = 32  # read at a time
_LEFTOVERS_MAX: Final = 10_000
_LABELS: Final = "labels:"  # before the cursor of the second part of `rekey`


class Checking(Listings):
    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        if not after:
            self.files.check_ours()
        part, _, key = after.partition(":")
        steps: dict[str, Callable[[str, bool, int], tuple[list[Finding], str | None]]] = {
            "": self._objects,
            "pointers": self._pointers,
            "leftovers": self._leftovers,
        }
        found, last = steps[part](key, repair, limit)
        if last is not None:
            return found, f"{part}:{last}"
        names = list(steps)
        following = names.index(part) + 1
        return found, f"{names[following]}:" if following < len(names) else None

    # Objects

    def _objects(self, after: str, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        page = self.files.bucket.list(keys.ROOT, after=after, limit=limit)
        found: list[Finding] = []
        for folder, group in groupby(page, key=_folder_of):
            listed = [(each, keys.parse(each.key)) for each in group]
            found += [
                _finding("foreign_file", "a file that is not ours", key=each.key)
                for each, key in listed
                if key is None
            ]
            ours = [(each, key) for each, key in listed if key is not None]
            if ours:
                found += self._folder(folder, ours, repair)
        return found, page[-1].key if len(page) == limit else None

    def _folder(
        self, folder: str, listed: Sequence[tuple[Listed, ObjectKey]], repair: bool
    ) -> Iterator[Finding]:
        parts = [each for each, key in listed if key.part]
        started = [(each.key, key) for each, key in listed if key.line]
        has_head = any(key.is_head for _, key in listed)
        path = f"{folder}head"
        (stored,) = self.files.bucket.get([path])
        try:
            held = Held() if stored is None else self.files.parsed(stored, path)
        except LimpetError as error:
            if has_head:
                yield from self._lost(folder, stored, error, repair)
            return
        if stored is None:
            below = walk(self.files.bucket, folder)
            everything = [(each, key) for each in below if (key := keys.parse(each.key))]
            if everything and everything[0][0].key == listed[0][0].key:  # else it was reported
                yield from self._headless(folder, everything, repair)
            return
        if held.head is None:
            return
        try:
            if self.files.ciphers.encrypts:
                self.files.read(held.head.key)  # which knows whether it was put back
        except Corrupt as error:
            if has_head:
                yield _damaged_head(held.head.key, error)
            return
        if has_head:
            yield from self._scope(held, repair)
        yield from self._started(started, held.head, repair)
        yield from self._left(held.head, parts, repair)

    def _started(
        self, listed: Sequence[tuple[str, ObjectKey]], head: Head, repair: bool
    ) -> Iterator[Finding]:
        """Report lines that are not that of the head: deletions have left them over."""
        line = None if head.record is None else line_of(head.record.pk)
        for path, key in listed:
            if key.line != line:
                if repair:
                    self.files.delete([path])
                yield _dangling(path, head.key, repair)

    def _scope(self, held: Held, repair: bool) -> Iterator[Finding]:
        head = held.head
        if head is None or head.record is None:
            return
        damage = list(self._damage(head))
        if damage:
            # What another process has changed meanwhile is no damage.
            if self._is_current(head):
                lost = [part for _, part in damage if isinstance(part, Named | NamedPage)]
                gone = [seq for seq in head.entries if _builds_on(head, seq, lost)]
                repaired = repair and bool(lost) and self._put_aside(held, lost, gone)
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
        first = [keys.line_key(key, line), keys.started_key(key, line)]
        wanted: dict[str, Fact | None] = dict.fromkeys(first)
        older = dict[str, list[str]]()  # pointers that older keys have written instead
        for fact in reader.newest_first():
            for current, *others in self.index.spellings(key, fact):
                wanted[current], older[current] = fact, others
        names = list(wanted)
        for start in range(0, len(names), _CHUNK):
            lost = self._missing(names[start : start + _CHUNK])
            lost = [each for each in lost if not self._has_some(older.get(each, []))]
            if not lost or not self._is_current(head):
                continue
            if repair:
                self.index.write(key, lost)
                if self.files.bucket.get([keys.head_key(key)], first=1) == [None]:
                    self.index.remove(lost)  # deleted meanwhile
            for each in lost:
                found = wanted[each]
                yield _finding(
                    "pointer_missing",
                    "a snapshot that the index does not point to",
                    scope=key,
                    id=None if found is None else found.row.id,
                    repaired=repair,
                )

    def _missing(self, some: Sequence[str]) -> list[str]:
        there = self.files.bucket.get(some)
        return [key for key, each in zip(some, there, strict=True) if each is None]

    def _has_some(self, some: Sequence[str]) -> bool:
        return len(self._missing(some)) < len(some)

    def _damage(self, head: Head) -> Iterator[tuple[Finding, Named | NamedPage | int | None]]:
        """Return what cannot be read of a scope whose head can.

        With it is the part that is damaged, or the seq of the state. None: it is not to be put
        aside, as others can read it, or more of it can be read.
        """
        unread = list[Named]()
        for named in head.segments:
            values = {"scope": head.key, "segment": named.name, "snapshots": named.snapshots}
            path = keys.segment_key(head.key, named.name)
            found = self._damage_of(path, "segment_missing", "segment_damaged", values, _verify)
            if found is not None:
                unread.append(named)
                yield found[0], named if found[1] else None
        for page in head.pages:
            values = {"scope": head.key, "page": page.name, "notes": page.notes}
            path, notes = keys.page_key(head.key, page.name), list[StoredNote]()
            take = partial(_take_page, notes)
            found = self._damage_of(path, "notes_missing", "note_damaged", values, take)
            if found is not None:
                yield found[0], page if found[1] else None
            yield from _damaged_notes(head.key, notes)
        yield from _damaged_notes(head.key, head.notes.values())
        try:
            yield from self._damaged_states(head, unread)
        except Corrupt as error:
            yield _damaged_head(head.key, error), None

    def _damaged_states(self, head: Head, unread: Sequence[Named]) -> Iterator[tuple[Finding, int]]:
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
                    yield _finding("state_damaged", "a state cannot be read", **about), seq

    def _damage_of(
        self,
        path: str,
        missing: str,
        damaged: str,
        values: Mapping[str, object],
        verify: Callable[[str, bytes], object],
    ) -> tuple[Finding, bool] | None:
        """Return what is wrong with a part, and whether nobody can read it."""
        (stored,) = self.files.bucket.get([path])
        if stored is None:
            return _finding(missing, "part of a history is missing", **values), True
        try:
            verify(path.rpartition("/")[2], stored.data)
        except LimpetError as error:
            found = _damaged(damaged, "part of a history fails its check", error, **values)
            return found, not isinstance(error, WrongKeys | Unsupported)
        return None

    def _put_aside(
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

    def _is_current(self, head: Head) -> bool:
        found = self.files.read(head.key).head
        return found is not None and found.w == head.w

    def _left(self, head: Head, listed: Sequence[Listed], repair: bool) -> Iterator[Finding]:
        left = self.unnamed(head, listed)
        if left and repair:
            self.sweep(head.key, left)
        for each in left:
            fact = "a part of a history that a killed process has left over"
            code = "segment_left" if "/segments/" in each.key else "notes_left"
            yield _finding(code, fact, scope=head.key, repaired=repair, key=each.key)

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

    def _headless(
        self, folder: str, listed: Sequence[tuple[Listed, ObjectKey]], repair: bool
    ) -> Iterator[Finding]:
        """Report what is there without a head: it is lost, or a deletion was interrupted."""
        scope = self._scope_of(listed)
        signs = [each.key for each, key in listed if key.line or key.segment]
        if scope is None or any(self._is_lost(scope, each) for each in signs):
            yield from self._lost(folder, None, None, repair)
            return
        if self.files.bucket.get([f"{folder}head"], first=1) != [None]:
            return  # it has come meanwhile
        for each, key in listed:
            if key.line:
                if repair:
                    self.files.delete([each.key])
                yield _dangling(each.key, scope, repair)
            elif key.part:
                code = "segment_left" if key.segment else "notes_left"
                fact = "the rest of a scope that was deleted: delete its session again"
                yield _finding(code, fact, scope=scope, key=each.key)

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
                scope = next((found.scope for found in pointed if found.line == key.line), None)
                if scope is not None and keys.scope_prefix(scope) == key.folder:
                    return scope
        found, _, _ = self._readable([each for each, key in listed if key.segment])
        return found[0][1].scope if found else None

    def _lost(
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
            yield _damaged(code, fact, error, scope=scope, key=f"{folder}head")
            return
        for path, each in damaged.items():
            # Kept next to the others: the new head will not name it.
            self.files.bucket.put(_aside(path, each), each[0], expect=ANY)
        chosen = _disjoint(found)
        rebuilt = self._rebuilt(scope, chosen, pages or (), stored)
        last = chosen[-1][1].facts[-1].row
        yield _finding(
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
                _verify(key.segment, stored.data)
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

    # Pointers

    def _pointers(self, after: str, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        page = self.files.bucket.list(INDEX, after=after, limit=limit)
        modified = {each.key: each.modified for each in page}
        dangling = [
            each
            for each in self.index.followed(page)
            if self._leads_nowhere(each, modified[each.key])
        ]
        if repair and dangling:
            self.files.delete([each.key for each in dangling])
        found = [_dangling(each.key, each.scope, repair) for each in dangling]
        found += [
            _finding("foreign_file", "a file that is not ours", key=each.key)
            for each in page
            if keys.parse_pointer(each.key) is None
        ]
        return found, page[-1].key if len(page) == limit else None

    def _leads_nowhere(self, pointed: Pointed, modified: int) -> bool:
        """Return whether no snapshot needs a pointer, and none of a running write will."""
        parts = pointed.pointer.parts

        def read(reader: ObjectReader) -> bool:
            record, is_old = reader.record, modified < self.draw().now - _GRACE_US
            if record is None:
                return is_old
            if "line" in parts:
                return is_old and parts["line"] != line_of(record.pk)
            if int(parts.get("seq") or parts["stamp"], 16) > record.last:
                return is_old and not self._is_pointed(reader, pointed.key)
            return not self._is_pointed(reader, pointed.key)

        try:
            return self.reading(pointed.scope, read)
        except LimpetError:
            return False  # not known

    def _is_pointed(self, reader: ObjectReader, key: str) -> bool:
        return key in self.index.unused(reader.key, list(reader.newest_first()))

    # Leftovers

    def _leftovers(self, after: str, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        below = self.files.bucket.below
        if not isinstance(below, Sweepable):
            return [], None
        left = below.leftovers(limit=_LEFTOVERS_MAX)
        mended = bool(repair and left and below.sweep())
        return [
            _finding("temporary_left", each.reason, repaired=mended, key=each.key)
            if each.stale
            else _finding("foreign_file", each.reason, key=each.key)
            for each in left
        ], None

    def list_damage(self, key: ScopeKey | None) -> list[Finding]:
        if key is None:
            return self._list_unlisted()
        try:
            while True:
                head = self.files.read(key).head
                found = [] if head is None else [each for each, _ in self._damage(head)]
                if not found or head is None or self._is_current(head):
                    return found  # else what another process has changed meanwhile is no damage
        except (Corrupt, Unsupported) as error:
            return [_damaged("head_damaged", "a head fails its check", error, scope=key)]

    def _list_unlisted(self) -> list[Finding]:
        found: list[Finding] = []
        parsed = ((each, keys.parse(each.key)) for each in walk(self.files.bucket, keys.ROOT))
        nameless = (each for each, key in parsed if key and not key.is_head and not key.scope)
        for folder, _ in groupby(nameless, key=_folder_of):
            if self.files.bucket.get([f"{folder}head"], first=1) == [None]:
                fact = "its snapshots have no head, and its name is lost with it"
                found.append(_finding("head_missing", fact, key=folder))
        below = self.files.bucket.below
        if isinstance(below, Sweepable):
            found += [
                _finding("link_skipped", f"it is not read: {left.reason}", key=left.key)
                for left in below.leftovers(limit=_LEFTOVERS_MAX)
                if not left.stale
            ]
        return found

    # Keys

    def rekey(self, after: str, *, limit: int) -> tuple[int, str | None]:
        """Encrypt with the current keys, object by object, then label by label.

        An object is replaced by compare-and-set, so that a write in between is kept. The key of a
        label's pointer depends on the key of its session: the pointers that older keys have written
        are replaced, the new one being written first. Each page may be repeated.
        """
        if not self.files.ciphers.encrypts:
            raise InvalidInput("the store was opened without keys: give keys= or keys_file=")
        if after.startswith(_LABELS):
            count, last = self._rekey_labels(after.removeprefix(_LABELS), limit)
            return count, None if last is None else f"{_LABELS}{last}"
        page = self.files.bucket.list(keys.ROOT, after=after, limit=limit)
        count = self.files.bucket.renew([each.key for each in page if keys.is_content(each.key)])
        return count, page[-1].key if len(page) == limit else _LABELS

    def _rekey_labels(self, after: str, limit: int) -> tuple[int, str | None]:
        page = self.files.bucket.list(keys.labels_prefix(), after=after, limit=limit)
        modified = {each.key: each.modified for each in page}
        pointed = sorted(self.index.followed(page), key=lambda each: each.scope)
        count = 0
        for scope, group in groupby(pointed, key=lambda each: each.scope):
            try:
                current = self.reading(scope, self._current_pointers)
            except LimpetError:
                continue  # what cannot be read is left alone
            old = [each for each in group if current.get(each.key) != each.key]
            moved = [each.key for each in old if each.key in current]
            self.index.write(scope, sorted({current[key] for key in moved}))
            # One that leads nowhere may be the label of a snapshot that was not encrypted.
            lost = (each for each in old if each.key not in current)
            moved += [each.key for each in lost if self._leads_nowhere(each, modified[each.key])]
            self.files.delete(moved)
            count += len(moved)
        return count, page[-1].key if len(page) == limit else None

    def _current_pointers(self, reader: ObjectReader) -> dict[str, str]:
        """Return for each pointer that a scope may have the one that the current key writes."""
        facts = reader.newest_first()
        spelt = (each for fact in facts for each in self.index.spellings(reader.key, fact))
        return {key: each[0] for each in spelt for key in each}


def _verify(name: str, data: bytes) -> None:
    """Raise Corrupt unless all of a segment can be read."""
    segment = StoredSegment(name, data)
    found = Segment.parse(segment.states)
    if not {fact.row.seq for fact in segment.facts} <= {*found.seqs}:
        raise Corrupt("a segment lacks states")


def _take_page(notes: list[StoredNote], name: str, data: bytes) -> None:
    notes += parse_page(name, data)


def _damaged_notes(key: ScopeKey, notes: Iterable[StoredNote]) -> Iterator[tuple[Finding, None]]:
    for note in notes:
        try:
            decode(note.row().value)
        except Corrupt as error:
            about = {"scope": key, "id": note.on or None, "note": note.name}
            yield _damaged("note_damaged", "a note fails its check", error, **about), None


def _is_within(seq: int, some: Iterable[Named | NamedPage]) -> bool:
    return any(isinstance(each, Named) and each.first <= seq <= each.last for each in some)


def _builds_on(head: Head, seq: int, some: Iterable[Named | NamedPage]) -> bool:
    """Return whether a state of the tail needs one in some segments."""
    while (entry := head.entries.get(seq)) is not None:
        base = entry.tail.base
        if base is None or base >= seq:
            return False
        seq = base
    return _is_within(seq, some)


def _folder_of(listed: Listed) -> str:
    return f"{listed.key.partition('/snapshots/')[0]}/snapshots/"


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


def _dangling(path: str, scope: ScopeKey, repair: bool) -> Finding:
    fact = "a pointer that leads nowhere"
    return _finding("pointer_dangling", fact, scope=scope, repaired=repair, key=path)


def _damaged_head(scope: ScopeKey, error: LimpetError) -> Finding:
    fact, path = "a head fails its check", keys.head_key(scope)
    return _damaged("head_damaged", fact, error, scope=scope, key=path)


def _damaged(code: str, fact: str, error: LimpetError | None, **values: object) -> Finding:
    """Return the finding of an object that cannot be read, which need not be damaged."""
    if isinstance(error, WrongKeys):
        code, fact = "keys_wrong", "an object cannot be read with the keys that are given"
    return _finding(code, fact, **values, why="" if error is None else str(error))


def _finding(code: str, fact: str, **values: object) -> Finding:
    return findings.finding(SEVERITIES[code], code, fact, **values)  # type: ignore[arg-type]
