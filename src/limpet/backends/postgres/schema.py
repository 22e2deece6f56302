"""Making the tables of a PostgreSQL server, or finding that they are there and up to date."""

import zlib
from contextlib import suppress

import psycopg

from limpet.backends.postgres.errors import is_race, translated
from limpet.backends.postgres.transaction import Connection
from limpet.backends.sql import statements
from limpet.errors import Unavailable, Unsupported
from limpet.protocol import Clock

_TRIES_MAX = 200
_PAUSE_S = 0.05
_LOCK = 0x484F4C44  # "HOLD": the first key of our advisory locks; the second is the schema's

# What may happen to two who make the same things at once, where no advisory lock keeps them apart:
# it exists already, or its row in a catalogue was changed under us.
_TWICE = {"42P06", "42P07", "42710", "42723", "XX000"}


def make_ready(
    conn: Connection, schema: str, *, setup: bool, advisory_locks: bool, clock: Clock
) -> None:
    """Make the tables or bring them up to date; without `setup` only look whether they are.

    Any number of processes may do this at once.
    """
    newest = statements.load_migrations("postgres")[-1][0]
    for _ in range(_TRIES_MAX):
        version = _version(conn, schema)
        if version > newest:
            raise Unsupported(
                "the tables were made by a newer version of limpet. "
                f"schema=`{schema}` found=`{version}` known=`{newest}`"
            )
        if version == newest:
            return
        if not setup:
            raise Unavailable(
                "the tables are missing or not up to date, and setup=False: have "
                f"`limpet schema postgres --schema {schema}` run by a role that may create them. "
                f"found=`{version}` needed=`{newest}`"
            )
        try:
            _migrate(conn, schema, advisory_locks=advisory_locks)
        except psycopg.Error as cause:
            _roll_back(conn)
            if cause.sqlstate == "42501":
                raise Unavailable(
                    "the role may not create the tables: have "
                    f"`limpet schema postgres --schema {schema}` run by one that may, and open "
                    "with setup=False"
                ) from cause
            if not is_race(cause) and cause.sqlstate not in _TWICE:
                raise translated(cause) from cause
            clock.sleep(_PAUSE_S * (0.5 + clock.jitter()))
    raise Unavailable(f"others kept the tables from being made. schema=`{schema}`")


def _version(conn: Connection, schema: str) -> int:
    """Return the version of the tables, 0 if there are none."""
    text = statements.in_schema("SELECT max(version) FROM limpet.schema_migrations;", schema)
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
        # Ends with the transaction, so that it works behind a pooler and is never left behind.
        key = zlib.crc32(schema.encode()) - 2**31
        conn.execute(b"SELECT pg_advisory_xact_lock(%s::int, %s::int)", (_LOCK, key))
    version = _version_inside(conn, schema)
    for number, name, script in statements.load_migrations("postgres"):
        if number == 0 and not _exists(conn, b"to_regnamespace", f'"{schema}"'):
            conn.execute(statements.in_schema(script, schema).encode())
        if number > version:
            conn.execute(statements.in_schema(script, schema).encode())
            note = "INSERT INTO limpet.schema_migrations (version, name) VALUES (%s, %s);"
            conn.execute(statements.in_schema(note, schema).encode(), (number, name))
    conn.execute(b"COMMIT")


def _version_inside(conn: Connection, schema: str) -> int:
    """Return the version inside a transaction, which an error would end."""
    there = _exists(conn, b"to_regclass", f'"{schema}".schema_migrations')
    return _version(conn, schema) if there else 0


def _exists(conn: Connection, lookup: bytes, name: str) -> bool:
    found = conn.execute(b"SELECT %b(%%s) IS NOT NULL" % lookup, (name,)).fetchone()
    return found == (True,)


def _roll_back(conn: Connection) -> None:
    with suppress(psycopg.Error):
        conn.execute(b"ROLLBACK")
