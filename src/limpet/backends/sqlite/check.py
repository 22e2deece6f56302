"""Inspecting a SQLite file as a file: its header, its tables and indexes, its pages."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache, partial
from typing import Any

from limpet.backends.sql.checking import Position, finding
from limpet.backends.sql.mending import DAMAGE
from limpet.backends.sqlite.errors import APPLICATION_ID, primary_code
from limpet.backends.sqlite.schema import MIGRATIONS, NEWEST
from limpet.backends.sqlite.transaction import STATEMENTS
from limpet.model import Finding

_OBJECTS = STATEMENTS["objects"]
_INCREMENTAL = 2
_COMPLAINTS_MAX = 20  # of SQLite about its pages; with more it is beyond mending by hand
_COMMENT = re.compile(r"--[^\n]*")

Answer = tuple[list[Finding], str | None]


def check_file(
    conn: sqlite3.Connection, walk: Callable[..., Answer], after: str, *, repair: bool
) -> Answer:
    """Inspect a part of the file, from a position on: first the file itself, then its rows.

    `walk` inspects rows, and takes a position and what survives errors. A file that SQLite itself
    finds damaged is only read, even with `repair`; the position remembers that.
    """
    following: str | None
    if after == "":
        found, following = _inspect(conn, repair=repair)
    else:
        found, following = walk(after, survive=partial(_survived, writes=repair))
    if any(each.code == "file_damaged" for each in found):
        # Nothing was written. SQLite would report the damage once more when the transaction that
        # met it is committed, and the findings would be lost to that error.
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        conn.execute("BEGIN")
    return found, following


def _inspect(conn: sqlite3.Connection, *, repair: bool) -> Answer:
    """Return what is wrong with the file, and where to go on with its rows."""
    found: list[Finding] = []
    missing: list[str] = []
    try:
        found += _header(conn)
        if _number(conn, "user_version") > NEWEST:
            return found, None  # rows mean something that this version does not know
        has_trigger = any(kind == "trigger" for kind, *_ in conn.execute(_OBJECTS))
        found += _schema(conn, missing)
        found += _pages(conn)
        # Writing to a damaged file can destroy what could be salvaged from it; and what a write
        # does to tables that were changed, or that have foreign triggers, is unknown.
        mends = not has_trigger and not any(each.severity == "error" for each in found)
        found += [_missing_index(conn, name, repair=repair and mends) for name in missing]
    except (sqlite3.DatabaseError, UnicodeDecodeError) as cause:
        # The Python module fails at messages of SQLite that quote bytes which are no text.
        if isinstance(cause, sqlite3.DatabaseError) and not _is_damage(cause):
            raise
        return [*found, _unreadable(cause)], str(Position(mends=False))
    return found, str(Position(mends=mends))


def _is_damage(cause: sqlite3.Error) -> bool:
    """Tell whether SQLite found its file damaged; it may also be led to a page behind the end."""
    behind_the_end = sqlite3.SQLITE_IOERR_SHORT_READ
    return (
        primary_code(cause) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        or getattr(cause, "sqlite_errorcode", None) == behind_the_end
    )


def _survived(cause: Exception, position: Position, key: Any, *, writes: bool) -> list[Finding]:
    """Return what to say of an error, or raise it.

    While nothing is written, a part that cannot be read does not keep the others from being
    inspected: SQLite's own check may have overlooked it. A table that is missing has been reported.
    """
    if (writes and position.mends) or not isinstance(cause, (sqlite3.DatabaseError, *DAMAGE)):
        raise cause
    if isinstance(cause, sqlite3.DatabaseError) and not _is_damage(cause):
        if primary_code(cause) == sqlite3.SQLITE_ERROR:
            return []
        raise cause
    where = {} if key is None else {"key": key}
    return [_unreadable(cause, table=position.table, **where)]


def _unreadable(cause: Exception, **where: Any) -> Finding:
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


def _header(conn: sqlite3.Connection) -> Iterator[Finding]:
    for pragma, expected in (("application_id", APPLICATION_ID), ("user_version", NEWEST)):
        found = _number(conn, pragma)
        if found != expected:
            fact = "the file is marked as that of another program or version"
            yield finding("header_wrong", fact, pragma=pragma, found=found, expected=expected)
    vacuum = _number(conn, "auto_vacuum")
    if vacuum != _INCREMENTAL:
        fact = "the file does not give back free pages"
        yield finding("pragma_wrong", fact, auto_vacuum=vacuum, expected=_INCREMENTAL)
    (mode,) = conn.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal" and not _number(conn, "query_only"):  # then SQLite does not report it
        fact = "the file has no write-ahead log, so that readers and writers wait for each other"
        yield finding("pragma_wrong", fact, journal_mode=mode, expected="wal")


@cache
def _expected() -> dict[str, tuple[str, str]]:
    with closing(sqlite3.connect(":memory:")) as conn:
        for each in MIGRATIONS:
            conn.executescript(each.sql)
        return {name: (kind, sql) for kind, name, _, sql in conn.execute(_OBJECTS)}


def _schema(conn: sqlite3.Connection, missing: list[str]) -> Iterator[Finding]:
    found = {}
    for kind, name, table, sql in conn.execute(_OBJECTS).fetchall():
        if name in _expected():
            found[name] = (kind, _plain(str(sql)))
        else:
            fact = "the file has something that is not Limpet's"
            if kind == "trigger":
                fact = "a foreign trigger runs with every write, so that nothing is repaired"
            yield finding("foreign_object", fact, type=kind, name=name, table=table)
    for name, (kind, sql) in _expected().items():
        if name not in found and kind == "index":
            missing.append(name)
        elif found.get(name) != (kind, _plain(sql)):
            fact = "a table or an index was changed" if name in found else "a table is missing"
            yield finding("schema_differs", fact, type=kind, name=name)
    if "store" in found and conn.execute("SELECT count(*) FROM store").fetchone() != (1,):
        yield finding(
            "schema_differs", "the id of the store is missing", type="table", name="store"
        )


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
