"""A SQLite file of another program, opened read-only. It may be in use."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from limpet.errors import (
    Corrupt,
    InvalidInput,
    LimpetError,
    NotFound,
    Unavailable,
    Unsupported,
)

_WAIT_S = 30.0
_ESCAPE = "surrogateescape"


class SqliteFile:
    """`other_layout` is the message if a query does not fit the tables."""

    def __init__(self, path: str, conn: sqlite3.Connection, other_layout: str) -> None:
        self.path = path
        self._conn = conn
        self._other_layout = other_layout

    def columns(self, table: str) -> set[str]:
        """Return the columns of a table; nothing if there is none, or a view, which may not end."""
        query = (
            "SELECT info.name FROM sqlite_schema AS found, pragma_table_info(found.name) AS info"
            " WHERE found.type = 'table' AND found.name = CAST(? AS TEXT) COLLATE NOCASE"
        )
        return {name for (name,) in self.rows(query, table)}

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let all reads of a block see one moment."""
        with self._translated():
            self._conn.execute("BEGIN")
        try:
            yield
        finally:
            with self._translated():
                self._conn.execute("ROLLBACK")

    def rows(self, query: str, *names: str | None) -> Iterator[Any]:
        """Yield the rows of a query. Names are bound as bytes, so it must cast them to TEXT.

        Text in the file need not be valid UTF-8: what is not is returned as surrogates.
        """
        bound = [None if each is None else each.encode("utf-8", _ESCAPE) for each in names]
        with self._translated(), closing(self._conn.execute(query, bound)) as rows:
            yield from rows

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as cause:
            raise _our_error(self.path, cause, self._other_layout) from cause


@contextmanager
def opened(path: str, *, other_layout: str) -> Iterator[SqliteFile]:
    """Open a file for a block.

    Raises:
        NotFound: the file does not exist.
        InvalidInput: it is not a SQLite database.
    """
    if not os.path.isfile(path):
        raise NotFound(f"the file does not exist. path=`{path}`")
    with closing(_connected(path, other_layout)) as conn:
        yield SqliteFile(path, conn, other_layout)


def _connected(path: str, other_layout: str) -> sqlite3.Connection:
    try:
        return _connection(path, "mode=ro")
    except sqlite3.OperationalError as cause:
        # In a read-only folder SQLite opens a database in WAL mode only as immutable. That would
        # skip what is still in the log.
        if _has_log(path):
            raise _our_error(path, cause, other_layout) from cause
    except sqlite3.Error as cause:
        raise _our_error(path, cause, other_layout) from cause
    try:
        return _connection(path, "mode=ro&immutable=1")
    except sqlite3.Error as cause:
        raise _our_error(path, cause, other_layout) from cause


def _has_log(path: str) -> bool:
    try:
        return os.path.getsize(f"{path}-wal") > 0
    except OSError:
        return False


def _connection(path: str, options: str) -> sqlite3.Connection:
    url = f"{Path(path).as_uri()}?{options}"
    conn = sqlite3.connect(url, uri=True, timeout=_WAIT_S, isolation_level=None)
    # Invalid UTF-8 is refused in its row, instead of ending the import.
    conn.text_factory = lambda text: text.decode("utf-8", _ESCAPE)
    try:
        conn.execute("PRAGMA trusted_schema = OFF")
        conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        conn.close()
        raise
    return conn


_ERRORS: dict[int, tuple[type[LimpetError], str]] = {
    sqlite3.SQLITE_NOTADB: (InvalidInput, "the file is not a SQLite database"),
    sqlite3.SQLITE_CORRUPT: (Corrupt, "the database is damaged"),
    sqlite3.SQLITE_ERROR: (Unsupported, ""),  # no such column, or module
    sqlite3.SQLITE_SCHEMA: (Unsupported, ""),
    sqlite3.SQLITE_TOOBIG: (InvalidInput, "a value is too large for SQLite"),
    sqlite3.SQLITE_BUSY: (Unavailable, "other writers hold the file"),
    sqlite3.SQLITE_LOCKED: (Unavailable, "other writers hold the file"),
    sqlite3.SQLITE_READONLY: (Unavailable, "the folder is read-only: copy the file elsewhere"),
}


def _our_error(path: str, cause: sqlite3.Error, other_layout: str) -> LimpetError:
    name = getattr(cause, "sqlite_errorname", "unknown")
    where = f"path=`{path}` sqlite=`{name}`"
    code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_INTERNAL)
    if code == sqlite3.SQLITE_IOERR_SHORT_READ:  # the file is cut short
        return Corrupt(f"the database is damaged. {where}")
    kind, fact = _ERRORS.get(code & 0xFF, (Unavailable, "SQLite cannot read the file"))
    return kind(f"{fact or other_layout}. {where}")
