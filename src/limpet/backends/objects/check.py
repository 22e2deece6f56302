"""Checks a bucket scope by scope, and repairs what can be repaired without a loss.

Keys are listed before the head is read, as in a sweep. Nothing is removed in a scope whose head is
missing or cannot be read: its segments are all that is left of its history.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import groupby
from typing import Final

from limpet.backends.buckets.protocol import Listed, Moved, Stored, Sweepable
from limpet.backends.objects import keys
from limpet.backends.objects.encrypted import Unreadable
from limpet.backends.objects.index import Pointed
from limpet.backends.objects.keys import INDEX, ObjectKey
from limpet.backends.objects.objects import (
    Fact,
    Head,
    Named,
    Segment,
    dump_segment,
    parse_segment,
    unpack,
)
from limpet.backends.objects.scopes import parse_note
from limpet.backends.objects.storage import Beaten, Gone, Held, unnamed, walk
from limpet.backends.objects.writer import Part
from limpet.core import findings, ids
from limpet.core.encryption import WrongKeys
from limpet.errors import Corrupt, LimpetError, Unsupported
from limpet.model import ANY, Finding, ScopeKey

SEVERITIES: Final = {
    "foreign_file": "info",
    "head_damaged": "error",
    "head_missing": "error",
    "keys_wrong": "error",
    "link_skipped": "error",
    "note_damaged": "error",
    "pointer_dangling": "info",
    "pointer_missing": "warning",
    "segment_damaged": "error",
    "segment_left": "info",
    "segment_missing": "error",
    "temporary_left": "info",
}
_GRACE_US = 24 * 3600 * 1_000_000  # for pointers to scopes and lines that do not exist yet
_CHUNK = 256
_LEFTOVERS_MAX = 10_000


class Checking(Part):
    def check(self, after: str, *, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        if not after:
            self._storage.check_ours()
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
        page = self._bucket.list(keys.ROOT, after=after, limit=limit)
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
        for each, key in listed:
            if key.note is not None:
                yield from self._note(each.key, key.scope)
        segments = [each for each, key in listed if key.segment]
        started = [(each.key, key) for each, key in listed if key.line]
        has_head = any(key.is_head for _, key in listed)
        if not segments and not has_head and not started:
            return
        path = f"{folder}head"
        (stored,) = self._bucket.get([path])
        try:
            held = Held() if stored is None else self._storage.parsed_head(stored, path)
        except LimpetError as error:
            if has_head:
                yield from self._lost(folder, stored, error, repair)
            return
        if held.head is None:
            if stored is None and segments and self._is_first(folder, segments[0]):
                yield from self._headless(folder, segments, repair)
            elif stored is None and not self._bucket.list(f"{folder}segments/", limit=1):
                yield from self._started(started, None, repair)
            return
        if has_head:
            yield from self._scope(held, repair)
        yield from self._started(started, held.head, repair)
        yield from self._left(held.head, segments, repair)

    def _started(
        self, listed: Sequence[tuple[str, ObjectKey]], head: Head | None, repair: bool
    ) -> Iterator[Finding]:
        """Report lines without a head: it is lost, or a deletion has left them over."""
        for path, key in listed:
            if head is not None and head.line == key.line:
                continue
            # Where the key has not all of its name, the sign that the line lives has.
            scope = key.scope or next(
                (e.scope for e in self._writer.index.walk(keys.ALIVE) if e.line == key.line), None
            )
            if scope is not None and self._storage.is_lost(scope, path):
                fact = "the head of a scope is missing, and all that it held"
                yield _finding("head_missing", fact, scope=scope, key=f"{key.folder}head")
                continue
            if repair:
                self._bucket.delete([path])
            fact = "a pointer that leads nowhere"
            yield _finding("pointer_dangling", fact, scope=scope, repaired=repair, key=path)

    def _is_first(self, folder: str, segment: Listed) -> bool:
        """Return whether a segment is the first of its folder, and still there."""
        first = self._bucket.list(f"{folder}segments/", limit=1)
        return [each.key for each in first] == [segment.key]

    def _note(self, path: str, scope: ScopeKey | None) -> Iterator[Finding]:
        (stored,) = self._bucket.get([path])
        try:
            if stored is not None:
                parse_note(path, stored.data)
        except Corrupt as error:
            fact = "a note fails its check"
            yield _damage("note_damaged", fact, error, scope=scope, key=path)

    def _scope(self, held: Held, repair: bool) -> Iterator[Finding]:
        head = held.head
        if head is None:
            return
        damage = list(self.damage(held))
        if damage:
            # What another process has changed meanwhile is no damage.
            if self._is_current(head):
                broken = [named for _, named in damage if named is not None]
                repaired = repair and bool(broken) and self._put_aside(held, broken)
                for one, named in damage:
                    yield replace(one, repaired=repaired and named is not None)
            return
        facts = [entry.fact for entry in head.entries]
        try:
            for each in self._storage.read_facts(head.scope, head.segments):
                facts += each
        except Gone:
            return  # the head has moved
        index = self._writer.index
        first = [*keys.line_keys(head.scope, head.line), keys.started_key(head.scope, head.line)]
        wanted: dict[str, Fact | None] = dict.fromkeys(first)
        older = dict[str, list[str]]()  # pointers that older keys have written instead
        for fact in facts:
            for current, *others in index.spellings(head.scope, fact):
                wanted[current], older[current] = fact, others
        names = list(wanted)
        for start in range(0, len(names), _CHUNK):
            lost = self._missing(names[start : start + _CHUNK])
            lost = [key for key in lost if not self._has_some(older.get(key, []))]
            if not lost or not self._is_current(head):
                continue
            if repair:
                index.write(head.scope, lost)
                if self._bucket.get([keys.head_key(head.scope)], first=1) == [None]:
                    index.remove(lost)  # deleted meanwhile
            for key in lost:
                found = wanted[key]
                yield _finding(
                    "pointer_missing",
                    "a snapshot that the index does not point to",
                    scope=head.scope,
                    id=None if found is None else found.row.id,
                    repaired=repair,
                )

    def _missing(self, some: Sequence[str]) -> list[str]:
        there = self._bucket.get(some)
        return [key for key, each in zip(some, there, strict=True) if each is None]

    def _has_some(self, some: Sequence[str]) -> bool:
        return len(self._missing(some)) < len(some)

    def damage(self, held: Held) -> Iterator[tuple[Finding, Named | None]]:
        """Return what cannot be read of a scope whose head can, and the segment that is damaged."""
        head = held.head
        if head is None:
            return
        try:
            held.whole()
        except Corrupt:
            fact = "the last states of a scope fail their check"
            yield _finding("head_damaged", fact, scope=head.scope), None
        for named in head.segments:
            values = {"scope": head.scope, "segment": named.name, "snapshots": named.snapshots}
            try:
                (stored,) = self._bucket.get([keys.segment_key(head.scope, named.name)])
                if stored is None:
                    found = _finding("segment_missing", "part of a history is missing", **values)
                    yield found, named
                    continue
                segment = parse_segment(unpack("segment", stored.data))
                segment.chain.text(len(segment.chain.deltas))
                if len(segment.facts) != named.snapshots or segment.scope != head.scope:
                    raise Corrupt("another segment")
            except Corrupt as error:
                fact = "part of a history fails its check"
                found = _damage("segment_damaged", fact, error, **values)
                # What only lacks its key can still be read by others.
                yield found, None if isinstance(error, WrongKeys) else named

    def _put_aside(self, held: Held, lost: Sequence[Named]) -> bool:
        """Write a head without segments that cannot be read, nor the last states if they need one.

        What is there is kept next to the others: the new head will not name it.
        """
        head, doomed = held.head, dict[int, Fact]()
        if head is None:
            return False
        paths = [keys.segment_key(head.scope, each.name) for each in lost]
        try:
            self._storage.base_of(held.whole() or head)
        except (Corrupt, Gone):
            paths.append(keys.head_key(head.scope))
            doomed = {entry.row.seq: entry.fact for entry in head.entries}
        for path, stored in zip(paths, self._bucket.get(paths), strict=True):
            if stored is not None:
                self._bucket.put(_aside(path, stored), stored[0], expect=ANY)
        nonce = self._storage.draw().nonce
        try:
            change = self._writer.edit(held, nonce, doomed=doomed, changed={}, lost=lost)
            self._writer.store(held, change)
        except (Beaten, Corrupt):
            return False  # it has changed meanwhile, or more is damaged
        return True

    def _is_current(self, head: Head) -> bool:
        found = self._storage.read_head(head.scope).head
        return found is not None and found.w == head.w

    def _left(self, head: Head, listed: Sequence[Listed], repair: bool) -> Iterator[Finding]:
        left = unnamed(head, listed)
        if left and repair:
            self._storage.sweep(head.scope, left)
        for each in left:
            fact = "a segment that a killed process has left over"
            yield _finding("segment_left", fact, scope=head.scope, repaired=repair, key=each.key)

    # A head that is lost

    def _headless(self, folder: str, listed: Sequence[Listed], repair: bool) -> Iterator[Finding]:
        found, _ = self._readable(listed[:1])
        scope = found[0][1].scope if found else None
        if scope is None or self._storage.is_lost(scope, listed[0].key):
            yield from self._lost(folder, None, None, repair)
            return
        fact = "the rest of a scope that was deleted: delete its session again"
        yield _finding("segment_left", fact, scope=scope, key=listed[0].key)

    def _lost(
        self, folder: str, stored: Stored | None, error: LimpetError | None, repair: bool
    ) -> Iterator[Finding]:
        code = "head_missing" if stored is None else "head_damaged"
        fact = "the head of a scope is missing" if stored is None else "a head fails its check"
        listed = list(walk(self._bucket, f"{folder}segments/"))
        found, damaged = self._readable(listed)
        # What only lacks its key can still be read by others: it must not be replaced.
        objects = [stored, *damaged.values()]
        is_locked = any(isinstance(each, Unreadable) and each.is_locked for each in objects)
        key = keys.parse(f"{folder}head")
        scope = None if key is None else key.scope
        if scope is None and found:
            scope = found[0][1].scope
        if not repair or is_locked or not found or scope is None:
            yield _damage(code, fact, error, scope=scope, key=f"{folder}head")
            return
        for path, each in damaged.items():
            # Kept next to the others: the new head will not name it.
            self._bucket.put(_aside(path, each), each[0], expect=ANY)
        chosen = _disjoint(found)
        rebuilt = self._rebuilt(scope, chosen, stored)
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
    ) -> tuple[list[tuple[str, Segment]], dict[str, Stored]]:
        """Return the segments by name, and by key what is none or cannot be read."""
        found, damaged = list[tuple[str, Segment]](), dict[str, Stored]()
        for each in listed:
            key = keys.parse(each.key)
            (stored,) = self._bucket.get([each.key])
            if stored is None or key is None or not key.segment:
                continue
            try:
                found.append((key.segment, parse_segment(unpack("segment", stored.data))))
            except LimpetError:
                damaged[each.key] = stored
        return found, damaged

    def _rebuilt(
        self, scope: ScopeKey, chosen: Sequence[tuple[str, Segment]], stored: Stored | None
    ) -> bool:
        stamp = self._storage.draw()
        named = []
        for name, segment in chosen:
            _, each, _ = dump_segment(name, segment, compress=False)
            named.append(each)
        newest = chosen[-1][1].facts[-1].row
        names = (fact.row.id for _, segment in chosen for fact in segment.facts)
        head = Head(
            scope,
            chosen[-1][1].line,
            stamp.nonce,
            last=max(ids.place_at(stamp.now), newest.seq),
            floor=max((id for id in names if ids.tag_of(id) is not None), default=""),
            shown=(newest.id, newest.seq),
            segments=tuple(named),
        )
        if stored is not None:
            self._bucket.put(_aside(keys.head_key(scope), stored), stored[0], expect=ANY)
        data, _ = self._storage.dump(head)
        try:
            expect = None if stored is None else stored.version
            self._bucket.put(keys.head_key(scope), data, expect=expect)
        except Moved:
            return False  # it has changed meanwhile
        self._writer.index.write(scope, keys.line_keys(scope, head.line))
        self._writer.index.write(scope, [keys.started_key(scope, head.line)])
        return True

    # Pointers

    def _pointers(self, after: str, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        page = self._bucket.list(INDEX, after=after, limit=limit)
        modified = {each.key: each.modified for each in page}
        dangling = [
            each
            for each in self._writer.index.followed(page)
            if self._leads_nowhere(each, modified[each.key])
        ]
        if repair and dangling:
            self._bucket.delete([each.key for each in dangling])
        fact = "a pointer that leads nowhere"
        found = [
            _finding("pointer_dangling", fact, scope=p.scope, repaired=repair, key=p.key)
            for p in dangling
        ]
        found += [
            _finding("foreign_file", "a file that is not ours", key=each.key)
            for each in page
            if keys.parse_pointer(each.key) is None
        ]
        return found, page[-1].key if len(page) == limit else None

    def _leads_nowhere(self, pointed: Pointed, modified: int) -> bool:
        """Return whether no snapshot needs a pointer, and none of a running write will."""
        scope, parts = pointed.scope, pointed.pointer.parts

        def read(held: Held) -> bool:
            head, is_old = held.head, modified < self._storage.draw().now - _GRACE_US
            if head is None:
                return is_old
            if "line" in parts:
                return is_old and parts["line"] != head.line
            if int(parts.get("seq") or parts["stamp"], 16) > head.last:
                return False
            facts = list(self._writer.history.newest_first(head))
            return pointed.key not in self._writer.index.unused(scope, facts)

        try:
            return self._storage.reading(scope, read)
        except LimpetError:
            return False  # not known

    # Leftovers

    def _leftovers(self, after: str, repair: bool, limit: int) -> tuple[list[Finding], str | None]:
        below = self._bucket.below
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

    # Space

    def compact(self) -> int:
        if isinstance(self._bucket.below, Sweepable):
            self._bucket.below.sweep()
        return sum(
            self._storage.sweep(each.scope)
            for each in self._scopes.walk()
            if isinstance(each.head, Head)
        )

    def list_damage(self, scope: ScopeKey) -> list[Finding]:
        try:
            while True:
                held = self._storage.read_head(scope)
                found = [each for each, _ in self.damage(held)]
                if not found or held.head is None or self._is_current(held.head):
                    break  # else what another process has changed meanwhile is no damage
        except (Corrupt, Unsupported) as error:
            found = [_damage("head_damaged", "a head fails its check", error, scope=scope)]
        for each in walk(self._bucket, keys.all_notes_prefix(scope)):
            found += self._note(each.key, scope)
        return found

    def list_unlisted(self) -> list[Finding]:
        found: list[Finding] = []
        parsed = ((each, keys.parse(each.key)) for each in walk(self._bucket, keys.ROOT))
        unnamed = (
            each for each, key in parsed if key and not (key.is_head or key.note or key.scope)
        )
        for folder, _ in groupby(unnamed, key=_folder_of):
            if self._bucket.get([f"{folder}head"], first=1) == [None]:
                fact = "its snapshots have no head, and its name is lost with it"
                found.append(_finding("head_missing", fact, key=folder))
        below = self._bucket.below
        if isinstance(below, Sweepable):
            found += [
                _finding("link_skipped", f"it is not read: {left.reason}", key=left.key)
                for left in below.leftovers(limit=_LEFTOVERS_MAX)
                if not left.stale
            ]
        return found


def _folder_of(listed: Listed) -> str:
    return f"{listed.key.partition('/snapshots/')[0]}/snapshots/"


def _aside(path: str, stored: Stored) -> str:
    """Return the key under which a damaged head or segment is kept."""
    folder, _, name = path.partition("/snapshots/")
    if name == "head":
        name = f"head.{blake2b(stored[0], digest_size=8).hexdigest()}"
    return f"{folder}/snapshots/damaged/{name.removeprefix('segments/')}"


def _disjoint(found: Sequence[tuple[str, Segment]]) -> list[tuple[str, Segment]]:
    """Return the segments of one line that do not overlap, oldest first.

    A segment may be there together with the one that took over its content: the newer is chosen.
    """
    order = sorted(found, key=lambda each: (_range(each[1])[1], len(each[1].facts)), reverse=True)
    chosen: list[tuple[str, Segment]] = []
    for name, segment in order:
        first = _range(chosen[-1][1])[0] if chosen else ids.SEQ_MAX
        if _range(segment)[1] < first and (not chosen or segment.line == chosen[0][1].line):
            chosen.append((name, segment))
    return chosen[::-1]


def _range(segment: Segment) -> tuple[int, int]:
    return segment.facts[0].row.seq, segment.facts[-1].row.seq


def _damage(code: str, fact: str, error: LimpetError | None, **values: object) -> Finding:
    """Return the finding of an object that cannot be read, which need not be damaged."""
    if isinstance(error, WrongKeys):
        code, fact = "keys_wrong", "an object cannot be read with the keys that are given"
    return _finding(code, fact, **values, why="" if error is None else str(error))


def _finding(code: str, fact: str, **values: object) -> Finding:
    return findings.finding(SEVERITIES[code], code, fact, **values)  # type: ignore[arg-type]
