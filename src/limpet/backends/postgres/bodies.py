"""The table `bodies` on a server: rows are read ahead, together with other queries.

Such rows were read under the lock of the scope, and are used only for the query they were read for.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from limpet.backends.postgres.transaction import Cursor, PostgresTransaction
from limpet.backends.sql.bodies import Bodies, in_order, typed
from limpet.backends.sql.tables import (
    SCOPE_SUM_COLUMNS,
    SNAPSHOT_COLUMNS,
    check_scope,
    read_row,
)
from limpet.core.deltas.chain import BodyRow, Chains, ChainState
from limpet.core.encryption import Cipher
from limpet.core.rows import Row
from limpet.errors import Corrupt
from limpet.model import ScopeKey

_MANY = 3
_SCOPE_PK, _HEAD_SEQ = SNAPSHOT_COLUMNS - 1, SNAPSHOT_COLUMNS
_BODY = _SCOPE_PK + SCOPE_SUM_COLUMNS


class PostgresBodies(Bodies):
    """Bodies of which several transactions may let go at the same time."""

    _transaction: PostgresTransaction

    def __init__(self, transaction: PostgresTransaction) -> None:
        super().__init__(transaction)
        self._head: Cursor | None = None
        self._chains: dict[tuple[int, int | None], Cursor] = {}
        self._single: dict[int, Cursor] = {}
        self._tops: dict[int, BodyRow] = {}  # of chains that were read ahead
        self._above: tuple[int, Cursor] | None = None
        self._prefetched_group: tuple[ChainState, Cursor, Cursor] | None = None
        self._members: set[int] = set()
        self._known_listed: set[int] = set()

    def prefetch_head(self, chain: Cursor) -> None:
        """Take the chain of a scope's head, which the next state is compared with."""
        self._head = chain

    def prefetch_state(self, seq: int) -> None:
        """Ask for a state, and so for its row."""
        values = {"seq": seq, "until": None}
        self._chains[seq, None] = self._transaction.later("bodies.chain", values)

    def prefetch_row(self, seq: int, *, if_small: bool = False) -> None:
        """Ask for the row of a state; with `if_small` for its body only if that is not large."""
        name = "bodies.glance" if if_small else "bodies.row"
        self._single[seq] = self._transaction.later(name, (seq,))

    def prefetch_dependents(self, seq: int) -> None:
        self._above = seq, self._transaction.later("bodies.dependents", ([seq],))

    def prefetch_group(self, chain: ChainState, *, below: bool) -> None:
        """Ask for what it takes to close a group; `below` also for what it builds on."""
        group = {"seq": chain.seq, "until": chain.anchor}
        self._chains[chain.seq, chain.anchor] = self._transaction.later("bodies.chain", group)
        if below:
            rest = {"seq": chain.anchor, "until": None}
            self._chains[chain.anchor, None] = self._transaction.later("bodies.chain", rest)
        above = self._transaction.later("bodies.dependents_of_group", group)
        self._prefetched_group = (
            chain,
            above,
            self._transaction.later("bodies.listed_of_group", group),
        )

    def chain(self, seq: int, until: int | None = None) -> list[BodyRow]:
        found = self._chains.pop((seq, until), None)
        if found is None and until is None:
            found, self._head = self._head, None
        rows = [] if found is None else in_order(seq, found.fetchall())
        self._tops |= {row.seq: row for row in rows[:1]}
        rows = rows or super().chain(seq, until)
        if self._prefetched_group is not None and (seq, until) == (
            self._prefetched_group[0].seq,
            self._prefetched_group[0].anchor,
        ):
            self._members = {row.seq for row in rows}
        return rows

    def row(self, seq: int) -> BodyRow | None:
        return self._top(seq) or super().row(seq)

    def glance(self, seq: int) -> BodyRow | None:
        return self._top(seq) or super().glance(seq)

    def _top(self, seq: int) -> BodyRow | None:
        """Return a row that was read ahead, alone or as the top of a chain."""
        alone = self._single.pop(seq, None)
        found = None if alone is None else alone.fetchone()
        return self._tops.pop(seq, None) if found is None else typed(found)

    def dependents(self, seqs: Iterable[int]) -> list[tuple[int, int, int]]:
        keys = set(seqs)
        above, self._above = self._above, None
        if above is not None and keys == {above[0]}:
            return above[1].fetchall()
        group, self._prefetched_group = self._prefetched_group, None
        if group is not None and keys == self._members:
            self._known_listed = {seq for (seq,) in group[2].fetchall()}
            return group[1].fetchall()
        return super().dependents(keys)

    def listed(self, seqs: Iterable[int]) -> set[int]:
        keys = set(seqs)
        if keys and keys == self._members:
            self._members = set()
            return self._known_listed & keys
        return super().listed(keys)

    def unused(self, seqs: Iterable[int]) -> list[tuple[int, int | None]]:
        keys = list(seqs)
        if self._known_listed.issuperset(keys):
            return []
        # Two forks may both let go of a state that each sees the other use: one waits, and sees.
        self._transaction.do("bodies.lock", (self._transaction.many(keys),))
        return super().unused(keys)

    def insert_rows(self, rows: Iterable[BodyRow]) -> None:
        some = list(rows)
        if len(some) < _MANY:
            super().insert_rows(some)
        else:
            self._transaction.do("bodies.add_many", tuple(map(list, zip(*some, strict=True))))


# Snapshots and their states, put together from the rows of one statement.


class ReadSnapshots:
    """The snapshots of one answer of `read_snapshot` or `read_snapshots`, with their states.

    A row of it has a snapshot, the summed columns of its scope, and a body; or a body alone.
    """

    def __init__(self, rows: Sequence[tuple[Any, ...]], key: ScopeKey, cipher: Cipher) -> None:
        self._read = partial(read_row, key=key, cipher=cipher)
        self._tops = [row for row in rows if row[_SCOPE_PK] is not None]
        if self._tops:
            check_scope(key, self._tops[0][_SCOPE_PK:_BODY], cipher)
        bodies = (row[_BODY:] for row in rows)
        self._bodies = {body[0]: typed(body) for body in bodies if body[0] is not None}
        self._chains = Chains(cipher)
        self.head_seq: int | None = self._tops[0][_HEAD_SEQ] if self._tops else None

    def head(self) -> Row | None:
        if self.head_seq is None:
            return None
        if self._tops[0][0] is None:
            raise Corrupt(f"the head of a scope is missing. seq=`{self.head_seq}`")
        return self._read(self._tops[0])

    def named(self, snapshot_id: str) -> Row | None:
        found = next((row for row in self._tops if row[1] == snapshot_id), None)
        return None if found is None else self._read(found)

    def body(self, row: Row) -> bytes:
        chain: list[BodyRow] = []
        at: int | None = row.seq
        while at is not None and at in self._bodies and len(chain) < len(self._bodies):
            chain.append(self._bodies[at])
            at = None if at in self._chains else chain[-1].base
        return self._chains.read(chain, row.size, row.written_by)
