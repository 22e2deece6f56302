"""One transaction on a SQLite connection, by the names of statements."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, TypeVar

import orjson

from limpet.backends.sql.transaction import load_statements

T = TypeVar("T")

STATEMENTS = load_statements("sqlite")


class SqliteTurn:
    """What `_relational.turn.Turn` asks for."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn

    def one(self, name: str, values: Any = ()) -> Any:
        """Return the first row of a statement, or None."""
        return self._conn.execute(STATEMENTS[name], values).fetchone()

    def all(self, name: str, values: Any = ()) -> list[Any]:
        """Return all rows; also of an INSERT, which would still be running at the commit."""
        return self._conn.execute(STATEMENTS[name], values).fetchall()

    def each(self, name: str, values: Any = ()) -> Iterator[Any]:
        """Yield rows until the reader stops."""
        # Closed at once: an unread rest would keep the log from being emptied.
        with closing(self._conn.execute(STATEMENTS[name], values)) as rows:
            yield from rows

    def page(self, name: str, values: Any, take: Callable[[Any], T | None], limit: int) -> list[T]:
        """Return up to `limit` of what `take` makes of the rows; it leaves out by None."""
        items: list[T] = []
        with closing(self._conn.execute(STATEMENTS[name], values)) as rows:
            for found in rows:
                item = take(found)
                if item is not None:
                    items.append(item)
                    if len(items) >= limit:
                        break
        return items

    def do(self, name: str, values: Any = ()) -> None:
        """Write."""
        self._conn.execute(STATEMENTS[name], values)

    def do_many(self, name: str, rows: Iterable[Any]) -> None:
        """Write the same with each of several rows of values."""
        self._conn.executemany(STATEMENTS[name], rows)

    def count(self, name: str, values: Any = ()) -> int:
        """Write, and return how many rows were touched."""
        return self._conn.execute(STATEMENTS[name], values).rowcount

    def many(self, keys: Iterable[int]) -> Any:
        """Return several keys as one value: a JSON array."""
        return orjson.dumps(list(keys)).decode()
