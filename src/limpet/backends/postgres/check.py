"""Inspecting a PostgreSQL store, a bounded part at a time: the schema, then its tables."""

import re
from collections.abc import Iterator

from limpet.backends.postgres.schema import MIGRATIONS
from limpet.backends.sql.check import CheckPosition, RowAccess, walk_some
from limpet.backends.sql.check_rows import finding
from limpet.backends.sql.transaction import Transaction
from limpet.core.encryption import Ciphers
from limpet.model import Finding

_TABLE = re.compile(r"^CREATE (?:TABLE|VIEW) limpet\.(\w+)", re.MULTILINE)
_INDEX = re.compile(r"^CREATE (?:UNIQUE )?INDEX (\w+) ON", re.MULTILINE)


def check_some(
    transaction: Transaction,
    ciphers: Ciphers,
    schema: str,
    after: str,
    *,
    repair: bool,
    limit: int,
) -> tuple[list[Finding], str | None]:
    """Inspect a part of the store, from a position on; return findings and where to go on.

    With `repair` no other writer runs during the part.
    """
    if after == "":
        findings = list(_schema(transaction, schema))
        found = {each.code for each in findings}
        if "table_missing" in found:
            return findings, None  # nothing can be walked
        access = RowAccess.READ if "foreign_trigger" in found else RowAccess.REPAIR
        return findings, str(CheckPosition.first(access, "owners"))
    if repair:
        transaction.do("lock_everybody_out")
    findings, following = walk_some(
        transaction, ciphers, CheckPosition.parse(after), repair=repair, limit=max(1, limit)
    )
    return findings, None if following is None else str(following)


def _schema(transaction: Transaction, schema: str) -> Iterator[Finding]:
    quoted = (f'"{schema}"',)
    scripts = "\n".join(script for _, _, script in MIGRATIONS)
    tables = {name for (name,) in transaction.all("check.tables", quoted)}
    for name in sorted(set(_TABLE.findall(scripts)) - tables):
        yield finding("table_missing", "a table is missing", name=name)
    indexes = {name for (name,) in transaction.all("check.indexes", quoted)}
    for name in sorted(set(_INDEX.findall(scripts)) - indexes):
        fact = "an index is missing; `limpet schema postgres` shows how it is made"
        yield finding("index_missing", fact, name=name)
    for name, table in transaction.all("check.triggers", quoted):
        fact = "a foreign trigger runs with every write, so that nothing is repaired"
        yield finding("foreign_trigger", fact, name=name, table=table)
