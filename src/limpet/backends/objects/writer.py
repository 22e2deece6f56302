"""The parts of every write of a head: pointers, segments, the commit, and what it leaves over.

    1. pointers that the new head needs
    2. segments that it names, under keys of their own
    3. the head, by compare-and-set: this is the commit
    4. the segments and pointers that are no longer needed are removed

A write that is refused in step 3 removes what it wrote in the steps before; what a killed process
leaves is swept by the next one that writes or removes a segment.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from limpet.backends.objects import edits, keys
from limpet.backends.objects.encrypted import EncryptedBucket
from limpet.backends.objects.history import History
from limpet.backends.objects.index import Index
from limpet.backends.objects.objects import Fact, Head, Named, Segment
from limpet.backends.objects.scopes import Scopes, parse_note
from limpet.backends.objects.storage import Beaten, Gone, Held, Storage, walk
from limpet.core import ids
from limpet.errors import Corrupt, LimpetError, Unavailable
from limpet.model import ScopeKey
from limpet.protocol import Stamp


class Change(NamedTuple):
    """A head to be stored, with the segments written for it.

    `pointers` are new, `unneeded` ones are removed after the commit. With `must_sweep` the call
    fails if what was removed cannot be removed from storage.
    """

    head: Head
    newest: bytes | None = None
    pointers: Sequence[str] = ()
    unneeded: Collection[str] = ()
    written: tuple[str, ...] = ()
    must_sweep: bool = False


class Writer:
    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.history = History(storage)
        self.index = Index(storage)

    def begin(self, scope: ScopeKey, held: Held, stamp: Stamp) -> tuple[Head, int]:
        """Return the head to build on, a new one if there is none, and the place of the write."""
        floor, last, _ = self.storage.given(scope)
        head = held.head
        if head is None:
            # Without a key nothing is written, no pointer either.
            self.storage.ciphers.of(scope.session_id).label("", "")
            # Each attempt begins another line, so that a delayed one is not taken for this one.
            head = Head(scope, ids.mint(stamp.now, self.storage.draw().bits, ""), "")
        head = replace(head, floor=max(floor, head.floor), last=max(last, head.last))
        return head, ids.place(stamp.now, head.last, stamp.bits)

    def store(self, held: Held, change: Change) -> Held:
        """Store a head, and what it needs; the tail goes into a segment when it is due."""
        head, scope = change.head, change.head.scope
        pointers = list(change.pointers)
        if held.head is None:
            pointers += keys.line_keys(scope, head.line)
        written = change.written
        head = replace(head, paid=head.paid + held.size)
        data, head = self.storage.dump(head)
        base_bytes = 0 if head.base_frame is None else len(head.base_frame.stored)
        try:
            if held.head is not None and held.head.ended is not None:
                self.clear_notes(scope, held.head.ended[1])
            self._point(scope, pointers)
            if held.head is not None and edits.is_due(head, len(data) - base_bytes, base_bytes):
                # A segment that cannot be read must not stop saves.
                with suppress(Corrupt, Gone):
                    head = self._flushed(held.head, head)
                    written = (*written, head.segments[-1].name)
                    data, head = self.storage.dump(head)
            stored = self.storage.swap_head(held, head, change.newest, data)
        except (Beaten, LimpetError) as error:
            if not _may_be_stored(error):
                self.storage.drop_segments(scope, written)
                # A create whose answer was lost may still be stored, and needs its pointers.
                self.index.remove(pointers if held.head is not None else ())
            raise
        if held.head is None or held.head.line != head.line:
            # From now on the loss of the head can be told from a write that never came.
            started = keys.started_key(scope, head.line)
            with suppress(Unavailable):
                self.index.write(scope, [started])
                if self.storage.bucket.get([keys.head_key(scope)]) == [None]:
                    self.index.remove([started])  # it was deleted in between
        self._clean(held.head, head, change, is_needed=bool(written) or change.must_sweep)
        return stored

    def clear_notes(self, scope: ScopeKey, before: int) -> None:
        """Finish the deletion of a scope: remove its notes from before that time."""
        listed = walk(self.storage.bucket, keys.all_notes_prefix(scope))
        for each in listed:
            (stored,) = self.storage.bucket.get([each.key])
            with suppress(Corrupt):  # what cannot be read stays, and is reported
                if stored is not None and parse_note(each.key, stored.data).row.updated_at < before:
                    self.storage.bucket.delete([each.key])

    def _point(self, scope: ScopeKey, pointers: Sequence[str]) -> None:
        try:
            self.index.write(scope, pointers)
        except Unavailable as error:
            raise Unavailable(str(error), outcome_known=True) from error  # nothing is committed

    def _clean(self, before: Head | None, head: Head, change: Change, *, is_needed: bool) -> None:
        self.index.remove(change.unneeded)
        if not is_needed:
            return
        try:
            self.storage.sweep_after(head, before)
        except LimpetError as error:
            if change.must_sweep:
                raise Unavailable(
                    "it is stored, but the bytes that it replaces could not be removed: repeat it, "
                    f"or run `limpet compact`. session=`{head.scope.session_id}`",
                    outcome_known=False,
                ) from error

    def _flushed(self, before: Head, head: Head) -> Head:
        """Move the older part of the tail into a segment; return the head that names it."""
        last = head.segments[-1] if head.segments else None
        absorbed = None
        if last is not None and edits.absorbs(last):
            with suppress(Corrupt, Gone):
                (absorbed,) = self.storage.read_segments(head.scope, [last])
        segment, new = edits.flushed(head, self.storage.base_of(head), absorbed)
        name = keys.segment_name(segment.facts[-1].row.seq, head.w, before.w)
        named, frame = self.storage.put_segment(head, name, segment)
        others = head.segments if absorbed is None else head.segments[:-1]
        if len(frame.stored) > edits.BASE_BYTES_MAX:
            return replace(new, segments=(*others, named), base=None, base_frame=None)
        return replace(new, segments=(*others, named), base_frame=frame)

    def emptied(self, head: Head, nonce: str, gone: Collection[Fact]) -> Change:
        """Return the head of a scope without snapshots; `gone` are those that it had."""
        empty = replace(
            head.rewritten(nonce),
            shown=None,
            paid=0,
            segments=(),
            offsets=None,
            is_rooted=False,
            entries=(),
            base=None,
            base_frame=None,
        )
        return Change(empty, unneeded=self.index.unused(head.scope, gone), must_sweep=True)

    def edit(
        self,
        held: Held,
        nonce: str,
        *,
        doomed: Mapping[int, Fact],
        changed: Mapping[int, tuple[Fact, bytes | None]],
        lost: Collection[Named] = (),
    ) -> Change:
        """Return a head without some snapshots, by `seq`, and with others changed.

        The segments concerned are written again under new names. One of which nothing is left is
        not read; nor are those that are `lost`.
        """
        head = held.whole()
        if head is None:
            raise Beaten
        empty = [each for each in head.segments if each in lost or _is_empty(each, doomed)]
        some = [each for each in head.segments if _concerns(each, doomed, changed)]
        concerned = [each for each in some if each not in empty]
        tail = {entry.row.seq for entry in head.entries}
        is_moved = any(each in empty or each in concerned for each in head.segments[-1:])
        is_moved = is_moved or not tail.isdisjoint([*doomed, *changed])
        base = self.storage.base_of(head) if is_moved and tail - doomed.keys() else b""
        segments = self.storage.read_segments(head.scope, concerned)
        again = self._rewritten(head, nonce, concerned, segments, doomed, changed)
        last = head.segments[-1] if head.segments else None
        base_is_gone = last in empty or any(
            each == last and again[each][1].chain.first != segment.chain.first
            for each, segment in zip(concerned, segments, strict=True)
        )
        new_head = edits.without(head, base, doomed.keys(), base_is_gone=base_is_gone)
        if any(entry.row.seq in changed for entry in new_head.entries):
            new_head = edits.replaced(new_head, new_head.base or base, changed)
        kept = [each for each in head.segments if each not in empty]
        kept = [again[each][0] if each in again else each for each in kept]
        new_head = replace(new_head.rewritten(nonce), segments=tuple(kept))
        if head.shown is not None and _is_gone(head.shown[1], doomed, lost):
            newest = self.history.newest_kept(new_head)
            shown = None if newest is None else (newest.id, newest.seq)
            new_head = replace(new_head, shown=shown, offsets=None)
        before = {f.row.seq: f for s in segments for f in s.facts}
        before |= {entry.row.seq: entry.fact for entry in head.entries}
        gone = [*doomed.values(), *(before[seq] for seq in changed)]
        left = [fact for _, segment in again.values() for fact in segment.facts]
        left += [entry.fact for entry in new_head.entries]
        left += self._neighbours(head, [*concerned, *empty], gone)
        return Change(
            new_head,
            pointers=self._new_pointers(head.scope, changed, before),
            unneeded=self.index.unused(head.scope, gone, left),
            written=tuple(named.name for named, _ in again.values()),
            must_sweep=True,
        )

    def _rewritten(
        self,
        head: Head,
        nonce: str,
        concerned: Sequence[Named],
        segments: Sequence[Segment],
        doomed: Mapping[int, Fact],
        changed: Mapping[int, tuple[Fact, bytes | None]],
    ) -> dict[Named, tuple[Named, Segment]]:
        """Write segments again, under new names; return them by their present ones."""
        written: dict[Named, tuple[Named, Segment]] = {}
        try:
            for named, segment in zip(concerned, segments, strict=True):
                new = edits.edited(segment, doomed.keys(), changed)
                name = keys.segment_name(new.facts[-1].row.seq, nonce, head.w)
                written[named] = self.storage.put_segment(head, name, new)[0], new
        except LimpetError:
            self.storage.drop_segments(head.scope, [each.name for each, _ in written.values()])
            raise
        return written

    def _new_pointers(
        self,
        scope: ScopeKey,
        changed: Mapping[int, tuple[Fact, bytes | None]],
        before: Mapping[int, Fact],
    ) -> list[str]:
        found: list[str] = []
        for seq, (fact, _) in changed.items():
            known = set(self.index.pointers_of(scope, before[seq]))
            found += [key for key in self.index.pointers_of(scope, fact) if key not in known]
        return found

    def _neighbours(
        self, head: Head, concerned: Sequence[Named], gone: Collection[Fact]
    ) -> list[Fact]:
        """Return the snapshots in other segments that may share a pointer with removed ones."""
        minutes = {keys.minute_of(fact.row.seq) for fact in gone if fact.pointers}
        near = [
            each
            for each in head.segments
            if each not in concerned
            and any(keys.minute_of(each.first) <= m <= keys.minute_of(each.last) for m in minutes)
        ]
        try:
            return [fact for facts in self.storage.read_facts(head.scope, near) for fact in facts]
        except (Corrupt, Gone):
            return list(gone)  # not known: their pointers stay


class Part:
    """A part of the engine: some of its verbs, over the same storage."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._storage = writer.storage
        self._history = writer.history
        self._scopes = Scopes(writer.storage)

    @property
    def _bucket(self) -> EncryptedBucket:
        return self._storage.bucket


def _may_be_stored(error: Exception) -> bool:
    return isinstance(error, Unavailable) and not error.outcome_known


def _is_empty(named: Named, doomed: Collection[int]) -> bool:
    return sum(named.first <= seq <= named.last for seq in doomed) == named.snapshots


def _is_gone(seq: int, doomed: Collection[int], lost: Collection[Named]) -> bool:
    return seq in doomed or any(each.first <= seq <= each.last for each in lost)


def _concerns(named: Named, doomed: Collection[int], changed: Collection[int]) -> bool:
    return any(named.first <= seq <= named.last for seq in (*doomed, *changed))
