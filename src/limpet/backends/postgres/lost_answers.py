"""The traces that a transaction leaves, by which one whose answer was lost is found again.

Every change of a scope leaves a mark of its own in the row of the scope, which holds the last 16.
The look is taken under the lock that the transaction held, or would have to take. That a trace is
there is final; that there is none, only once the next attempt has been committed.
"""

from typing import TYPE_CHECKING, NamedTuple, Protocol

from limpet.errors import Unavailable
from limpet.model import ScopeKey

if TYPE_CHECKING:
    from limpet.backends.postgres.tables import PostgresTables
    from limpet.backends.sql.tables import ScopeRow

STAMP_BYTES = 8
STAMPS_BYTES = 16 * STAMP_BYTES


class Evidence(Protocol):
    """What to look for."""

    def holds(self, tables: "PostgresTables") -> bool:
        """Tell whether the transaction took place; what it would have locked is locked then.

        Raises:
            Unavailable: it cannot be told any more.
        """
        ...


class Marked(NamedTuple):
    """A mark in the row of a scope. `known` are the marks before it; None if there was no scope."""

    key: ScopeKey
    mark: bytes
    known: bytes | None

    def holds(self, tables: "PostgresTables") -> bool:
        """Look for the mark, and for the last one before it."""
        return self.is_in(tables.scope_to_fork(self.key))

    def is_in(self, scope: "ScopeRow | None") -> bool:
        """Look into a scope whose lock is held."""
        if scope is None:
            if self.known is None:
                return False
            raise Unavailable("the answer to a write was lost", outcome_known=False)
        stamps = scope.stamps
        marks = [stamps[at : at + STAMP_BYTES] for at in range(0, len(stamps), STAMP_BYTES)]
        if self.mark in marks:
            return True
        # As long as what was there before can be seen, the mark would be seen as well.
        before = self.known[:STAMP_BYTES] if self.known else None
        if before in marks or (before is None and len(stamps) < STAMPS_BYTES):
            return False
        raise Unavailable("the answer to a write was lost", outcome_known=False)


class Removed(NamedTuple):
    """Scopes that are no longer there."""

    session_id: str
    pks: tuple[int, ...]

    def holds(self, tables: "PostgresTables") -> bool:
        """Look for the scopes, under the lock of their session."""
        left = set(tables.session_to_remove(self.session_id)) & set(self.pks)
        return bool(self.pks) and not left


class Repeatable:
    """No trace is needed: to do it again is the same, and tells what is so now.

    Of a lease whose answer was lost it matters whether it is held still, not that it once was.
    """

    def holds(self, tables: "PostgresTables") -> bool:
        """Return False, so that it is done again."""
        return False
