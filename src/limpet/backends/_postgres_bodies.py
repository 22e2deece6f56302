"""The rows of `bodies` on a server: asked ahead of time, and let go of in turn.

What is likely to be asked next travels along with another question. Such an answer was given under
the lock of the scope, and is used only for the very question that it was foreseen for.
"""

from collections.abc import Iterable

from limpet.backends._postgres_turn import Cursor, PostgresTurn
from limpet.backends._relational.bodies import Bodies, in_order
from limpet.core.chains import BodyRow
from limpet.core.trail import Trail

_MANY = 3


class PostgresBodies(Bodies):
    """Bodies of which several transactions may let go at the same time."""

    _turn: PostgresTurn

    def __init__(self, turn: PostgresTurn) -> None:
        super().__init__(turn)
        self._head: Cursor | None = None
        self._chains: dict[tuple[int, int | None], Cursor] = {}
        self._group: tuple[Trail, Cursor, Cursor] | None = None
        self._members: set[int] = set()
        self._known_listed: set[int] = set()

    def foresee_head(self, chain: Cursor) -> None:
        """Take the chain of a scope's head, which the next state is compared with."""
        self._head = chain

    def foresee_group(self, trail: Trail, *, below: bool) -> None:
        """Ask for what it takes to close a group; `below` also for what it builds on."""
        group = {"seq": trail.seq, "until": trail.anchor}
        self._chains[trail.seq, trail.anchor] = self._turn.later("bodies.chain", group)
        if below:
            rest = {"seq": trail.anchor, "until": None}
            self._chains[trail.anchor, None] = self._turn.later("bodies.chain", rest)
        above = self._turn.later("bodies.dependents_of_group", group)
        self._group = (trail, above, self._turn.later("bodies.listed_of_group", group))

    def chain(self, seq: int, until: int | None = None) -> list[BodyRow]:
        """Return a row and what it builds on, down to a whole one or to one on top of `until`."""
        found = self._chains.pop((seq, until), None)
        if found is None and until is None:
            found, self._head = self._head, None
        rows = [] if found is None else in_order(seq, found.fetchall())
        rows = rows or super().chain(seq, until)
        if self._group is not None and (seq, until) == (self._group[0].seq, self._group[0].anchor):
            self._members = {row.seq for row in rows}
        return rows

    def dependents(self, seqs: Iterable[int]) -> list[tuple[int, int, int]]:
        """Return (seq, base, encoding) of all rows that build directly on one of these."""
        keys = set(seqs)
        group, self._group = self._group, None
        if group is not None and keys == self._members:
            self._known_listed = {seq for (seq,) in group[2].fetchall()}
            return group[1].fetchall()
        return super().dependents(keys)

    def listed(self, seqs: Iterable[int]) -> set[int]:
        """Return those that are the state of a snapshot."""
        keys = set(seqs)
        if keys and keys == self._members:
            self._members = set()
            return self._known_listed & keys
        return super().listed(keys)

    def unused(self, seqs: Iterable[int]) -> list[tuple[int, int | None]]:
        """Return (seq, base) of those that are no snapshot's and that nothing builds on."""
        keys = list(seqs)
        if self._known_listed.issuperset(keys):
            return []
        # Two forks may both let go of a state that each sees the other use: one waits, and sees.
        self._turn.do("bodies.lock", (self._turn.many(keys),))
        return super().unused(keys)

    def add(self, rows: Iterable[BodyRow]) -> None:
        """Insert rows, many in one statement."""
        some = list(rows)
        if len(some) < _MANY:
            super().add(some)
        else:
            self._turn.do("bodies.add_many", tuple(map(list, zip(*some, strict=True))))
