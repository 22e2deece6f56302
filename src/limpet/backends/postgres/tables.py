"""The tables of a PostgreSQL server inside one transaction: who locks what, and what comes next.

A writer locks the row of its scope, and nothing wider. Forks build on states of the scope they came
from: such scopes are a fork group (column `family`), and a writer that removes or replaces a state
locks all of it, in the order of keys. A seq is a time (`core.ids.place`), so that no counter is
shared by all writers.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from limpet.backends.postgres.bodies import PostgresBodies
from limpet.backends.postgres.lost_answers import (
    STAMPS_BYTES,
    CommitTrace,
    RemovalTrace,
    Repeatable,
    StampTrace,
)
from limpet.backends.postgres.transaction import Cursor, PostgresTransaction
from limpet.backends.sql.commit import LastBody, shares_states
from limpet.backends.sql.tables import (
    NotePlace,
    ScopeRow,
    Tables,
    moved_values,
    read_note,
    read_row,
    scope_row,
    sum_session,
    with_id,
)
from limpet.core import ids
from limpet.core.deltas.chain import ChainState
from limpet.core.encryption import NO_KEYS, Ciphers
from limpet.core.leases import LeaseRow
from limpet.core.notes import NoteRow
from limpet.core.rows import Row
from limpet.model import ScopeKey, SnapshotRef
from limpet.protocol import Commit, Copy, Stamp

T = TypeVar("T")


class RetryTransaction(Exception):
    """Another writer was in the way: the transaction must begin again."""


class AlreadyCommitted(Exception):
    """The write whose answer was lost had been committed."""


class ForkGroupLockNeeded(RetryTransaction):
    """It must begin again, and lock the forks of the scope first."""


class _Source(NamedTuple):
    """The answers about the source of a fork: what was locked, its scope, the snapshot."""

    locked: Cursor
    scope: Cursor
    snapshot: Cursor


class PostgresTables(Tables):
    """What one transaction can do. `with_fork_group`: it locks the forks of a scope first."""

    transaction: PostgresTransaction

    def __init__(
        self,
        transaction: PostgresTransaction,
        ciphers: Ciphers = NO_KEYS,
        *,
        with_fork_group: bool = False,
        attempt: int = 0,
        stamp: bytes = b"",
    ) -> None:
        self._bodies = PostgresBodies(transaction)
        super().__init__(transaction, ciphers, self._bodies)
        self._with_fork_group = with_fork_group
        self._attempt = attempt
        self._stamp = stamp
        self._existing: Cursor | None = None
        self._source: _Source | None = None
        self._is_added = False  # the scope, by this transaction
        self._session_id = ""
        self.is_new = False  # to this process: a commit makes the scope, and reads its state
        self.full: ChainState | None = None  # whose group is likely to be closed by a commit
        self.last: LastBody | None = None  # what this process knows of the scope's last body
        self.lost_trace: CommitTrace | None = None  # of the same step, whose answer was lost before
        self.trace: CommitTrace | None = None
        self.found: ScopeRow | None = None  # the scope as it was found
        self.left: ScopeRow | None = None  # a scope of which only stamps and lease were changed
        self.changed = ""  # the session whose listeners are notified

    # Scopes

    def scope_to_change(self, key: ScopeKey, *, is_sound: bool = True) -> ScopeRow | None:
        scope = self._locked_fork_group(key, is_sound=is_sound)
        self._will_stamp(key, scope)
        self.stamp_scope(scope)
        self.changed = key.session_id
        return scope

    def scope_to_note(self, key: ScopeKey) -> ScopeRow | None:
        scope = self.scope_to_fork(key)
        self._will_stamp(key, scope)
        return scope

    def scope_and_notes(
        self, key: ScopeKey, places: Sequence[NotePlace]
    ) -> tuple[ScopeRow | None, list[NoteRow | None]]:
        asked = [{**key._asdict(), "on": on, "name": name} for on, name in places]
        scope, answers = self._locked(
            key, lambda: [self.transaction.later("note_in_scope", each) for each in asked]
        )
        self._will_stamp(key, scope)
        if scope is None:
            return None, [None] * len(places)
        found = [each.fetchone() for each in answers]
        read = partial(read_note, key=key, cipher=scope.cipher)
        return scope, [None if each is None else read(each) for each in found]

    def scope_and_has_note(self, key: ScopeKey, on: str, name: str) -> tuple[ScopeRow | None, bool]:
        """Return such a scope, and whether it has a note, which need not be intact."""
        asked = {**key._asdict(), "on": on, "name": name}
        scope, note = self._locked(key, lambda: self.transaction.later("has_note", asked))
        self._will_stamp(key, scope)
        return scope, note.fetchone() is not None

    def scope_to_fork(self, key: ScopeKey) -> ScopeRow | None:
        """Return a scope that is locked, until the fork is in its fork group."""
        return self._locked(key, lambda: None)[0]

    def _locked(self, key: ScopeKey, then: Callable[[], T]) -> tuple[ScopeRow | None, T]:
        """Return a scope that is locked, and the answer to what is said once it is."""
        while True:
            locked = self.transaction.later("lock_scope", key._asdict())
            answer = then()
            scope = self.scope(key)
            if scope is None or locked.fetchone() == (scope.pk,):
                return scope, answer  # else another writer added it meanwhile

    def _locked_fork_group(self, key: ScopeKey, *, is_sound: bool = True) -> ScopeRow | None:
        self._with_fork_group = True
        held: list[int] = []
        while True:
            found = [pk for (pk,) in self.transaction.all("lock_fork_group", key._asdict())]
            scope = self.scope(key, is_sound=is_sound)
            if scope is None:
                return None
            # What there is must be what was locked, and not have been made after nothing was found.
            # While it waited, one of the group may have been forked: then it locks again.
            if scope.pk in found and (scope.fork_group is None or found == held):
                return scope
            held = found

    def scope_to_commit(self, commit: Commit) -> ScopeRow | None:
        self.use_nonce_of(commit)
        cipher = self.use_cipher(commit.scope.session_id)
        key = commit.scope._asdict()
        while True:
            group = self._locked_fork_group(commit.scope) if self._with_fork_group else None
            added = session = None
            if self.is_new and commit.replaces is None:
                session = self.transaction.later("add_session", key)
                added = self.transaction.later("add_scope_if_missing", key)
            locked = self.transaction.later("lock_scope", key)
            self._prefetch(commit)
            if commit.id is not None:
                self._existing = self.transaction.later("snapshot_info", {**key, "id": commit.id})
            found = self.transaction.one("scope_to_commit", key)
            self._sum_session(session, commit.scope.session_id)
            if found is None:
                scope = None
                break
            # One that was just added has no checksum yet.
            self._is_added = added is not None and added.rowcount == 1
            scope = scope_row(commit.scope, found, cipher, is_sound=not self._is_added)
            is_same = not self._with_fork_group or (group is not None and group.pk == scope.pk)
            if locked.fetchone() == (scope.pk,) and is_same:
                break
            if self._source is not None:
                raise RetryTransaction  # else the source would be locked before the fork
        self._will_stamp(commit.scope, scope)
        self.changed = commit.scope.session_id
        return scope

    def _sum_session(self, added: Cursor | None, session_id: str) -> None:
        """Store the checksum of a session that was added, once its key is known."""
        found = None if added is None else added.fetchone()
        if found is not None:
            sum_session(self.transaction, session_id, found[0])

    def _prefetch(self, commit: Commit) -> None:
        """Ask for what a commit will probably need, once its scope is locked."""
        if commit.forked_from is not None and commit.source is not None:
            self._prefetch_source(commit, commit.forked_from, ids.seq_of(commit.source))
        elif commit.replaces is not None:
            self._prefetch_replaced(commit, ids.seq_of(commit.replaces))
        elif self.is_new and isinstance(commit.body, bytes):
            chain = self.transaction.later("chain_of_head", commit.scope._asdict())
            self._bodies.prefetch_head(chain)
        elif self.full is not None:
            self._bodies.prefetch_group(self.full, below=isinstance(commit.body, bytes))

    def _prefetch_source(self, commit: Commit, ref: SnapshotRef, seq: int) -> None:
        key, later = ref.scope._asdict(), self.transaction.later
        self._source = _Source(
            later("lock_scope", key),
            later("scope", key),
            later("snapshot_info", {**key, "id": ref.id}),
        )
        is_copy, shares = isinstance(commit.body, Copy), shares_states(commit)
        if is_copy and shares:
            self._bodies.prefetch_row(seq, if_small=True)
        elif is_copy or shares:
            self._bodies.prefetch_state(seq)

    def _prefetch_replaced(self, commit: Commit, seq: int) -> None:
        last, revision = self.last, commit.replaces or ""
        if last is None or not revision.endswith(last.nonce):
            self._bodies.prefetch_state(seq)
        elif last.body != commit.body:
            self._bodies.prefetch_row(seq)
        else:
            return  # only what is said about it changes
        self._bodies.prefetch_dependents(seq)

    def source(self, ref: SnapshotRef) -> tuple[ScopeRow | None, Row | None]:
        asked, self._source = self._source, None
        found = None if asked is None else asked.scope.fetchone()
        cipher = self.ciphers.of(ref.scope.session_id)
        scope = None if found is None else scope_row(ref.scope, found, cipher)
        if asked is None or scope is None or asked.locked.fetchone() != (scope.pk,):
            return super().source(ref)  # another writer may have added it meanwhile
        columns = asked.snapshot.fetchone()
        if columns is None:
            return scope, None
        return scope, with_id(ref.id, read_row(columns, ref.scope, cipher))

    def is_taken(self, scope: ScopeRow) -> bool:
        return not self._is_added and super().is_taken(scope)

    def use_nonce_of(self, commit: Commit) -> None:
        """Take the stamp of a commit, which is its nonce."""
        self._stamp = bytes.fromhex(commit.stamp.nonce)

    def _will_stamp(self, key: ScopeKey, scope: ScopeRow | None) -> None:
        lost = self.lost_trace
        if isinstance(lost, StampTrace) and lost.key == key and lost.is_in(scope):
            raise AlreadyCommitted  # while this one waited for it
        self._session_id = key.session_id
        self.found = scope
        self.trace = StampTrace(key, self._stamp, None if scope is None else scope.stamps or None)

    def stamp_scope(self, scope: ScopeRow | None) -> None:
        """Leave a stamp in a scope, by which this change of it is found again."""
        if scope is not None:
            self.transaction.do("stamp_scope", (self._stamp, scope.pk))
            self.left = scope._replace(stamps=self.stamped(scope))

    def stamped(self, scope: ScopeRow) -> bytes:
        return (self._stamp + scope.stamps)[:STAMPS_BYTES]

    def lock_fork_group(self, scope: ScopeRow) -> None:
        """Keep others from building on the states of a scope; begin again if they still could."""
        if scope.fork_group is not None and not self._with_fork_group:
            raise ForkGroupLockNeeded

    def join_fork_group(self, scope: ScopeRow, origin: ScopeRow) -> ScopeRow:
        """Put a scope into the fork group of another, whose lock is held."""
        fork_group = origin.pk if origin.fork_group is None else origin.fork_group
        joined = [each._replace(fork_group=fork_group).summed() for each in (scope, origin)]
        values = [(fork_group, each.checksum, each.pk) for each in joined]
        self.transaction.do_many("join_fork_group", values)
        return joined[0]

    def add_scope(self, key: ScopeKey) -> ScopeRow:
        session = self.transaction.later("add_session", key._asdict())
        found = self.transaction.one("add_scope", key._asdict())
        if found is None:
            raise RetryTransaction  # the session that was there is being deleted
        self._sum_session(session, key.session_id)
        pk, now = found
        return ScopeRow(key, pk, now=now, cipher=self.use_cipher(key.session_id))

    def move_scope(self, scope: ScopeRow) -> None:
        scope = scope._replace(stamps=self.stamped(scope)).summed()
        *changes, pk = moved_values(scope)
        self.transaction.do("move_scope", (*changes, scope.stamps, pk))
        self._remember(scope)

    def remove_scopes(self, pks: Sequence[int]) -> int:
        self.trace = RemovalTrace(self._session_id, tuple(pks))
        return super().remove_scopes(pks)

    def session_to_remove(self, session_id: str) -> list[int]:
        self._session_id = self.changed = session_id
        self.transaction.do("lock_session", (session_id,))
        return super().session_to_remove(session_id)

    def remove_empty_session(self, session_id: str) -> None:
        """Remove a session that has no scope, unless another writer is about to add one.

        Two who delete its last scopes at the same moment may both leave it, empty and unlisted.
        """
        # Not waited for: who deletes a session locks it first and its scopes after it.
        if self.transaction.one("lock_session_if_free", (session_id,)) is not None:
            super().remove_empty_session(session_id)

    def drop_unlisted(self, after: int) -> int | None:
        """Remove a state that is no snapshot's, under the locks of all that build on it."""
        found = self.transaction.one("unlisted", {"after": after})
        if found is None:
            return None
        held: list[int] = []
        while True:
            above = [pk for (pk,) in self.transaction.all("scopes_above", (found[0],))]
            locked = [pk for (pk,) in self.transaction.all("lock_scopes", {"pks": above})]
            if locked == held:
                break
            held = locked
        # What was found may be gone by now, or be a snapshot's: then a later one is taken, alone.
        if self.transaction.one("unlisted", {"after": after}) != found:
            return int(found[0])
        return super().drop_unlisted(after)

    def put_lease(self, scope: ScopeRow, lease: LeaseRow | None) -> ScopeRow:
        """Let a scope carry a lease, or none; processes that know another one read it again."""
        left = super().put_lease(scope, lease)
        self.stamp_scope(left)
        self.trace = Repeatable()
        return left

    # Notes

    def change_notes(
        self, scope: ScopeRow, rows: Sequence[NoteRow], removed: Sequence[NotePlace]
    ) -> None:
        super().change_notes(scope, rows, removed)
        self.stamp_scope(scope)

    def remove_note(self, scope: ScopeRow, on: str, name: str) -> int:
        """Remove a note that is there."""
        self.stamp_scope(scope)
        self.transaction.do("remove_note", {"pk": scope.pk, "on": on, "name": name})
        return 1

    # Snapshots

    def next_seq_and_time(self, scope: ScopeRow | None, stamp: Stamp) -> tuple[int, int]:
        """Return the seq of a new snapshot, which is a time, and that time."""
        last = 0 if scope is None else scope.next_seq - 1
        # Another scope may have taken the same seq; the next attempt takes another one.
        seq = ids.place(stamp.now, last, stamp.bits + self._attempt)
        return seq, ids.place_us(seq)

    def save_last_seq(self) -> None:
        """Nothing: a seq is a time, so that none is given twice."""

    def existing(self, scope: ScopeRow, snapshot_id: str) -> Row | None:
        found = None if self._existing is None else self._existing.fetchone()
        return None if found is None else read_row(found, scope.key, scope.cipher)
