"""The rows of `bodies` on a server: asked ahead of time, and let go of in turn.

What is likely to be asked next travels along with another question. Such an answer was given under
the lock of the scope, and is used only for the very question that it was foreseen for.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from limpet.backends.postgres.transaction import Cursor, PostgresTurn
from limpet.backends.sql.bodies import Bodies, in_order
from limpet.backends.sql.tables import of_size, verified
from limpet.core.deltas.chain import BodyRow, Chains
from limpet.core.deltas.chain_state import ChainState
from limpet.core.rows import Row
from limpet.errors import Corrupt

_MANY = 3


class PostgresBodies(Bodies):
    """Bodies of which several transactions may let go at the same time."""

    _turn: PostgresTurn

    def __init__(self, turn: PostgresTurn) -> None:
        super().__init__(turn)
        self._head: Cursor | None = None
        self._chains: dict[tuple[int, int | None], Cursor] = {}
        self._group: tuple[ChainState, Cursor, Cursor] | None = None
        self._members: set[int] = set()
        self._known_listed: set[int] = set()

    def foresee_head(self, chain: Cursor) -> None:
        """Take the chain of a scope's head, which the next state is compared with."""
        self._head = chain

    def foresee_group(self, chain: ChainState, *, below: bool) -> None:
        """Ask for what it takes to close a group; `below` also for what it builds on."""
        group = {"seq": chain.seq, "until": chain.anchor}
        self._chains[chain.seq, chain.anchor] = self._turn.later("bodies.chain", group)
        if below:
            rest = {"seq": chain.anchor, "until": None}
            self._chains[chain.anchor, None] = self._turn.later("bodies.chain", rest)
        above = self._turn.later("bodies.dependents_of_group", group)
        self._group = (chain, above, self._turn.later("bodies.listed_of_group", group))

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


# Snapshots and their states, put together from the rows of one statement.

_COLUMNS = len(Row._fields) + 1  # of a snapshot; then the key of its scope, its head, and a body


class Read:
    """The rows of `read_snapshot` or `read_snapshots`: those with facts, and those with bodies."""

    def __init__(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._tops = [row for row in rows if row[_COLUMNS] is not None]
        bodies = (row[_COLUMNS + 2 :] for row in rows if row[_COLUMNS + 2] is not None)
        self._bodies: dict[int | None, BodyRow] = {row[0]: BodyRow._make(row) for row in bodies}
        self._chains = Chains()
        self.head_seq: int | None = self._tops[0][_COLUMNS + 1] if self._tops else None

    def head(self) -> Row | None:
        """Return the snapshot that the scope shows, if there is one."""
        if self.head_seq is not None and self._tops[0][0] is None:
            raise Corrupt(f"the head of a scope is missing. seq=`{self.head_seq}`")
        return None if self.head_seq is None else self._verified(self._tops[0])

    def named(self, snapshot_id: str) -> Row | None:
        """Return a snapshot by its id."""
        found = next((row for row in self._tops if row[1] == snapshot_id), None)
        return None if found is None else self._verified(found)

    def _verified(self, row: tuple[Any, ...]) -> Row:
        return verified(row, row[_COLUMNS])

    def body(self, row: Row) -> bytes:
        """Return the encoded state of a snapshot."""
        chain: list[BodyRow] = []
        at: int | None = row.seq
        while at in self._bodies and len(chain) < len(self._bodies):
            chain.append(self._bodies[at])
            at = None if at in self._chains else chain[-1].base
        return of_size(row, self._chains.read(chain))
