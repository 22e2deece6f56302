"""The engine over a storage: the methods of `limpet.protocol.Backend`."""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from operator import attrgetter
from typing import Concatenate, Final, Literal, ParamSpec, TypeVar, cast

from limpet.backends.support.backoff import Backoff
from limpet.backends.support.forks import renew_after_fork
from limpet.backends.support.located import located
from limpet.backends.support.recent import Recent
from limpet.core import commits, limits, matching
from limpet.core.notes import NoteRow, found_note, note_of, written_note
from limpet.core.rows import Row, info_of
from limpet.engine import editing, moving, noting, rolling, saving
from limpet.engine.joining import Joining, Waiting, joined
from limpet.engine.locking import LOCKS, WAIT_S, First, renew, scope_locks
from limpet.engine.records import (
    check_expect,
    head_of,
    in_doubt_of,
    is_deleted,
    is_stored,
    may_be_stored,
)
from limpet.engine.saving import Decide, Known, Saved, known_of
from limpet.engine.states import SegmentCache, States, checked, compare, payload_of
from limpet.errors import (
    CLOSED,
    AlreadyExists,
    Conflict,
    Corrupt,
    InvalidInput,
    LimpetError,
    NotFound,
    Unavailable,
)
from limpet.model import (
    ANY,
    Expect,
    Finding,
    Note,
    Pruned,
    ScopeInfo,
    ScopeKey,
    SnapshotInfo,
    Stats,
)
from limpet.protocol import (
    OWN_SESSION,
    Backend,
    Claim,
    Clock,
    Commit,
    Found,
    FoundNote,
    Hold,
    Listener,
    NoteChange,
    NoteDelete,
    NoteQuery,
    NoteWrite,
    Query,
    SessionAge,
    Stamp,
    Target,
    Topic,
)
from limpet.storage import (
    DAMAGED,
    SHARED,
    WHOLE,
    Change,
    LostAnswer,
    Reader,
    ScopeQuery,
    ScopeRecord,
    Storage,
    Taken,
)

T = TypeVar("T")
P = ParamSpec("P")

_SEGMENT_BYTES_MAX: Final = 16 * limits.MIB
_TAKEN_MAX: Final = 100  # seqs in a row: by then an index is damaged
_OVERDUE: Final = 4  # times the limit: a writer that outruns the rolls waits for one
_PUT_OFF_MAX: Final = 1024


def _of_storage(
    method: Callable[Concatenate[Backend, P], T],
) -> Callable[Concatenate["Engine", P], T]:
    """Return a method that is that of the storage."""

    @wraps(method)
    def passed(self: "Engine", /, *args: P.args, **options: P.kwargs) -> T:
        return cast(T, getattr(self.storage, method.__name__)(*args, **options))

    return passed


@located
class Engine:
    """Decides everything, and remembers what this process wrote last. Safe for threads."""

    def __init__(
        self,
        storage: Storage,
        *,
        clock: Clock,
        draw: Callable[[], Stamp],
        tails: rolling.Limits = rolling.LIMITS,
        rolls: Literal["background", "inline"] = "inline",
        cache_bytes_max: int = limits.CACHE_BYTES_MAX,
    ) -> None:
        self.storage = storage
        self.blocking = storage.blocking
        self.capabilities = storage.capabilities
        self._clock = clock
        self._draw = draw
        self._tails = tails
        self._known: Recent[ScopeKey, Known] = Recent(cache_bytes_max, attrgetter("cost"))
        self._segments: SegmentCache = Recent(_SEGMENT_BYTES_MAX, attrgetter("cost"))
        self._put_off: Recent[ScopeKey, int] = Recent(_PUT_OFF_MAX)  # until a tail has these bytes
        self.closed = False
        self._roller = rolling.Roller(self._roll) if rolls == "background" else None
        self._locks = scope_locks()
        self._joining = Joining()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._locks = scope_locks()
        self._joining = Joining()
        self._roller = None  # its thread is the parent's

    def distrust(self, scope: ScopeKey) -> None:
        """Forget what is known of a scope."""
        self._known.pop(scope)
        self._put_off.pop(scope)

    # Changes

    def _transact(
        self,
        key: ScopeKey,
        stamp: Stamp,
        decide: Decide[T],
        sent: tuple[Change, T] | None = None,
        is_lost: bool = False,
    ) -> tuple[Change | None, T]:
        """Change a scope as one step, also where the storage loses answers.

        `sent` is a change that may be stored already; with `is_lost` the storage did not answer.
        Return what was changed, if anything.
        """
        attempts = [] if sent is None else [sent]
        in_doubt = sent is not None

        def once(reader: Reader) -> tuple[Change | None, tuple[Change | None, T]]:
            nonlocal in_doubt
            for each, result in reversed(attempts):
                # Another one may have removed the scope: so a removal is believed only if need be.
                if (each.after is not None or is_lost) and is_stored(each, reader, is_lost):
                    return None, (each, result)
            # Those that can never be stored any more need not be searched for again.
            attempts[:] = (a for a in attempts if may_be_stored(a[0], reader.record, is_lost))
            in_doubt = in_doubt or any(is_deleted(a[0], reader.record) for a in attempts)
            try:
                change, result = decide(reader, stamp)
            except (AlreadyExists, Conflict, NotFound) as cause:
                if is_lost and attempts:
                    raise in_doubt_of(key.session_id) from cause
                raise
            if change is not None:
                attempts.append((change, result))
            return change, (change, result)

        backoff = Backoff(self._clock, first_s=0.005, longest_s=1, wait_s=limits.RETRY_S_MAX)
        tries = 0
        while True:
            try:
                done = self.storage.transact(key, once)
                if done[0] is not None and (done[0].segments_gone or done[0].after is None):
                    # What was deleted is not kept in memory either.
                    self._segments.drop(lambda each: each[0] == key)
                return done
            except Taken as cause:
                stamp = stamp._replace(bits=stamp.bits + 1)  # another seq
                tries += 1
                if tries > _TAKEN_MAX:
                    raise Corrupt("the index of a scope has what its table has not") from cause
            except LostAnswer as cause:
                in_doubt = is_lost = True
                if attempts and attempts[-1][0].before is None:
                    # It may come after a deletion, and must not begin the line that was deleted.
                    stamp = stamp._replace(bits=stamp.bits + 1)
                if not backoff.sleep():
                    raise in_doubt_of(key.session_id) from cause
            except Unavailable as cause:
                if in_doubt:
                    raise in_doubt_of(key.session_id) from cause
                raise

    def _edit(self, key: ScopeKey, decide: Decide[T]) -> T:
        """Change stored snapshots; what is known of the scope is forgotten."""
        with First(self._locks, key):
            self.distrust(key)
            return self._transact(key, self._draw(), decide)[1]

    def _touch(
        self,
        key: ScopeKey,
        stamp: Stamp,
        decide: Decide[T],
        continued: Callable[[ScopeRecord], tuple[Change, T] | None] | None = None,
    ) -> T:
        """Change notes or the lease; what is known of the snapshots stays known.

        `continued` makes the change without reading, of the record that this process wrote last.
        """
        with First(self._locks, key):
            known = self._known.get(key)
            sent = continued(known.record) if continued and known else None
            change, result = self._made(key, stamp, decide, sent)
            if known is not None and change is not None:
                if change.before == known.record and change.after is not None:
                    self._known.put(key, known._replace(record=change.after))
                else:
                    self._known.pop(key)
        return result

    def _made(
        self, key: ScopeKey, stamp: Stamp, decide: Decide[T], sent: tuple[Change, T] | None
    ) -> tuple[Change | None, T]:
        """Make a change that was decided without reading, or the one that `decide` returns."""
        is_lost = False
        if sent is not None:
            try:
                if self.storage.write(sent[0]):
                    return sent
            except (Taken, Corrupt):
                sent = None
            except LostAnswer:
                is_lost = True
        return self._transact(key, stamp, decide, sent, is_lost)

    # Snapshots

    def commit(self, commit: Commit) -> SnapshotInfo:
        key = commit.scope
        at = hash(key) % LOCKS
        lock = self._locks[at]
        is_first = lock.acquire(timeout=WAIT_S)  # as `First`, in less time
        try:
            known = self._known.get(key)
            sent = known and saving.continued(commit, known, wholes=self._tails.wholes)
            saved, is_lost = None, False
            if sent is not None and self._joining.waiting:
                saved = self._joined(commit, sent, self._joining.take(key))
            elif sent is not None:
                try:
                    saved = sent[1] if self.storage.write(sent[0]) else None
                except Taken:
                    sent = None
                except LostAnswer:
                    is_lost = True
            if saved is None:
                decide = saving.decider(commit, wholes=self._tails.wholes)
                saved = self._transact(key, commit.stamp, decide, sent, is_lost)[1]
            row, known = saved
            if known is None:
                self._known.pop(key)
            else:
                self._known.put(key, known)
        finally:
            if is_first:
                lock.release()
            else:
                renew(self._locks, at, lock)
        if known is not None and self._tails.is_due(known.record, row.size):
            self._roll_soon(known.record, row.size)
        return info_of(key, row)

    def _joined(self, commit: Commit, sent: tuple[Change, Saved], notes: list[Waiting]) -> Saved:
        """Save together with notes that wait; where they stand in the way, without them."""
        sent = joined(sent, notes) if notes else sent
        outcome: bool | Change = sent[0]  # until it is known
        try:
            decide = saving.decider(commit, wholes=self._tails.wholes)
            change, saved = self._made(commit.scope, commit.stamp, decide, sent)
            outcome = change is sent[0]
            return saved
        finally:
            for each in notes:
                each.outcome = outcome
                each.told.release()

    def replace_snapshots(self, changes: Sequence[Commit]) -> int:
        key = changes[0].scope
        return self._edit(key, lambda r, stamp: editing.replace_all(r, key, changes, stamp))

    def delete_snapshots(
        self,
        scope: ScopeKey,
        ids: Sequence[str],
        *,
        spare_head: bool = False,
        expect: Expect = ANY,
        fence: str | None = None,
    ) -> Pruned:
        asked = partial(editing.delete_snapshots, key=scope, ids=ids, expect=expect)
        return self._edit(scope, partial(asked, spare_head=spare_head, fence=fence))

    def delete_scope(
        self, scope: ScopeKey, *, expect: Expect = ANY, fence: str | None = None
    ) -> int:
        if expect is ANY and fence is None:
            return self._drop(scope.session_id, scope)

        def decide(reader: Reader, _: Stamp) -> tuple[Change | None, int]:
            record = reader.record
            commits.check_fence(fence, None if record is None else record.fence, scope)
            check_expect(expect, reader, scope)
            return (None, 0) if record is None else (Change(scope, record, None), reader.count())

        return self._edit(scope, decide)

    def delete_session(self, session_id: str) -> int:
        return self._drop(session_id)

    def _drop(self, session_id: str, key: ScopeKey | None = None) -> int:
        if key is None:
            self._known.drop(lambda each: each.session_id == session_id)
        else:
            self._known.pop(key)
        try:
            return self.storage.drop(session_id, key)
        except LostAnswer as cause:
            raise in_doubt_of(session_id) from cause
        finally:
            self._segments.drop(lambda each: each[0].session_id == session_id)

    def _roll_soon(self, record: ScopeRecord, size: int) -> None:
        """Have a tail that is due rolled."""
        if record.tail_bytes < (self._put_off.get(record.key) or 0):
            return
        roller = self._roller
        if roller is None or self._tails.is_due(record, size, _OVERDUE):
            self._roll(record.key)
        else:
            roller.ask(record.key)

    def _roll(self, key: ScopeKey) -> None:
        """Move the tail into a segment. The save before it is stored: nothing here may fail it."""
        with suppress(LimpetError):
            roll = self.storage.read(key, partial(rolling.plan, limits=self._tails))
            if isinstance(roll, int):
                self._put_off.put(key, roll)
            else:
                self._put_off.pop(key)
                self._touch(key, self._draw(), roll.at)

    def write_part(self, part: moving.Part, *, mirror: bool = False, verify: bool = False) -> int:
        """Do what `moving.difference` promises as one step; return how much that adds or changes.

        With `verify` nothing is written, and anything but 0 is a difference.
        """
        key, write = part.record.key, partial(moving.difference, part=part, mirror=mirror)
        if not verify:
            return self._edit(key, write)
        return self.storage.read(key, lambda reader: write(reader, self._draw())[0] is not None)

    # Reading

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        if len(ids) == 1 and ids[0] is None:
            return self._read_head(scope)

        def use(reader: Reader) -> list[Found]:
            rows = {row.id: row for row in reader.rows([each for each in ids if each is not None])}
            head = head_of(reader) if None in ids else None
            found = [head if each is None else rows.get(each) for each in ids]
            wanted = [row for row in found if row is not None]
            states = States(reader, self._segments)
            if len(wanted) > 1:
                states.keep({row.seq: row.written_by for row in wanted})
            return [(info_of(scope, row), states.of(row)) for row in wanted]

        return self.storage.read(scope, use)

    def _read_head(self, key: ScopeKey) -> list[Found]:
        found = self.storage.read_head(key)
        record, row, entry = found or (None, None, None)
        if record is None or record.head is None:
            return []
        state: bytes | None = None
        if row is not None and entry is not None and entry.nonce:
            compare(row.seq, entry.nonce, row.written_by)
        is_whole = entry is not None and entry.base is None and entry.encoding != SHARED
        if entry is not None and (is_whole or entry.encoding == DAMAGED):
            state = entry.body if entry.encoding == WHOLE else payload_of(entry)
        else:
            known = self._known.get(key)
            if known is not None and known.record == record and record.head == record.tip:
                state = known.state()
                if row is not None and state is not None and known.steps:
                    # So that the next one joins only the steps that are new.
                    self._known.put(key, known_of(record, row, state))
        if row is not None and state is not None:
            return [(info_of(key, row), checked(row, state))]

        def use(reader: Reader) -> tuple[ScopeRecord, Row, bytes] | None:
            head = head_of(reader)
            if reader.record is None or head is None:
                return None
            return reader.record, head, States(reader).of(head)

        again = self.storage.read(key, use, record)
        if again is None:
            return []
        record, row, state = again
        if record.head == record.tip:
            self._known.put(key, known_of(record, row, state))
        return [(info_of(key, row), state)]

    def read_info(self, scope: ScopeKey, snapshot_id: str | None) -> SnapshotInfo | None:
        def use(reader: Reader) -> Row | None:
            if snapshot_id is None:
                return head_of(reader)
            return next(iter(reader.rows([snapshot_id])), None)

        row = self.storage.read(scope, use)
        return None if row is None else info_of(scope, row)

    def read_revisions(self, targets: Sequence[Target]) -> list[str | None]:
        return self.storage.revisions(targets)

    # Listings

    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        return [info_of(key, row) for key, row in self.storage.list_rows(query, limit)]

    list_ids = _of_storage(Backend.list_ids)
    find_refs = _of_storage(Backend.find_refs)

    def list_sessions(self, *, prefix: str, after: str, limit: int) -> list[str]:
        found = self.storage.list_sessions(prefix, after, limit + 1)  # one may be hidden
        return [each for each in found if each != OWN_SESSION][:limit]

    def list_newest(self, *, prefix: str, after: SessionAge | None, limit: int) -> list[SessionAge]:
        found = self.storage.list_newest(prefix, after, limit + 1)
        return [each for each in found if each.session_id != OWN_SESSION][:limit]

    def list_scopes(
        self,
        *,
        session_id: str | None,
        kind: str | None,
        prefix: str,
        after: ScopeKey | None,
        limit: int,
    ) -> list[ScopeInfo]:
        query = ScopeQuery(session_id, kind, prefix, after)
        found = [
            ScopeInfo(record.key, head and info_of(record.key, head), record.revision)
            for record, head in self.storage.list_scopes(query, limit + 1)
            if record.key.session_id != OWN_SESSION or session_id == OWN_SESSION
        ]
        return found[:limit]

    def list_largest_heads(self, session_id: str, *, limit: int) -> list[SnapshotInfo]:
        scopes = self.storage.list_scopes(ScopeQuery(session_id))
        heads = [info_of(record.key, head) for record, head in scopes if head is not None]
        return heapq.nlargest(limit, heads, key=lambda head: head.size)

    def read_stats(self, session_id: str | None, *, limit: int) -> Stats:
        found, sizes = self.storage.sizes(session_id), Counter[str]()
        if session_id is None:
            found = [each for each in found if each[0] != OWN_SESSION]
        for name, _, size in found:
            sizes[name] += size
        return Stats(
            sessions=len(sizes),
            scopes=len(found),
            snapshots=sum(count for _, count, _ in found),
            logical_bytes=sizes.total(),
            stored_bytes=self.storage.stored_bytes(session_id),
            largest=tuple(sizes.most_common(limit)) if session_id is None else (),
        )

    # Notes and leases: they belong to the record of their scope

    def list_notes(
        self,
        scope: ScopeKey,
        *,
        on: Sequence[str | None],
        name: str | None,
        after: str,
        limit: int,
    ) -> list[Note]:
        asked = [each or "" for each in on]
        use = partial(noting.page, on=asked, name=name, after=after, limit=limit)
        return [note_of(row) for row in self.storage.read(scope, use)]

    def read_notes(self, scope: ScopeKey, names: Sequence[str]) -> list[FoundNote]:
        rows = self.storage.read(scope, lambda reader: reader.notes([""], names))
        found = {row.name: row for row in rows}
        return [found_note(scope, found[name]) for name in names if name in found]

    def find_notes(self, query: NoteQuery, *, limit: int) -> list[FoundNote]:
        is_match = None if query.where is None else matching.matcher(query.where)

        def take(key: ScopeKey, row: NoteRow) -> FoundNote | None:
            found = found_note(key, row, value=query.values)
            return found if is_match is None or is_match(found.value) else None

        return self.storage.find_notes(query, limit, take)

    def list_noted(self, scope: ScopeKey, *, after: str, limit: int) -> list[str]:
        return self.storage.read(scope, lambda reader: reader.noted(after, limit))

    def write_note(self, write: NoteWrite) -> Note:
        return note_of(self._write_notes([write])[0][0])

    def write_notes(self, changes: Sequence[NoteChange]) -> None:
        if changes:
            self._write_notes(changes)

    def delete_note(
        self, scope: ScopeKey, name: str, *, on: str | None, fence: str | None = None
    ) -> int:
        return len(self._write_notes([NoteDelete(scope, name, on, fence=fence)])[1])

    def _write_notes(self, changes: Sequence[NoteChange]) -> noting.Written:
        """Write and delete notes of one scope; return those that were written, and deleted."""
        first, continued = changes[0], None
        stamp = first.stamp if isinstance(first, NoteWrite) else self._draw()

        def decide(reader: Reader, stamp: Stamp) -> tuple[Change | None, noting.Written]:
            return noting.write(reader, changes, stamp)

        if isinstance(first, NoteWrite) and len(changes) == 1:
            is_new = first.expect is None is first.fence
            if first.joins and is_new and self.blocking and self._known.get(first.scope):
                written: noting.Written = [written_note(first, None)], []
                found = self._joining.wait(first, First(self._locks, first.scope))
                if found is True:
                    return written
                if found:  # it may be stored
                    return self._transact(first.scope, stamp, decide, (found, written), True)[1]
            continued = partial(noting.continued, write=first, stamp=stamp)
        return self._touch(first.scope, stamp, decide, continued)

    def claim(self, claim: Claim) -> Hold:
        decide = partial(noting.lease, claim, commits.claimed)
        return self._touch(claim.scope, claim.stamp, decide)

    def renew(self, claim: Claim) -> Hold:
        decide = partial(noting.lease, claim, commits.renewed)
        return self._touch(claim.scope, claim.stamp, decide)

    def release(self, claim: Claim) -> None:
        self._touch(claim.scope, claim.stamp, lambda r, stamp: noting.release(r, claim, stamp))

    def read_lease(self, scope: ScopeKey, *, now: int) -> Hold | None:
        def use(reader: Reader) -> Hold | None:
            lease = noting.lease_of(reader.record)
            return None if lease is None else lease.hold(reader.now(now, hint=True))

        return self.storage.read(scope, use)

    # The store

    def listen(self) -> Listener[Topic]:
        if self.closed:
            raise InvalidInput(CLOSED)
        return self.storage.listen()

    list_damage = _of_storage(Backend.list_damage)

    def list_unlisted(self) -> list[Finding]:
        return self.storage.list_damage(None)

    compact = _of_storage(Backend.compact)
    check = _of_storage(Backend.check)
    rekey = _of_storage(Backend.rekey)

    def close(self) -> None:
        self.closed = True
        if self._roller is not None:
            self._roller.close()
        self._known.clear()
        self._segments.clear()
        self.storage.close()
