"""The rows of `bodies` in a SQLite file, inside one transaction."""

import sqlite3
from collections.abc import Iterable

import orjson

from holdfast.backends import _sql
from holdfast.core.chains import BodyRow

_STATEMENTS = _sql.load_queries("bodies.sqlite.sql")


class SqliteBodies:
    """What `_rebase.BodyTable` asks for."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn

    def _all(self, name: str, values: object) -> list[tuple[int, ...]]:
        return self._conn.execute(_STATEMENTS[name], values).fetchall()  # type: ignore[arg-type]

    def chain(self, seq: int, until: int | None = None) -> list[BodyRow]:
        """Return a row and what it builds on, down to a whole one or to one on top of `until`."""
        values = {"seq": seq, "until": until}
        found = self._conn.execute(_STATEMENTS["chain"], values).fetchall()
        rows = {row[0]: BodyRow._make(row) for row in found}
        ordered: list[BodyRow] = []
        at: int | None = seq
        while at is not None and at in rows:
            ordered.append(rows.pop(at))
            at = ordered[-1].base
        return ordered

    def row(self, seq: int) -> BodyRow | None:
        """Return one row."""
        found = self._conn.execute(_STATEMENTS["row"], (seq,)).fetchone()
        return None if found is None else BodyRow._make(found)

    def glance(self, seq: int) -> tuple[int, int | None, int, bytes | None, int] | None:
        """Return one row, its body only if that is not large."""
        found: tuple[int, int | None, int, bytes | None, int] | None
        found = self._conn.execute(_STATEMENTS["glance"], (seq,)).fetchone()
        return found

    def links(self, seq: int) -> list[int]:
        """Return the keys of a chain."""
        bases = dict(self._conn.execute(_STATEMENTS["links"], (seq,)).fetchall())
        ordered: list[int] = []
        at: int | None = seq
        while at is not None and at in bases:
            ordered.append(at)
            at = bases.pop(at)
        return ordered

    def dependents(self, seqs: Iterable[int]) -> list[tuple[int, int, int]]:
        """Return (seq, base, encoding) of all rows that build directly on one of these."""
        return self._all("dependents", _many(seqs))  # type: ignore[return-value]

    def bases(self, seqs: Iterable[int]) -> set[int]:
        """Return all that one of these builds on directly."""
        return {base for (base,) in self._all("bases", _many(seqs))}

    def listed(self, seqs: Iterable[int]) -> set[int]:
        """Return those that are the state of a snapshot."""
        return {seq for (seq,) in self._all("listed", _many(seqs))}

    def unused(self, seqs: Iterable[int]) -> list[tuple[int, int | None]]:
        """Return (seq, base) of those that are no snapshot's and that nothing builds on."""
        return self._all("unused", _many(seqs))  # type: ignore[return-value]

    def add(self, rows: Iterable[BodyRow]) -> None:
        """Insert rows."""
        self._conn.executemany(_STATEMENTS["add"], rows)

    def remove(self, seqs: Iterable[int]) -> None:
        """Remove rows."""
        self._conn.execute(_STATEMENTS["remove"], _many(seqs))


def _many(seqs: Iterable[int]) -> tuple[str]:
    return (orjson.dumps(list(seqs)).decode(),)
