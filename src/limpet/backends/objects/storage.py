"""The storage over buckets: directories and object stores.

One object for each scope, the head, is its only authority: to replace it by compare-and-set is the
commit of every change. It has the newest snapshots with their states; older ones are in segments,
and notes that are too many for it in pages: immutable objects under keys of their own.

    1. pointers that the change needs
    2. segments and pages that its head names
    3. the head, by compare-and-set: this is the commit
    4. what the head no longer names is removed

A change that is refused in step 3 removes what it wrote in the steps before; what a killed process
leaves is swept by the next one that writes or removes a segment.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final, TypeVar

from limpet.backends.buckets.protocol import Bucket, Listed, Moved, Sweepable
from limpet.backends.objects import building, keys
from limpet.backends.objects.building import Builder, Built
from limpet.backends.objects.checking import Checking
from limpet.backends.objects.files import PAGE, Files, Gone, Held, Index, walk
from limpet.backends.objects.format import line_of
from limpet.backends.objects.heads import Head, dump_head
from limpet.backends.objects.reader import ObjectReader, read_moment
from limpet.backends.objects.watching import ObjectListener, Watching
from limpet.backends.support.backoff import Backoff
from limpet.core.encryption import NO_KEYS, Ciphers
from limpet.core.limits import CONTENTION_WAIT_S_MAX
from limpet.core.rows import Row
from limpet.errors import Corrupt, InvalidInput, LimpetError, Unavailable, Unsupported
from limpet.model import ANY, ScopeKey
from limpet.protocol import Clock, Stamp
from limpet.storage import (
    Change,
    LostAnswer,
    Reader,
    ScopeQuery,
    ScopeRecord,
    StateReader,
    TailRow,
    is_at,
)

T = TypeVar("T")

_POLL_S: Final = 1.0
_PASSES_MAX: Final = 100  # over a session that other writers keep writing to
_SIGN_TRIES: Final = 3
_PAUSE_S_MIN: Final = 0.000_5
_PAUSE_S_MAX: Final = 0.05
_LABELS: Final = "labels:"  # before the cursor of the second part of `rekey`


class ObjectStorage(Checking, Watching):
    """Implements `storage.Storage` over a bucket."""

    blocking = True
    capabilities = frozenset({"durable", "index"})

    def __init__(
        self,
        bucket: Bucket,
        *,
        clock: Clock,
        states: Callable[[Reader], StateReader],
        draw: Callable[[], Stamp],
        compress: bool = False,
        poll_s: float = _POLL_S,
        ciphers: Ciphers = NO_KEYS,
    ) -> None:
        """With `compress` the facts of segments and the pages of notes are compressed, too.

        `poll_s` is the interval of polling where there are no notifications.
        """
        self.ciphers = ciphers
        self.files = Files(bucket, clock=clock, ciphers=ciphers)
        self.index = Index(self.files)
        self.draw = draw
        self.states = states
        self.compress = compress
        self._poll_s = poll_s
        super().__init__()

    # Reading

    def read(self, key: ScopeKey, use: Callable[[Reader], T], seen: ScopeRecord | None = None) -> T:
        held = None if seen is None else self.files.held.get(key)
        head = held.head if held is not None and is_at(held.record, seen) else None
        return read_moment(self.files, key, use, head)

    def read_head(self, key: ScopeKey) -> tuple[ScopeRecord, Row | None, TailRow | None] | None:
        def use(reader: ObjectReader) -> tuple[ScopeRecord, Row | None, TailRow | None] | None:
            if reader.record is None:
                return None
            row = reader.head_row()
            return reader.record, row, None if row is None else reader.tail_row(row.seq)

        return read_moment(self.files, key, use)

    # Writing

    def write(self, change: Change) -> bool:
        key, held = change.key, self.files.held.get(change.key)
        if held is None or not is_at(held.record, change.before):
            held = self.files.read(key)
            if not is_at(held.record, change.before):
                return False
        try:
            return self._commit(held, change, ObjectReader(self.files, key, held.head))
        except Gone:
            self.files.held.pop(key)
            return False

    def transact(self, key: ScopeKey, decide: Callable[[Reader], tuple[Change | None, T]]) -> T:
        backoff = Backoff(
            self.files.clock,
            first_s=_PAUSE_S_MIN,
            longest_s=_PAUSE_S_MAX,
            wait_s=CONTENTION_WAIT_S_MAX,
        )
        attempts, in_time, lost = 0, True, set[str]()
        while True:
            held = self._read_to_change(key, is_first=not attempts)
            attempts += 1
            reader = ObjectReader(self.files, key, held.head, lost)
            try:
                change, result = decide(reader)
                if change is None:
                    return result
                if not in_time:
                    raise Unavailable(
                        "other writers kept changing the scope first: try again later. "
                        f"waited_s=`{CONTENTION_WAIT_S_MAX:g}`"
                    )
                if self._commit(held, change, reader):
                    return result
            except Gone as gone:
                lost.add(str(gone))
            in_time = backoff.sleep()

    def _read_to_change(self, key: ScopeKey, *, is_first: bool) -> Held:
        """Read a head, and finish what another writer may have left undone."""
        try:
            held = self.files.read(key)
            head = held.head
            if head is not None and head.pending is not None:
                self._settle(held)
                return self.files.read(key)
            if head is not None and head.unswept:
                self.sweep(key)
                held = held._replace(head=head._replace(unswept=False))
            return held
        except Unavailable as cause:
            if is_first:
                raise
            raise LostAnswer from cause  # the refusal before may have been false

    def _commit(self, held: Held, change: Change, reader: ObjectReader) -> bool:
        """Store a change behind the head that it was made for; False if that has been replaced."""
        key = change.key
        if change.after is None:
            return change.before is None or self._bury(held, reader)
        if change.segments and held.version is None:
            # A first head names no part: a deletion of its session could remove that before the
            # head is there.
            try:
                held = self._put_head(Head(key, None, self.draw().nonce), held)
            except Moved:
                return False
            reader = ObjectReader(self.files, key, held.head)
        attempt, compress = self.draw().nonce, self.compress
        built = Builder(
            self.index, change, change.after, reader, attempt=attempt, compress=compress
        ).built()
        self.files.ciphers.of(key.session_id).check_key()  # before anything is written
        self._write_parts(key, built)
        self.files.lease_seen_us(change.after)  # or the first renewal would change nothing
        try:
            now = self._put_head(built.head, held)
        except Moved:
            self._take_back(key, reader.head.w, built)
            return False
        except Unavailable:
            self._drop_parts(built)
            raise
        self.files.keep(key, now)
        try:
            if not self._settle(now):
                return False
        except Unavailable as cause:
            raise Unavailable(
                f"the fork is stored, and may vanish with its source: {cause}", outcome_known=False
            ) from cause
        self._finish(held, now, built)
        return True

    def _put_head(self, head: Head, before: Held) -> Held:
        """Replace a head by compare-and-set: the commit of every change.

        Raises:
            Moved: another one is there. LostAnswer: this one may be there, or still come.
        """
        data = dump_head(head)
        try:
            version = self.files.bucket.put(keys.head_key(head.key), data, expect=before.version)
        except (Moved, Unavailable) as cause:
            self.files.held.pop(head.key)
            if isinstance(cause, Moved) or cause.outcome_known:
                raise
            raise LostAnswer from cause
        return Held(head, version, len(data))

    def _write_parts(self, key: ScopeKey, built: Built) -> None:
        try:
            self.index.write(key, built.pointers)
            for path, data in built.parts.items():
                self.files.bucket.put(path, data, expect=ANY)
        except Unavailable as cause:
            self._drop_parts(built)
            raise Unavailable(str(cause), outcome_known=True) from cause  # nothing is committed

    def _drop_parts(self, built: Built) -> None:
        with suppress(Unavailable):
            self.files.delete([*built.parts])

    def _take_back(self, key: ScopeKey, before: str, built: Built) -> None:
        """Remove what a change that was refused has written, unless it is stored after all.

        `before` is the `w` of the head that it was to replace.
        """
        if not built.parts and not built.pointers:
            return
        with suppress(LimpetError):
            found = self.files.read(key).head
            named = set() if found is None else {*building.part_keys(found)}
            self.files.delete([path for path in built.parts if path not in named])
            trail = [] if found is None or found.record is None else found.record.versions
            is_refused = bytes.fromhex(before) in trail and bytes.fromhex(built.head.w) not in trail
            # One that began the scope may still be stored, and needs its pointers.
            if is_refused or (found is None and before):
                self.index.remove(built.pointers)

    def _finish(self, before: Held, now: Held, built: Built) -> None:
        """Remove what the head no longer names; the change is stored."""
        key, head = built.head.key, built.head
        if head.record is not None and before.record is None:
            self._start(key, line_of(head.record.pk))
        self.index.remove(built.unneeded)
        if not built.parts and not built.removed and not head.unswept:
            return
        try:
            self._sweep_after(head, built.removed, before.head)
            if now.head is head:  # else the refusal was false, and another one may be there
                self.files.held.put(key, now._replace(head=head._replace(unswept=False)))
        except LimpetError as error:
            if head.unswept:
                raise Unavailable(
                    "it is stored, but the bytes that it replaces could not be removed: repeat it, "
                    f"or run `limpet compact`. session=`{key.session_id}`",
                    outcome_known=False,
                ) from error

    def _start(self, key: ScopeKey, line: str) -> None:
        """From now on the loss of the head can be distinguished from a write that never came.

        A sign is better missing than left behind by a deletion that was interrupted. One that may
        still come is not missing: whoever deletes a line without its sign leaves its pointer, and
        both together look like damage. So it is written until there is an answer.
        """
        started, doomed = keys.started_key(key, line), set[str]()
        for _ in range(_SIGN_TRIES):
            with suppress(Unavailable):
                self.index.write(key, [started])
                break
        try:
            if self.files.bucket.get([keys.head_key(key)]) == [None]:
                doomed = {*keys.line_signs(key, line)}  # it was deleted in between
        except Unavailable:
            doomed = {started}  # or it may have been
        self.index.remove(doomed)

    def _settle(self, held: Held) -> bool:
        """Finish a fork; return False if its source was deleted, and the fork with it."""
        head = held.head
        if head is None or head.pending is None:
            return True
        is_alive = self.files.is_alive(*head.pending)
        now = head._replace(pending=None) if is_alive else Head(head.key, None, head.w)
        with suppress(Moved):  # another writer has settled it
            self.files.held.put(head.key, self._put_head(now, held))
        return is_alive

    # Deleting

    def _bury(self, held: Held, reader: ObjectReader) -> bool:
        """Replace the head of a scope by one that holds nothing, and remove what it held.

        It stays: only a compare-and-set shows whether the scope is still the same.
        """
        key, head = reader.key, reader.head
        unneeded = self._pointers_of(reader)
        now = Head(key, None, self.draw().nonce, unswept=True)
        try:
            stored = self._put_head(now, held)
        except Moved:
            stored = self._read_again(key)
            if stored.head is None or now.w not in (stored.head.w, stored.head.over):
                return False  # else the refusal was false
        parts = building.part_keys(head)
        self._finish(held, stored, Built(now, unneeded=unneeded, removed=parts))
        return True

    def _read_again(self, key: ScopeKey) -> Held:
        try:
            return self.files.read(key)
        except Unavailable as cause:
            raise LostAnswer from cause  # the refusal before may have been false

    def _pointers_of(self, reader: ObjectReader) -> set[str]:
        """Return the pointers to all that a scope has; where that cannot be read, all to it.

        But not to a line that others have begun since it was deleted.
        """
        record = reader.record
        signs = set() if record is None else {*keys.line_signs(reader.key, line_of(record.pk))}
        try:
            return signs | {*self.index.current(reader.key, reader.newest_first())}
        except (Corrupt, Unsupported):
            return signs | self._pointers_below(keys.scope_prefix(reader.key), reader.record)

    def drop(self, session_id: str, key: ScopeKey | None = None) -> int:
        prefix = keys.session_prefix(session_id) if key is None else keys.scope_prefix(key)
        count, passes = 0, 0
        try:
            while page := self.files.bucket.list(prefix, limit=PAGE):
                count += self._drop_page(prefix, page)
                passes += len(page) < PAGE
                if passes > _PASSES_MAX:
                    raise Unavailable(
                        f"other writers keep writing to the session. session=`{session_id}`"
                    )
            if not count:
                self.files.check_ours()
        except Unavailable as error:
            raise Unavailable(
                f"not all of the session was deleted: {error}", outcome_known=False
            ) from error
        return count

    def _drop_page(self, prefix: str, page: Sequence[Listed]) -> int:
        """Delete some objects of a session; return the number of snapshots.

        First the signs that lines were begun, so that what has no head any more is known as the
        rest of a deletion and not as damage; then the heads. One that was not there is not removed:
        if it comes now, it begins a line whose signs stay, and names nothing of this page.
        """
        found = [key for each in page if (key := keys.parse(each.key)) is not None]
        paths = list(dict.fromkeys(f"{key.folder}head" for key in found))
        read = self.files.list_heads(paths)
        heads = [path for path, head in zip(paths, read, strict=True) if head is not None]
        lines = {(key.scope, key.line) for key in found if key.line and key.scope}
        pointers, count = set[str](), 0
        for head in read:
            if isinstance(head, LimpetError):  # it is deleted all the same
                pointers |= self._pointers_below(prefix)
            if not isinstance(head, Head):
                continue
            count += head.snapshots
            self.files.held.pop(head.key)
            if head.record is not None:
                lines.add((head.key, line_of(head.record.pk)))
            parts = building.part_keys(head)
            pointers |= self._pointers_of(ObjectReader(self.files, head.key, head, parts))
        started = {keys.started_key(*line) for line in lines}
        rest = {each.key for each in page if each.key not in paths}
        rest |= started | {keys.line_key(*line) for line in lines}
        # What was begun is found by its pointer until its head is gone.
        for some in (sorted(started), heads, sorted(rest)):
            if some:
                self.files.delete(some)
        self.index.remove(pointers)
        return count

    def _pointers_below(self, prefix: str, record: ScopeRecord | None = None) -> set[str]:
        """Return all pointers to a scope or a session, where it cannot be read which there are.

        With a record only those to its line, and not to one that was begun since it was deleted.
        """
        pointed = self.index.walk(keys.INDEX)
        found = (each for each in pointed if keys.head_key(each.scope).startswith(prefix))
        if record is not None:
            found = (each for each in found if record.pk <= each.pointer.place <= record.last)
        return {each.key for each in found}

    # Sweeping

    def _sweep_after(self, head: Head, removed: Sequence[str], before: Head | None) -> None:
        """As `sweep`, after this head was stored; mostly without reading the present one.

        A part that is not named by this head is named by no later one if the head before named
        it, or if it was written to replace a head before this one.
        """
        listed = list(walk(self.files.bucket, keys.scope_prefix(head.key)))
        others = [each.key for each in self.unnamed(head, listed)]
        trail = [] if head.record is None else head.record.versions[1:]
        past = tuple(f".after-{version.hex()}" for version in trail)
        known = {*removed, *(() if before is None else building.part_keys(before))}
        if any(each not in known and not each.endswith(past) for each in others):
            self.sweep(head.key, listed)
        elif others:
            self.files.delete(others)

    def compact(self) -> int:
        if isinstance(self.files.bucket.below, Sweepable):
            self.files.bucket.below.sweep()
        heads = (each for each in self.walk_scopes(ScopeQuery()) if isinstance(each.head, Head))
        return sum(self.sweep(each.scope) for each in heads)

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
        pointed = sorted(self.index.followed(page), key=lambda each: each.scope)
        count = 0
        for scope, group in groupby(pointed, key=lambda each: each.scope):
            try:
                current, last = read_moment(self.files, scope, self._pointers_and_last)
            except (Corrupt, Unsupported):
                continue  # what cannot be read is left alone
            old = [each for each in group if current.get(each.key) != each.key]
            moved = [each.key for each in old if each.key in current]
            self.index.write(scope, sorted({current[key] for key in moved}))
            # One that leads nowhere may be the label of a snapshot that was not encrypted. (That of
            # a save which is overtaken just now goes as well: a repair writes it again.)
            lost = (each for each in old if each.key not in current)
            moved += [each.key for each in lost if each.pointer.place <= last]
            self.files.delete(moved)
            count += len(moved)
        return count, page[-1].key if len(page) == limit else None

    def _pointers_and_last(self, reader: ObjectReader) -> tuple[dict[str, str], int]:
        return self.pointers(reader), -1 if reader.record is None else reader.record.last

    # The rest

    def listen(self) -> ObjectListener:
        clock = self.files.clock
        return ObjectListener(self.files.bucket.listen(poll_s=self._poll_s, clock=clock))

    def close(self) -> None:
        self.files.close()
