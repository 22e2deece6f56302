"""Checks a bucket scope by scope, repairs what can be repaired without a loss, and renews its keys.

Keys are listed before the head is read, as in a sweep.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Final

from limpet.backends.buckets.protocol import Listed, Sweepable
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
)
from limpet.backends.objects.heads import Head
from limpet.backends.objects.keys import INDEX, ObjectKey
from limpet.backends.objects.mending import (
    Mending,
    builds_on,
    damage_of,
    finding_of,
    read_part,
)
from limpet.backends.objects.reader import ObjectReader, read_moment
from limpet.core.codec import decode
from limpet.core.encryption import WrongKeys
from limpet.errors import Corrupt, InvalidInput, LimpetError, Unsupported
from limpet.model import Finding, ScopeKey
from limpet.storage import Reader, StateReader

_GRACE_US: Final = 24 * 3600 * 1_000_000  # for pointers to scopes and lines that do not exist yet
_CHUNK: Final = 256
_STATES: Final = 32  # read at a time
_LEFTOVERS_MAX: Final = 10_000
_LABELS: Final = "labels:"  # before the cursor of the second part of `rekey`


class Checking(Mending):
    states: Callable[[Reader], StateReader]

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
        return found, {"": "pointers:", "pointers": "leftovers:"}.get(part)

    # Objects

    def _objects(self, after: str, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
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
                finding_of("foreign_file", "a file that is not ours", key=each.key)
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
            yield from self.headless(folder, repair)
            return
        try:
            head = self.files.parsed(stored, path)
        except (Corrupt, Unsupported) as error:
            yield from self.lost(folder, stored, error, repair)
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
        yield from self.dangling(others, repair)
        left = self.unnamed(head, [each for each, _ in listed])
        if left and repair:
            self.sweep(head.key, left)
        fact = "a part of a history that a killed process has left over"
        for each in left:
            code = "segment_left" if "/segments/" in each.key else "notes_left"
            yield finding_of(code, fact, scope=head.key, repaired=repair, key=each.key)

    def _scope(self, head: Head, version: str | None, repair: bool) -> Iterator[Finding]:
        damage = list(self._damage(head))
        if damage:
            # What another process has changed meanwhile is no damage.
            if self._is_current(head):
                lost = [part for _, part in damage if isinstance(part, Named | NamedPage)]
                gone = [seq for seq in head.entries if builds_on(head, seq, lost)]
                repaired = repair and bool(lost) and self.put_aside(head, version, lost, gone)
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
            lost = [each for each in lost if not self._has_some(older.get(each, []))]
            if not lost or not self._is_current(head):
                continue
            if repair:
                self.index.write(key, lost)
                if self.files.bucket.get([keys.head_key(key)], first=1) == [None]:
                    self.index.remove(lost)  # deleted meanwhile
            for each in lost:
                found = wanted[each]
                yield finding_of(
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
                    yield finding_of(missing, "part of a history is missing", **about), part
                    unread.append(part)
                elif not isinstance(found := read_part(path, stored.data), StoredSegment):
                    yield from _damaged_notes(head.key, found)
            except LimpetError as error:
                is_lost = not isinstance(error, WrongKeys | Unsupported)
                fact = "part of a history fails its check"
                yield damage_of(damaged, fact, error, **about), part if is_lost else None
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
                    yield finding_of("state_damaged", "a state cannot be read", **about), seq

    def _is_current(self, head: Head) -> bool:
        found = self.files.read(head.key).head
        return found is not None and found.w == head.w

    # Pointers

    def _pointers(self, after: str, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        page = self.files.bucket.list(INDEX, after=after, limit=limit)
        modified = {each.key: each.modified for each in page}
        nowhere = [
            (each.key, each.scope)
            for each in self.index.followed(page)
            if self._leads_nowhere(each, modified[each.key])
        ]
        found = list(self.dangling(nowhere, repair))
        found += [
            finding_of("foreign_file", "a file that is not ours", key=each.key)
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
            is_ahead = int(parts.get("seq") or parts["stamp"], 16) > record.last
            return (is_old or not is_ahead) and pointed.key not in self.pointers(reader)

        try:
            return read_moment(self.files, pointed.scope, read)
        except LimpetError:
            return False  # not known

    def pointers(self, reader: ObjectReader) -> dict[str, str]:
        """Return for each pointer that a scope may have the one that the current key writes."""
        return self.index.current(reader.key, reader.newest_first())

    # Leftovers

    def _leftovers(self, after: str, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        below = self.files.bucket.below
        if not isinstance(below, Sweepable):
            return [], None
        left = below.leftovers(limit=_LEFTOVERS_MAX)
        mended = bool(repair and left and below.sweep())
        return [
            finding_of("temporary_left", each.reason, repaired=mended, key=each.key)
            if each.stale
            else finding_of("foreign_file", each.reason, key=each.key)
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
            return [damage_of("head_damaged", "a head fails its check", error, scope=key)]

    def _list_unlisted(self) -> list[Finding]:
        found: list[Finding] = []
        parsed = ((each, keys.parse(each.key)) for each in walk(self.files.bucket, keys.ROOT))
        nameless = (each for each, key in parsed if key and not key.is_head and not key.scope)
        for folder, _ in groupby(nameless, key=_folder_of):
            if self.files.bucket.get([f"{folder}head"], first=1) == [None]:
                fact = "its snapshots have no head, and its name is lost with it"
                found.append(finding_of("head_missing", fact, key=folder))
        below = self.files.bucket.below
        if isinstance(below, Sweepable):
            found += [
                finding_of("link_skipped", f"it is not read: {left.reason}", key=left.key)
                for left in below.leftovers(limit=_LEFTOVERS_MAX)
                if not left.stale
            ]
        return found

    # New keys

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
        page = self.files.bucket.list(keys.LABELS, after=after, limit=limit)
        modified = {each.key: each.modified for each in page}
        pointed = sorted(self.index.followed(page), key=lambda each: each.scope)
        count = 0
        for scope, group in groupby(pointed, key=lambda each: each.scope):
            try:
                current = read_moment(self.files, scope, self.pointers)
            except (Corrupt, Unsupported):
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


def _damaged_notes(key: ScopeKey, notes: Iterable[StoredNote]) -> Iterator[tuple[Finding, None]]:
    for note in notes:
        try:
            decode(note.row().value)
        except Corrupt as error:
            about = {"scope": key, "id": note.on or None, "note": note.name}
            yield damage_of("note_damaged", "a note fails its check", error, **about), None


def _folder_of(listed: Listed) -> str:
    return f"{listed.key.partition('/snapshots/')[0]}/snapshots/"


def _damaged_head(scope: ScopeKey, error: LimpetError) -> Finding:
    fact, path = "a head fails its check", keys.head_key(scope)
    return damage_of("head_damaged", fact, error, scope=scope, key=path)
