"""Leases over tables, and the revisions that watchers poll.

The key of a lease is a column of the row that every write of its scope locks or compares: so none
is made under a lease that another owner holds by now.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import orjson

from limpet.backends.sql.tables import ScopeRow, Tables
from limpet.core.ids import revision
from limpet.core.leases import claimed, renewed
from limpet.model import ScopeKey
from limpet.protocol import Claim, Hold, Target

T = TypeVar("T")


class SqlLeases:
    """The methods of a backend about leases and revisions."""

    def _read(self, action: Callable[[Tables], T]) -> T:
        """Run an action that sees one moment of the store."""
        raise NotImplementedError

    def _look(self, action: Callable[[Tables], T]) -> T:
        """Run an action whose statements need not see the same moment of the store."""
        return self._read(action)

    def _write(self, action: Callable[[Tables], T]) -> T:
        """Run an action as one step, durable when this returns, or not at all."""
        raise NotImplementedError

    def _write_note(self, scope: ScopeKey, action: Callable[[Tables], T]) -> T:
        return self._write(action)

    def _write_lease(self, scope: ScopeKey, action: Callable[[Tables], T]) -> T:
        return self._write_note(scope, action)

    def claim(self, claim: Claim) -> Hold:
        def take(tables: Tables) -> Hold:
            scope = tables.scope_to_note(claim.scope) or tables.add_scope(claim.scope)
            now = _now(scope, claim.stamp.now)
            lease = claimed(claim, scope.lease, now)
            if lease.key == claim.key:
                tables.put_lease(scope, lease)
            return lease.hold(now)

        return self._write_lease(claim.scope, take)

    def renew(self, claim: Claim) -> Hold:
        def extend(tables: Tables) -> Hold:
            scope = tables.scope_to_note(claim.scope)
            now = _now(scope, claim.stamp.now)
            lease = renewed(claim, None if scope is None else scope.lease, now)
            if scope is not None:
                tables.put_lease(scope, lease)
            return lease.hold(now)

        return self._write_note(claim.scope, extend)

    def release(self, claim: Claim) -> None:
        def give_back(tables: Tables) -> None:
            scope = tables.scope_to_note(claim.scope)
            if scope is None or scope.fence != claim.key:
                return
            tables.put_lease(scope, None)
            if not scope.floor and not tables.is_taken(scope._replace(fence=None)):
                # Nothing was ever minted in it, so nothing needs to be remembered of it.
                tables.remove_scopes([scope.pk])
                tables.remove_empty_session(claim.scope.session_id)

        self._write_lease(claim.scope, give_back)

    def read_lease(self, scope: ScopeKey, *, now: int) -> Hold | None:
        def read(tables: Tables) -> Hold | None:
            found = tables.scope(scope)
            lease = None if found is None else found.lease
            return None if lease is None else lease.hold(_now(found, now))

        return self._read(read)

    def read_revisions(self, targets: Sequence[Target]) -> list[str | None]:
        asked = orjson.dumps([[*key, id] for key, id in targets]).decode()
        marks: list[str | None] = [None] * len(targets)
        for at, seq, rev, nonce in self._look(
            lambda tables: tables.transaction.all("marks", (asked,))
        ):
            marks[at] = revision(seq, rev, nonce)
        return marks


def _now(scope: ScopeRow | None, now: int) -> int:
    """Return the time by which leases end: of the server if it has one, else of this machine."""
    return now if scope is None or scope.now is None else scope.now
