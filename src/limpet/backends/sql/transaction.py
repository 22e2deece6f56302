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
_COLUMNS = re.compile(r"<([a-z]+) ([a-z])>")
_MIGRATION = re.compile(r"(\d{3})_([a-z_]+)\.sql")
SCHEMA = "limpet"
_SCHEMA = re.compile(r"\blimpet\b(?=[.;]| IS )")


def load_statements(engine: str, *files: str) -> dict[str, str]:
    """Return the statements of `sql/<file>.sql` by the name in the `-- name:` line above each.

    The names of columns (`sql.columns`) are filled in.
    """
    found = dict[str, str]()
    for file in files:
        parts = _NAME.split(_COLUMNS.sub(_spelled, _read(engine, f"{file}.sql")))
        found |= {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    return found


def _spelled(found: re.Match[str]) -> str:
    return ", ".join(f"{found[2]}.{each}" for each in COLUMNS[found[1]].split())


class Migration(NamedTuple):
    """The SQL of one migration; `record_sql` records in the database that it has run."""

    version: int
    name: str
    sql: str
    record_sql: str


def migrations_of(engine: str, schema: str = SCHEMA) -> list[Migration]:
    """Return the migrations of `sqlite` or `postgres`, in order, for the tables of a schema."""
    check_schema(schema)
    found = []
    for match in filter(None, map(_MIGRATION.fullmatch, sorted(os.listdir(_folder(engine))))):
        version, name, record = int(match[1]), match[2], ""
        if engine == "postgres" and version:  # version 0 creates the schema
            values = f"VALUES ({version}, '{name}');"
            record = f"\nINSERT INTO {SCHEMA}.schema_migrations (version, name) {values}\n"
        script = in_schema(_read(engine, match[0]), schema)
        found.append(Migration(version, name, script, in_schema(record, schema)))
    return found


def in_schema(text: str, schema: str) -> str:
    """Return statements for the tables of a schema; they are written for those in `limpet`."""
    return text if schema == SCHEMA else _SCHEMA.sub(f'"{schema}"', text)


def upgraded(where: str) -> Unsupported:
    """Return the error of a process whose tables were migrated by a newer version."""
    return Unsupported(
        "the store was upgraded by a newer version of limpet: update limpet in this process. "
        f"{where}"
    )


def _folder(engine: str) -> str:
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), engine, "sql")


def _read(engine: str, file: str) -> str:
    with open(os.path.join(_folder(engine), file), encoding="utf-8") as opened:
        return opened.read()
