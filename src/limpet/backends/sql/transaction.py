"""One transaction of a SQL engine, for code that knows its tables but not its driver.

Statements have names, which are the same in every dialect (`sql/*.sql`). Writes whose
answer is not needed may be sent late, together with the next query or the commit: round trips are
what a save costs over a network.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from limpet.backends.sql.columns import COLUMNS
from limpet.core.options import check_schema
from limpet.errors import Unsupported

T = TypeVar("T")


class Transaction(Protocol):
    """Runs statements by name inside one transaction. `values` are positional or named."""

    def one(self, name: str, values: Any = ()) -> Any:
        """Return the first row of a statement, or None."""
        ...

    def all(self, name: str, values: Any = ()) -> list[Any]:
        """Return all rows of a statement that has few."""
        ...

    def each(self, name: str, values: Any = ()) -> Iterator[Any]:
        """Yield the rows of a statement, which may be many, until the reader stops."""
        ...

    def page(self, name: str, values: Any, take: Callable[[Any], T | None], limit: int) -> list[T]:
        """Return up to `limit` of what `take` makes of the rows, without those it makes None."""
        ...

    def do(self, name: str, values: Any = ()) -> None:
        """Write; the answer is not needed, but an error ends the transaction."""
        ...

    def do_many(self, name: str, rows: Iterable[Any]) -> None:
        """Write the same with each of several rows of values."""
        ...

    def count(self, name: str, values: Any = ()) -> int:
        """Write, and return how many rows were touched."""
        ...

    def many(self, keys: Iterable[int | str]) -> Any:
        """Return several keys as one value."""
        ...


# Loads an engine's named statements and numbered migrations from its folder `sql/`.

_NAME = re.compile(r"^-- name: ([a-z_]+)\n", re.MULTILINE)
_MIGRATION = re.compile(r"(\d{3})_([a-z_]+)\.sql")
SCHEMA = "limpet"
_SCHEMA = re.compile(r"\blimpet\b(?=[.;]| IS )")


def load_queries(engine: str, file: str) -> dict[str, str]:
    """Return the statements of `sql/<file>.sql` by the name in the `-- name:` line above each."""
    parts = _NAME.split(_read(engine, f"{file}.sql"))
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def load_stored(engine: str, *files: str) -> dict[str, str]:
    """Return the statements of some files, with the names of columns (`sql.columns`) filled in."""
    found = dict[str, str]()
    for file in files:
        found |= load_queries(engine, file)
    return {name: _COLUMNS.sub(_spelled, text) for name, text in found.items()}


_COLUMNS = re.compile(r"<([a-z]+) ([a-z])>")


def _spelled(found: re.Match[str]) -> str:
    return ", ".join(f"{found[2]}.{each}" for each in COLUMNS[found[1]].split())


def load_migrations(engine: str) -> list[tuple[int, str, str]]:
    """Return (version, name, script) of every migration of an engine, in order."""
    matches = filter(None, map(_MIGRATION.fullmatch, os.listdir(_folder(engine))))
    return sorted((int(m[1]), m[2], _read(engine, m[0])) for m in matches)


def upgraded(where: str) -> Unsupported:
    """Return the error of a process whose tables were migrated by a newer version."""
    return Unsupported(
        "the store was upgraded by a newer version of limpet: update limpet in this process. "
        f"{where}"
    )


def in_schema(text: str, schema: str) -> str:
    """Return statements for the tables of a schema; they are written for those in `limpet`."""
    return text if schema == SCHEMA else _SCHEMA.sub(f'"{schema}"', text)


def _folder(engine: str) -> str:
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), engine, "sql")


def _read(engine: str, file: str) -> str:
    with open(os.path.join(_folder(engine), file), encoding="utf-8") as opened:
        return opened.read()


class Migration(NamedTuple):
    """The SQL of one migration; `record_sql` records in the database that it has run."""

    version: int
    name: str
    sql: str
    record_sql: str


def migrations_of(engine: str, schema: str) -> list[Migration]:
    """Return the migrations of `sqlite` or `postgres`, in order, for the tables of a schema."""
    check_schema(schema)
    found = []
    for version, name, script in load_migrations(engine):
        record = ""
        if engine == "postgres" and version:  # version 0 creates the table of migrations
            values = f"VALUES ({version}, '{name}');"
            record = f"\nINSERT INTO {SCHEMA}.schema_migrations (version, name) {values}\n"
        found.append(Migration(version, name, in_schema(script, schema), in_schema(record, schema)))
    return found
