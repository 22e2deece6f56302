"""The tables of a PostgreSQL server inside one transaction: who locks what, and what comes next.

A writer locks the row of its scope, and nothing wider. Forks build on states of the scope they came
from: such scopes are a family, and who removes or replaces a state locks the whole family, in the
order of keys. A place is a time (`core.ids.place`), so that no counter is shared by all writers.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.backends._postgres_turn import PostgresTurn
from holdfast.backends._relational.tables import Scope, Tables, verified
from holdfast.core import ids
from holdfast.core.rows import Row, row_checksum
from holdfast.errors import Corrupt, Unavailable
from holdfast.model import ScopeKey
from holdfast.protocol import Commit, Stamp

_COLUMNS = len(Row._fields) + 1
_SHOWN = 9  # columns of a scope before those of the snapshot it shows
_TOP = _SHOWN + _COLUMNS
_EXISTING = _TOP + 5
STAMP_BYTES = 8
_STAMPS_BYTES = 16 * STAMP_BYTES


class Wider(Exception):
    """The transaction must begin again with the lock of the whole family."""


class Sent(NamedTuple):
    """A save in one statement whose answer was lost: its mark, and the marks it was based on."""

    mark: bytes
    known: bytes

    def look_for(self, scope: Scope | None) -> None:
        """Find out, under the lock of the scope, what became of it.

        Raises:
            Landed: it has taken place.
            Unavailable: it cannot be told any more.
        """
        stamps = b"" if scope is None else scope.stamps
        marks = {stamps[at : at + STAMP_BYTES] for at in range(0, len(stamps), STAMP_BYTES)}
        if self.mark in marks:
            raise Landed
        # As long as the mark that it was based on can be seen, its own would be seen as well. It
        # cannot come later either: who holds the lock now changes the marks before letting go.
        if self.known[:STAMP_BYTES] not in marks:
            raise Unavailable("the answer to a save was lost", outcome_known=False)


class Landed(Exception):
    """A save whose answer was lost has taken place."""


class PostgresTables(Tables):
    """What one transaction can do. With `wide` it begins with the lock of the family."""

    turn: PostgresTurn

    def __init__(self, turn: PostgresTurn, *, wide: bool = False, attempt: int = 0) -> None:
        super().__init__(turn)
        self._wide = wide
        self._attempt = attempt
        self._existing: Sequence[Any] = ()
        self._commit: Commit | None = None
        self._added: Sequence[Any] = ()
        self.sent: Sent | None = None
        self.found: Scope | None = None  # the scope as a commit found it
        self.moved: Scope | None = None  # and as it left it

    # Scopes

    def scope(self, key: ScopeKey) -> Scope | None:
        """Return a scope as it was last committed, or None if there is none."""
        found = self.turn.one("scope", key._asdict())
        return None if found is None else _scope_of(found, ())

    def scope_to_change(self, key: ScopeKey) -> Scope | None:
        """Return a scope that is locked together with its family."""
        self._wide = True
        held: list[int] = []
        while True:
            found = [pk for (pk,) in self.turn.all("lock_family", key._asdict())]
            scope = self.scope(key)
            if scope is None:
                return None
            # What there is must be what was locked, and not have been made after nothing was found.
            # While it waited, one of a family may have been forked: then it looks again.
            if scope.pk in found and (scope.family is None or found == held):
                return scope
            held = found

    def scope_to_note(self, key: ScopeKey) -> Scope | None:
        """Return a scope that is locked."""
        while True:
            locked = self.turn.later("lock_scope", key._asdict())
            scope = self.scope(key)
            if scope is None or locked.fetchone() == (scope.pk,):
                return scope

    def scope_to_fork(self, key: ScopeKey) -> Scope | None:
        """Return a scope that is locked, until the fork has become one of its family."""
        return self.scope_to_note(key)

    def scope_to_commit(self, commit: Commit) -> Scope | None:
        """Return a scope that is locked, with what a commit needs to know beside it."""
        key = commit.scope._asdict()
        self.commits(commit)
        if self._wide:
            self.scope_to_change(commit.scope)
        while True:
            locked = self.turn.later("lock_scope", key)
            found = self.turn.one("scope_to_commit", {**key, "id": commit.id})
            if found is None or locked.fetchone() == found[:1]:
                break  # else somebody made it after we had looked
        if found is not None:
            self._existing = found[_EXISTING:]
            self.found = _scope_of(found[:_TOP], found[_TOP:_EXISTING])
        if self.sent is not None:
            self.sent.look_for(self.found)
        return self.found

    def commits(self, commit: Commit) -> None:
        """Remember whose turn it is."""
        self._commit = commit

    def kin_to_change(self, scope: Scope) -> None:
        """Keep others from building on the states of a scope; begin again if they still could."""
        if scope.family is not None and not self._wide:
            raise Wider

    def make_kin(self, scope: Scope, origin: Scope) -> Scope:
        """Put a scope into the family of another, whose lock is held."""
        family = origin.pk if origin.family is None else origin.family
        values = {"family": family, "pk": scope.pk, "origin": origin.pk}
        self.turn.do("make_family", values)
        return scope._replace(family=family)

    def insert(self, scope: Scope, row: Row, head: Row | None) -> None:
        """Add a snapshot with its labels, and remember it."""
        super().insert(scope, row, head)
        self._added = (*row, row_checksum(row, scope.pk))

    def move_scope(self, scope: Scope) -> None:
        """Store the head, tip, next place, floor and trail of a scope, and who was here."""
        if self._commit is None:
            raise Corrupt("only a commit moves a scope")
        stamps = (bytes.fromhex(self._commit.stamp.nonce) + scope.stamps)[:_STAMPS_BYTES]
        self.turn.do("move_scope", (*scope[1:5], scope.codec, stamps, scope.pk))
        if self._added:
            # Large or not, what this writer stored itself is not looked at again.
            top = (self._added[0], None, 0, None, 0)
            shown = self._added if scope.head_seq == self._added[0] else scope.shown
            self.moved = scope._replace(stamps=stamps, shown=shown, top=top)

    def session_to_remove(self, session_id: str) -> list[int]:
        """Return the keys of a session's scopes, all locked; nobody can add one."""
        self.turn.do("lock_session", (session_id,))
        return super().session_to_remove(session_id)

    def remove_empty_session(self, session_id: str) -> None:
        """Remove a session that has no scope, unless somebody is about to add one."""
        # Not waited for: who deletes a session locks it first and its scopes after it.
        if self.turn.one("lock_session_if_free", (session_id,)) is not None:
            super().remove_empty_session(session_id)

    def drop_unlisted(self, after: int) -> int | None:
        """Remove a state that is no snapshot's, under the locks of all that build on it."""
        found = self.turn.one("unlisted", (after,))
        if found is None:
            return None
        held: list[int] = []
        while True:
            above = [pk for (pk,) in self.turn.all("scopes_above", (found[0],))]
            locked = [pk for (pk,) in self.turn.all("lock_scopes", {"pks": above})]
            if locked == held:
                break
            held = locked
        # What was found may be gone by now, or be a snapshot's: then a later one is taken, alone.
        return super().drop_unlisted(after) if self._is_still(found[0], after) else int(found[0])

    def _is_still(self, seq: int, after: int) -> bool:
        now = self.turn.one("unlisted", (after,))
        return now is not None and bool(now[0] == seq)

    # Snapshots

    def next_place(self, scope: Scope | None, stamp: Stamp) -> tuple[int, int]:
        """Return the place of a new snapshot, which is a time, and that time."""
        last = 0 if scope is None else scope.next_seq - 1
        # Another scope may have taken the very place; the next attempt asks for another one.
        seq = ids.place(stamp.now, last, stamp.bits + self._attempt)
        return seq, ids.place_us(seq)

    def mark_place(self) -> None:
        """Nothing: no place comes back, being a time."""

    def existing(self, scope: Scope, snapshot_id: str) -> Row | None:
        """Return what stands under the id of a commit, which was read with its scope."""
        if not self._existing or self._existing[0] is None:
            return None
        return verified(self._existing, scope.pk)


def _scope_of(found: Sequence[Any], top: Sequence[Any]) -> Scope:
    top = () if not top or top[0] is None else top
    return Scope._make((*found[:7], found[_SHOWN:], None, top, *found[7:_SHOWN]))
