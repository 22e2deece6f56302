"""Inspecting a SQLite file, a bounded part at a time.

First the file as a whole, then table after table by integer keys. The order matters to `repair`:
what owns is mended before what is owned, so that one pass mends all that can be mended.
"""

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from holdfast.backends._sqlite_check_file import Trust, inspect_file, is_damage, unreadable
from holdfast.backends._sqlite_check_rows import Rows
from holdfast.backends._sqlite_errors import primary_code
from holdfast.backends._sqlite_repair import DAMAGE, STATEMENTS
from holdfast.core.ids import SEQ_MAX
from holdfast.core.limits import MIB
from holdfast.errors import Corrupt, InvalidInput
from holdfast.model import Finding

_KEY_MIN = -SEQ_MAX - 1
_STATES_BYTES_MAX = 64 * MIB  # in one part, which with repair keeps other writers waiting

_WALKS: dict[str, Callable[[Rows, int], Iterator[Finding]]] = {
    "watermark": Rows.watermark,
    "owners": Rows.owner,
    "scopes": Rows.scope,
    "sessions": Rows.session,
    "snapshots": Rows.snapshot,
    "bodies": Rows.body,
    "labels": Rows.label,
    "notes": Rows.note,
}
_ORDER = list(_WALKS)


class _Place(NamedTuple):
    """Where to go on: with which key of which walk, and whether rows may be mended."""

    walk: str
    start: int
    trust: Trust

    def __str__(self) -> str:
        return f"{self.walk}:{self.start}:{self.trust.name}"

    @classmethod
    def parse(cls, text: str) -> "_Place":
        try:
            walk, start, trust = text.split(":")
            return cls(_ORDER[_ORDER.index(walk)], int(start), Trust[trust])
        except (KeyError, ValueError):
            raise InvalidInput("the place is not one that check has given") from None

    def next_walk(self) -> "_Place | None":
        index = _ORDER.index(self.walk) + 1
        return _Place(_ORDER[index], _KEY_MIN, self.trust) if index < len(_ORDER) else None


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
        following: _Place | None
        if after == "":
            findings, trust = inspect_file(conn, repair=repair)
            following = None if trust is Trust.STOP else _Place(_ORDER[0], _KEY_MIN, trust)
        else:
            place = _Place.parse(after)
            findings, following = _walk(conn, place, repair=repair, limit=max(1, limit))
        if any(each.code == "file_damaged" for each in findings):
            # Nothing was written. SQLite would report the damage once more when the transaction
            # that met it is committed, and the findings would be lost to that error.
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            conn.execute("BEGIN")
        return findings, None if following is None else str(following)
    finally:
        conn.text_factory = before


def _walk(
    conn: sqlite3.Connection, place: _Place, *, repair: bool, limit: int
) -> tuple[list[Finding], _Place | None]:
    rows = Rows(conn, repair=repair and place.trust is Trust.MEND)
    findings: list[Finding] = []
    start = place.start
    try:
        keys = _keys(conn, place, limit)
    except (sqlite3.DatabaseError, *DAMAGE) as cause:
        return _survived(cause, place, None), place.next_walk()
    for key in keys:
        try:
            if key < start:  # a damaged tree can lead around in circles
                raise Corrupt("keys are not in order")
            findings += _WALKS[place.walk](rows, key)
        except (sqlite3.DatabaseError, *DAMAGE) as cause:
            findings += _survived(cause, place, key)
        start = max(start, key + 1)
        if rows.spent >= _STATES_BYTES_MAX:
            break
    else:
        if len(keys) < limit:
            return findings, place.next_walk()
    # A page without any progress must be the last: its successor would be the same.
    ahead = place.start < start <= SEQ_MAX
    return findings, place._replace(start=start) if ahead else place.next_walk()


def _keys(conn: sqlite3.Connection, place: _Place, limit: int) -> list[int]:
    values = {"start": place.start, "limit": limit}
    return [int(key) for (key,) in conn.execute(STATEMENTS[f"walk_{place.walk}"], values)]


def _survived(cause: Exception, place: _Place, key: int | None) -> list[Finding]:
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
