"""The rows of `bodies`, inside one transaction."""

from collections.abc import Iterable

from limpet.backends.sql.transaction import Turn
from limpet.core.deltas.chain import BodyRow


class Bodies:
    """What `rebase.BodyTable` asks for."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def chain(self, seq: int, until: int | None = None) -> list[BodyRow]:
        """Return a row and what it builds on, down to a whole one or to one on top of `until`."""
        return in_order(seq, self._turn.all("bodies.chain", {"seq": seq, "until": until}))

    def row(self, seq: int) -> BodyRow | None:
        """Return one row."""
        found = self._turn.one("bodies.row", (seq,))
        return None if found is None else BodyRow._make(found)

    def glance(self, seq: int) -> tuple[int, int | None, int, bytes | None, int] | None:
        """Return one row, its body only if that is not large."""
        found: tuple[int, int | None, int, bytes | None, int] | None
        found = self._turn.one("bodies.glance", (seq,))
        return found

    def links(self, seq: int) -> list[int]:
        """Return the keys of a chain."""
        bases = dict(self._turn.all("bodies.links", (seq,)))
        ordered: list[int] = []
        at: int | None = seq
        while at is not None and at in bases:
            ordered.append(at)
            at = bases.pop(at)
        return ordered

    def dependents(self, seqs: Iterable[int]) -> list[tuple[int, int, int]]:
        """Return (seq, base, encoding) of all rows that build directly on one of these."""
        return self._turn.all("bodies.dependents", (self._turn.many(seqs),))

    def bases(self, seqs: Iterable[int]) -> set[int]:
        """Return all that one of these builds on directly."""
        return {base for (base,) in self._turn.all("bodies.bases", (self._turn.many(seqs),))}

    def listed(self, seqs: Iterable[int]) -> set[int]:
        """Return those that are the state of a snapshot."""
        return {seq for (seq,) in self._turn.all("bodies.listed", (self._turn.many(seqs),))}

    def unused(self, seqs: Iterable[int]) -> list[tuple[int, int | None]]:
        """Return (seq, base) of those that are no snapshot's and that nothing builds on."""
        return self._turn.all("bodies.unused", (self._turn.many(seqs),))

    def add(self, rows: Iterable[BodyRow]) -> None:
        """Insert rows."""
        self._turn.do_many("bodies.add", rows)

    def remove(self, seqs: Iterable[int]) -> None:
        """Remove rows."""
        self._turn.do("bodies.remove", (self._turn.many(seqs),))


def in_order(seq: int, found: Iterable[tuple[int, int | None, int, bytes, int]]) -> list[BodyRow]:
    """Return the rows of a chain from its top downwards, from a result in any order."""
    rows = {row[0]: BodyRow._make(row) for row in found}
    ordered: list[BodyRow] = []
    at: int | None = seq
    while at is not None and at in rows:
        ordered.append(rows.pop(at))
        at = ordered[-1].base
    return ordered
