"""Snapshots and their states, put together from the rows of one statement."""

from collections.abc import Sequence
from typing import Any

from limpet.backends._relational.tables import of_size, verified
from limpet.core.chains import BodyRow, Chains
from limpet.core.rows import Row
from limpet.errors import Corrupt

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
