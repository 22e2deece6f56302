"""Inspecting a SQLite file as a file: its header, its tables and indexes, its pages."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache, partial
from typing import Any

from limpet.backends.sql.check import CheckPosition, RowAccess, walk_some
from limpet.backends.sql.check_rows import finding
from limpet.backends.sql.transaction import load_queries
from limpet.backends.sqlite.errors import APPLICATION_ID, primary_code
from limpet.backends.sqlite.schema import MIGRATIONS, NEWEST
from limpet.backends.sqlite.transaction import SqliteTransaction
from limpet.core.encryption import Ciphers
from limpet.model import Finding

_OBJECTS = load_queries("sqlite", "check")["objects"]
_INCREMENTAL = 2
_COMPLAINTS_MAX = 20  # of SQLite about its pages; with more it is beyond mending by hand
_COMMENT = re.compile(r"--[^\n]*")


def inspect_file(conn: sqlite3.Connection, *, repair: bool) -> tuple[list[Finding], RowAccess]:
    """Return what is wrong with the file, and what may be done with its rows."""
    findings: list[Finding] = []
    try:
        findings += _header(conn)
        if _is_newer(conn):
            return findings, RowAccess.NONE
        missing: list[str] = []
        findings += _schema(conn, missing)
        findings += _pages(conn)
        access = (
            RowAccess.READ if _FORBIDDING & {each.code for each in findings} else RowAccess.REPAIR
        )
        mend = repair and access is RowAccess.REPAIR
        findings += [_missing_index(conn, name, repair=mend) for name in missing]
    except (sqlite3.DatabaseError, UnicodeDecodeError) as cause:
        # The Python module fails at messages of SQLite that quote bytes which are no text.
        if isinstance(cause, sqlite3.DatabaseError) and not is_damage(cause):
            raise
        return [*findings, unreadable(cause)], RowAccess.READ
    return findings, access


# Writing to a damaged file can destroy what could be salvaged from it; and what a
# write does to tables that were changed, or that have foreign triggers, is unknown.
_FORBIDDING = {
    "application_id_wrong",
    "file_damaged",
    "foreign_trigger",
    "schema_differs",
    "table_missing",
    "user_version_wrong",
}


def is_damage(cause: sqlite3.Error) -> bool:
    """Tell whether SQLite found its file damaged; it may also be led to a page behind the end."""
    behind_the_end = sqlite3.SQLITE_IOERR_SHORT_READ
    return (
        primary_code(cause) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        or getattr(cause, "sqlite_errorcode", None) == behind_the_end
    )


def unreadable(cause: Exception, **where: Any) -> Finding:
    complaint = getattr(cause, "sqlite_errorname", "a row that makes no sense")
    return _damaged("cannot be read", complaint, **where)


def _damaged(what: str, complaint: str, **where: Any) -> Finding:
    return finding(
        "file_damaged",
        f"the file {what}; `.recover` of the sqlite3 shell copies what can be salvaged",
        **where,
        sqlite=complaint,
    )


def _number(conn: sqlite3.Connection, pragma: str) -> int:
    (number,) = conn.execute(f"PRAGMA {pragma}").fetchone()
    return int(number)


def _is_newer(conn: sqlite3.Connection) -> bool:
    return _number(conn, "user_version") > NEWEST


def _header(conn: sqlite3.Connection) -> Iterator[Finding]:
    found = _number(conn, "application_id")
    if found != APPLICATION_ID:
        fact = "the file has the application id of another program"
        yield finding("application_id_wrong", fact, found=found, expected=APPLICATION_ID)
    found = _number(conn, "user_version")
    if found != NEWEST:
        fact = "the file has another version of the tables"
        yield finding("user_version_wrong", fact, found=found, expected=NEWEST)
    found = _number(conn, "auto_vacuum")
    if found != _INCREMENTAL:
        fact = "the file does not give back free pages"
        yield finding("auto_vacuum_wrong", fact, found=found, expected=_INCREMENTAL)
    (mode,) = conn.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal" and not _number(conn, "query_only"):  # of which SQLite does not tell
        fact = "the file has no write-ahead log, so that readers and writers wait for each other"
        yield finding("journal_mode_wrong", fact, found=mode, expected="wal")


@cache
def _expected() -> dict[str, tuple[str, str]]:
    with closing(sqlite3.connect(":memory:")) as conn:
        for _, _, script in MIGRATIONS:
            conn.executescript(script)
        return {name: (kind, sql) for kind, name, _, sql in conn.execute(_OBJECTS)}


def _schema(conn: sqlite3.Connection, missing: list[str]) -> Iterator[Finding]:
    found = {}
    for kind, name, table, sql in conn.execute(_OBJECTS).fetchall():
        if name in _expected():
            found[name] = (kind, sql)
        elif kind == "trigger":
            fact = "a foreign trigger runs with every write, so that nothing is repaired"
            yield finding("foreign_trigger", fact, name=name, table=table)
        else:
            fact = "the file has a table, view or index that is not Limpet's"
            yield finding("foreign_object", fact, type=kind, name=name)
    for name, (kind, sql) in _expected().items():
        if name in found:
            if (kind, _plain(sql)) != (found[name][0], _plain(str(found[name][1]))):
                fact = "the definition of a table or an index was changed"
                yield finding("schema_differs", fact, type=kind, name=name)
        elif kind == "index":
            missing.append(name)
        else:
            yield finding("table_missing", "a table is missing", name=name)


def _plain(sql: str) -> str:
    return " ".join(_COMMENT.sub("", sql).split())


def _missing_index(conn: sqlite3.Connection, name: str, *, repair: bool) -> Finding:
    if repair:
        try:
            conn.execute(_expected()[name][1])
        except sqlite3.IntegrityError:
            repair = False  # what should be unique is not: a person has to choose
    return finding("index_missing", "an index is missing", repaired=repair, name=name)


def _pages(conn: sqlite3.Connection) -> Iterator[Finding]:
    """Ask SQLite itself. It names pages, tables and rows, and shows no content."""
    for (answer,) in conn.execute(f"PRAGMA integrity_check({_COMPLAINTS_MAX})").fetchall():
        for complaint in answer.splitlines():
            if complaint != "ok" and not complaint.startswith("***"):
                yield _damaged("is damaged", complaint)


def check_some(
    transaction: SqliteTransaction, ciphers: Ciphers, after: str, *, repair: bool, limit: int
) -> tuple[list[Finding], str | None]:
    """Inspect a part of the file, from a position on; return findings and where to go on.

    A part is the file itself, or up to `limit` keys of one table. A file that SQLite itself finds
    damaged is only read, even with `repair`; the position remembers that.
    """
    transaction.accept_any_text()  # names may have become bytes that are no text
    conn = transaction.conn
    following: CheckPosition | None
    if after == "":
        findings, access = inspect_file(conn, repair=repair)
        following = None if access is RowAccess.NONE else CheckPosition.first(access)
    else:
        findings, following = walk_some(
            transaction,
            ciphers,
            CheckPosition.parse(after),
            repair=repair,
            limit=max(1, limit),
            survive=partial(_survived, writes=repair),
            broken=(sqlite3.DatabaseError,),
        )
    if any(each.code == "file_damaged" for each in findings):
        # Nothing was written. SQLite would report the damage once more when the transaction that
        # met it is committed, and the findings would be lost to that error.
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        conn.execute("BEGIN")
    return findings, None if following is None else str(following)


def _survived(
    cause: Exception, position: CheckPosition, key: int | None, *, writes: bool
) -> list[Finding]:
    """Return what to say of an error, or raise it.

    While nothing is written, a part that cannot be read does not keep the others from being
    inspected: SQLite's own check may have overlooked it. A table that is missing has been reported.
    """
    if writes and position.access is not RowAccess.READ:
        raise cause
    if isinstance(cause, sqlite3.DatabaseError) and not is_damage(cause):
        if primary_code(cause) == sqlite3.SQLITE_ERROR:
            return []
        raise cause
    where = {} if key is None else {"key": key}
    return [unreadable(cause, table=position.walk, **where)]
