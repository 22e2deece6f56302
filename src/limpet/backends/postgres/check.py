"""Inspecting the schema of a PostgreSQL store: its tables, indexes and triggers."""

import re
from collections.abc import Iterator

from limpet.backends.postgres.transaction import MIGRATIONS
from limpet.backends.sql.checking import finding
from limpet.backends.sql.transaction import Transaction
from limpet.backends.sql.walking import Position
from limpet.model import Finding

_TABLE = re.compile(r"^CREATE (?:TABLE|VIEW) limpet\.(\w+)", re.MULTILINE)
_INDEX = re.compile(r"^CREATE (?:UNIQUE )?INDEX (\w+) ON", re.MULTILINE)


def check_schema(transaction: Transaction, schema: str) -> tuple[list[Finding], str | None]:
    """Return what is wrong with the schema, and where to go on with its rows."""
    found = list(_findings(transaction, schema))
    codes = {each.code for each in found}
    if "schema_differs" in codes:
        return found, None  # nothing can be walked
    return found, str(Position(mends="foreign_object" not in codes))


def _findings(transaction: Transaction, schema: str) -> Iterator[Finding]:
    quoted = (f'"{schema}"',)
    scripts = "\n".join(each.sql for each in MIGRATIONS)
    tables = {name for (name,) in transaction.all("tables", quoted)}
    for name in sorted(set(_TABLE.findall(scripts)) - tables):
        yield finding("schema_differs", "a table is missing", type="table", name=name)
    indexes = {name for (name,) in transaction.all("indexes", quoted)}
    for name in sorted(set(_INDEX.findall(scripts)) - indexes):
        fact = "an index is missing; `limpet schema postgres` shows how it is made"
        yield finding("index_missing", fact, name=name)
    for name, table in transaction.all("triggers", quoted):
        fact = "a foreign trigger runs with every write, so that nothing is repaired"
        yield finding("foreign_object", fact, type="trigger", name=name, table=table)
