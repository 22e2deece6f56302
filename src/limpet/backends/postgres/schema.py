"""The tables of a schema: created, migrated, or inspected."""

import re
import zlib
from collections.abc import Iterator
from contextlib import suppress

import psycopg

from limpet.backends.postgres.errors import is_race, translated
from limpet.backends.postgres.raw import Connection
from limpet.backends.postgres.transaction import MIGRATIONS, NEWEST, OLDEST
from limpet.backends.sql import transaction
from limpet.backends.sql.checking import Position, finding
from limpet.backends.support.backoff import Backoff
from limpet.errors import Unavailable, Unsupported
from limpet.model import Finding
from limpet.protocol import Clock

_SETUP_WAIT_S = 30.0
_PAUSE_S = 0.05
_LOCK = 0x4C4D5054  # "LMPT": the first key of our advisory locks; the second is the schema's

_TABLE = re.compile(r"^CREATE (?:TABLE|VIEW) limpet\.(\w+)", re.MULTILINE)
_INDEX = re.compile(r"^CREATE (?:UNIQUE )?INDEX (\w+) ON", re.MULTILINE)

# Errors of two processes that create the same objects at once without an advisory lock: the object
# exists, or its catalogue row was updated concurrently.
_CREATED_TWICE = {"42P06", "42P07", "42710", "42723", "XX000"}


def make_ready(
    conn: Connection, schema: str, *, setup: bool, advisory_locks: bool, clock: Clock
) -> None:
    """Create or migrate the tables; without `setup` only check that they are up to date.

    Any number of processes may do this at once.
    """
    backoff = Backoff(clock, first_s=_PAUSE_S, longest_s=_PAUSE_S, wait_s=_SETUP_WAIT_S)
    while True:
        version = _version(conn, schema)
        if version > NEWEST:
            raise transaction.upgraded(f"schema=`{schema}` found=`{version}` known=`{NEWEST}`")
        if 0 < version < OLDEST:
            raise Unsupported(
                "the store was made by a version before the first release, in another format: "
                "export it with that version, and import it here. "
                f"schema=`{schema}` found=`{version}`"
            )
        if version == NEWEST:
            return
        if not setup:
            raise Unavailable(
                "the tables are missing or not up to date, and setup=False: have "
                f"`limpet schema postgres --schema {schema}` run by a role that may create them. "
                f"found=`{version}` needed=`{NEWEST}`"
            )
        try:
            _migrate(conn, schema, advisory_locks=advisory_locks)
        except psycopg.Error as cause:
            with suppress(psycopg.Error):
                conn.execute(b"ROLLBACK")
            if cause.sqlstate == "42501":
                raise Unavailable(
                    "the role may not create the tables: have "
                    f"`limpet schema postgres --schema {schema}` run by one that may, and open "
                    "with setup=False"
                ) from cause
            if not is_race(cause) and cause.sqlstate not in _CREATED_TWICE:
                raise translated(cause) from cause
            if not backoff.sleep():
                raise Unavailable(
                    "other processes kept the tables from being created: try again. "
                    f"schema=`{schema}`"
                ) from cause


def _version(conn: Connection, schema: str) -> int:
    text = transaction.in_schema("SELECT max(version) FROM limpet.schema_migrations;", schema)
    try:
        found = conn.execute(text.encode()).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return 0
    except psycopg.Error as cause:
        raise translated(cause) from cause
    return 0 if found is None or found[0] is None else int(found[0])


def _migrate(conn: Connection, schema: str, *, advisory_locks: bool) -> None:
    conn.execute(b"BEGIN")
    if advisory_locks:
        # Released with the transaction, so that it works behind a pooler and is never left behind.
        key = zlib.crc32(schema.encode()) - 2**31
        conn.execute(b"SELECT pg_advisory_xact_lock(%s::int, %s::int)", (_LOCK, key))
    # An error would abort the transaction, so it is checked whether there is one.
    there = _exists(conn, b"to_regclass", f'"{schema}".schema_migrations')
    version = _version(conn, schema) if there else 0
    has_schema = _exists(conn, b"to_regnamespace", f'"{schema}"')
    for each in MIGRATIONS:
        if each.version > version or (each.version == 0 and not has_schema):
            script = each.sql + each.record_sql
            conn.execute(transaction.in_schema(script, schema).encode())
    conn.execute(b"COMMIT")


def _exists(conn: Connection, lookup: bytes, name: str) -> bool:
    found = conn.execute(b"SELECT %b(%%s) IS NOT NULL" % lookup, (name,)).fetchone()
    return found == (True,)


def check_schema(tables: transaction.Transaction, schema: str) -> tuple[list[Finding], str | None]:
    """Return what is wrong with the schema, and where to go on with its rows."""
    found = list(_findings(tables, schema))
    codes = {each.code for each in found}
    if "schema_differs" in codes:
        return found, None  # nothing can be walked
    return found, str(Position(mends="foreign_object" not in codes))


def _findings(tables: transaction.Transaction, schema: str) -> Iterator[Finding]:
    quoted = (f'"{schema}"',)
    scripts = "\n".join(each.sql for each in MIGRATIONS)
    found = {name for (name,) in tables.all("tables", quoted)}
    for name in sorted(set(_TABLE.findall(scripts)) - found):
        yield finding("schema_differs", "a table is missing", type="table", name=name)
    indexes = {name for (name,) in tables.all("indexes", quoted)}
    for name in sorted(set(_INDEX.findall(scripts)) - indexes):
        fact = "an index is missing; `limpet schema postgres` shows how it is made"
        yield finding("index_missing", fact, name=name)
    for name, table in tables.all("triggers", quoted):
        fact = "a foreign trigger runs with every write, so that nothing is repaired"
        yield finding("foreign_object", fact, type="trigger", name=name, table=table)
