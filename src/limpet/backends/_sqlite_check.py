"""Inspecting a SQLite file, a bounded part at a time: the file as a whole, then its tables."""

import sqlite3
from functools import partial

from limpet.backends._relational.check import Place, Trust, walk_some
from limpet.backends._sqlite_check_file import inspect_file, is_damage, unreadable
from limpet.backends._sqlite_errors import primary_code
from limpet.backends._sqlite_turn import SqliteTurn
from limpet.model import Finding


def check_some(
    conn: sqlite3.Connection, after: str, *, repair: bool, limit: int
) -> tuple[list[Finding], str | None]:
    """Inspect a part of the file, from a place on; return findings and where to go on.

    A part is the file itself, or up to `limit` keys of one table. A file that SQLite itself finds
    damaged is only looked at, whatever `repair` says; that is remembered in the place.
    """
    before = conn.text_factory
    # Names may have become bytes that are no text. They have to be looked at all the same.
    conn.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    try:
        following: Place | None
        if after == "":
            findings, trust = inspect_file(conn, repair=repair)
            following = None if trust is Trust.STOP else Place.first(trust)
        else:
            findings, following = walk_some(
                SqliteTurn(conn),
                Place.parse(after),
                repair=repair,
                limit=max(1, limit),
                survive=_survived,
                broken=(sqlite3.DatabaseError,),
            )
        if any(each.code == "file_damaged" for each in findings):
            # Nothing was written. SQLite would report the damage once more when the transaction
            # that met it is committed, and the findings would be lost to that error.
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            conn.execute("BEGIN")
        return findings, None if following is None else str(following)
    finally:
        conn.text_factory = before


def _survived(cause: Exception, place: Place, key: int | None) -> list[Finding]:
    """Return what to say of an error, or raise it.

    In a file that is known to be damaged, and so is not written to, a part that cannot be read does
    not keep the others from being inspected. A table that is missing has been reported.
    """
    if place.trust is not Trust.LOOK:
        raise cause
    if isinstance(cause, sqlite3.DatabaseError) and not is_damage(cause):
        if primary_code(cause) == sqlite3.SQLITE_ERROR:
            return []
        raise cause
    where = {} if key is None else {"key": key}
    return [unreadable(cause, table=place.walk, **where)]
