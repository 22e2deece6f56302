"""The traces that show whether a transaction whose answer was lost was committed.

Every change of a scope adds a random stamp to the row of the scope, which keeps the last 16. They
are read under the lock that the transaction held, or would have to acquire: `was_committed` takes
it, inside the transaction of the next attempt. A trace that is found is final; a missing one is
final only once the next attempt has been committed. Where it is not known any more, it raises
Unavailable.
"""

from typing import NamedTuple, TypeAlias

from limpet.backends.sql.tables import ScopeRow, Tables
from limpet.errors import Unavailable
from limpet.model import ScopeKey

STAMP_BYTES = 8
STAMPS_BYTES = 16 * STAMP_BYTES


class StampTrace(NamedTuple):
    """A stamp in the row of a scope. `known` are the older stamps; None if there was no scope."""

    key: ScopeKey
    stamp: bytes
    known: bytes | None

    def was_committed(self, tables: Tables) -> bool:
        return self.is_in(tables.scope_to_fork(self.key))

    def is_in(self, scope: ScopeRow | None) -> bool:
        """Return whether the stamp is in a scope whose lock is held."""
        if scope is None:
            if self.known is None:
                return False
            raise _unknown()
        all_of = scope.stamps
        stamps = [all_of[at : at + STAMP_BYTES] for at in range(0, len(all_of), STAMP_BYTES)]
        if self.stamp in stamps:
            return True
        # While the stamp before it is still there, this one would be there too.
        before = self.known[:STAMP_BYTES] if self.known else None
        if before in stamps or (before is None and len(all_of) < STAMPS_BYTES):
            return False
        raise _unknown()


class RemovalTrace(NamedTuple):
    """Scopes that were deleted."""

    session_id: str
    pks: tuple[int, ...]

    def was_committed(self, tables: Tables) -> bool:
        left = set(tables.session_to_remove(self.session_id)) & set(self.pks)
        return bool(self.pks) and not left


class Repeatable:
    """No trace is needed: the change is repeated, and the result is that of now.

    Of a lease it matters whether it is still held, not that it once was.
    """

    def was_committed(self, tables: Tables) -> bool:
        return False


CommitTrace: TypeAlias = StampTrace | RemovalTrace | Repeatable


def _unknown() -> Unavailable:
    return Unavailable(
        "the connection was lost during a write, and it is not known whether it was applied: "
        "read the scope before you write again",
        outcome_known=False,
    )
