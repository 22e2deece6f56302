"""One transaction on a PostgreSQL connection, by the names of statements.

A statement whose answer is not needed waits for the next query or the end of the transaction, and
is sent along in one pipeline: to read and to write are two round trips, however much is written.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import psycopg

from limpet.backends.sql.transaction import in_schema, load_migrations, load_statements

if TYPE_CHECKING:
    from psycopg.abc import QueryNoTemplate  # since 3.3

T = TypeVar("T")
Cursor: TypeAlias = psycopg.Cursor[tuple[Any, ...]]

_STATEMENTS = load_statements("postgres")
NEWEST = load_migrations("postgres")[-1][0]
_NO_LISTENERS = "0 /* has_listeners */"
_FETCH = 100  # rows at a time of a statement whose reader may stop


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection, with how often it ran each statement of `raw.py`."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.uses: dict[bytes, int] = {}


@lru_cache(maxsize=64)
def statements_of(schema: str, *, notifies: bool = True) -> Mapping[str, bytes]:
    """Return the statements for the tables of a schema; with `notifies` a save asks who listens."""
    found = dict(_STATEMENTS)
    if notifies:
        has_listeners = found["has_listeners"].rstrip(";")
        check = found["check_version"].rstrip(";")
        found["check_version_and_listeners"] = f"SELECT ({has_listeners}), ({check})"
        asked = f"({has_listeners})::int"
        found["save_in_one"] = found["save_in_one"].replace(_NO_LISTENERS, asked)
    found["save_and_fold"] = found["save_in_one"].replace("/* fold */", found.pop("fold"))
    newest = f"{NEWEST} /* newest */"
    return {
        name: in_schema(text.replace("0 /* newest */", newest), schema).encode()
        for name, text in found.items()
    }


class PostgresTransaction:
    """Implements `sql.transaction.Transaction`. Without `begin` each statement commits alone."""

    def __init__(
        self,
        conn: Connection,
        statements: Mapping[str, bytes],
        begin: Iterable[bytes] = (),
    ) -> None:
        self._conn = conn
        self._statements = statements
        self._waiting: list[tuple[Cursor, QueryNoTemplate, Any]] = []
        for text in begin:
            self._waiting.append((conn.cursor(), text, None))
        self.committing = False

    def _ask(self, name: str, values: Any) -> Cursor:
        cursor = self._conn.cursor(binary=True)
        if not self._waiting:
            return cursor.execute(self._statements[name], values)
        with self._together():
            self._send()
            cursor.execute(self._statements[name], values)
        return cursor

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Send the statements of the block in one pipeline, and raise the first error."""
        first: psycopg.Error | None = None
        try:
            with self._conn.pipeline():
                try:
                    yield
                except psycopg.Error as cause:
                    first = cause  # not seen by the end of the pipeline, which would log the rest
        except psycopg.Error as cause:
            raise first or cause from None
        if first is not None:
            raise first

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for cursor, text, values in waiting:
            cursor.execute(text, values)

    def commit(self) -> None:
        with self._together():
            self._send()
            self.committing = True
            self._conn.execute(b"COMMIT")

    def one(self, name: str, values: Any = ()) -> Any:
        return self._ask(name, _plain(values)).fetchone()

    def all(self, name: str, values: Any = ()) -> list[Any]:
        return self._ask(name, _plain(values)).fetchall()

    def each(self, name: str, values: Any = ()) -> Iterator[Any]:
        if self._waiting:
            with self._together():
                self._send()
        with self._conn.cursor(name=f"limpet_{id(values)}", binary=True) as cursor:
            cursor.itersize = _FETCH
            yield from cursor.execute(self._statements[name], _plain(values))

    def page(self, name: str, values: Any, take: Callable[[Any], T | None], limit: int) -> list[T]:
        asked = limit
        while True:
            rows = self.all(name, {**values, "limit": asked})
            items = [item for found in rows if (item := take(found)) is not None]
            if len(items) >= limit or len(rows) < asked:
                return items[:limit]
            asked *= 2  # some were damaged, which is rare enough to begin again

    def do(self, name: str, values: Any = ()) -> None:
        self.later(name, values)

    def later(self, name: str, values: Any = ()) -> Cursor:
        """Run a statement together with the next query; its answer can be read after that."""
        cursor = self._conn.cursor(binary=True)
        self._waiting.append((cursor, self._statements[name], _plain(values)))
        return cursor

    def do_many(self, name: str, rows: Iterable[Any]) -> None:
        for row in rows:
            self.later(name, row)

    def count(self, name: str, values: Any = ()) -> int:
        return self._ask(name, _plain(values)).rowcount

    def many(self, keys: Iterable[int | str]) -> Any:
        return list(keys)


def _plain(values: Any) -> Any:
    """Return values as the driver knows them: a tuple with names counts as a plain one."""
    return tuple(values) if isinstance(values, tuple) else values
