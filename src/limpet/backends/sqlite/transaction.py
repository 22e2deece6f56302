"""One transaction on a SQLite connection, by the names of statements (`sql/*.sql`)."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

import orjson

from limpet.backends.sql.transaction import load_statements
from limpet.backends.sqlite.in_place import Connection

T = TypeVar("T")

READ, WRITE = "BEGIN", "BEGIN IMMEDIATE"
LENIENT_TEXT = partial(str, encoding="utf-8", errors="surrogateescape")
STATEMENTS = load_statements("sqlite", "queries", "listings", "check")


class SqliteTransaction:
    """Implements `sql.transaction.Transaction`."""

    __slots__ = ("conn",)

    def __init__(self, conn: Connection) -> None:
        self.conn = conn

    def one(self, name: str, values: Any = ()) -> Any:
        return self.conn.execute(STATEMENTS[name], values).fetchone()

    def all(self, name: str, values: Any = ()) -> list[Any]:
        return self.conn.execute(STATEMENTS[name], values).fetchall()

    def each(self, name: str, values: Any = ()) -> Iterator[Any]:
        # Closed at once: an unread rest would keep the log from being emptied.
        with closing(self.conn.execute(STATEMENTS[name], values)) as rows:
            yield from rows

    def page(self, name: str, values: Any, take: Callable[[Any], T | None], limit: int) -> list[T]:
        items: list[T] = []
        with closing(self.conn.execute(STATEMENTS[name], values)) as rows:
            for found in rows:
                item = take(found)
                if item is not None:
                    items.append(item)
                    if len(items) >= limit:
                        break
        return items

    def do(self, name: str, values: Any = ()) -> None:
        self.conn.execute(STATEMENTS[name], values)

    def do_many(self, name: str, rows: Iterable[Any]) -> None:
        self.conn.executemany(STATEMENTS[name], rows)

    def count(self, name: str, values: Any = ()) -> int:
        return self.conn.execute(STATEMENTS[name], values).rowcount

    def many(self, keys: Iterable[int | str]) -> Any:
        return orjson.dumps(list(keys)).decode()
