"""The tables of `SqliteSaver`, opened read-only."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from limpet.compat.langgraph.migrate.importing import (
    OTHER_LAYOUT,
    CheckpointRow,
    Typed,
    WriteRow,
    check_columns,
)
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

_COLUMNS = {
    "checkpoints": ("thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "type"),
    "writes": ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type"),
}

# Names are bound as bytes and cast: text in the file need not be valid UTF-8.

# The next thread in the order of the primary keys.
_NEXT_THREAD = """
SELECT min(thread_id) FROM (
    SELECT * FROM (
        SELECT thread_id FROM checkpoints
         WHERE thread_id >= CAST(? AS TEXT) AND thread_id IS NOT CAST(? AS TEXT)
           AND substr(thread_id, 1, length(CAST(? AS TEXT))) = CAST(? AS TEXT)
           AND typeof(thread_id) = 'text'
         ORDER BY thread_id LIMIT 1)
    UNION ALL
    SELECT * FROM (
        SELECT thread_id FROM writes
         WHERE thread_id >= CAST(? AS TEXT) AND thread_id IS NOT CAST(? AS TEXT)
           AND substr(thread_id, 1, length(CAST(? AS TEXT))) = CAST(? AS TEXT)
           AND typeof(thread_id) = 'text'
         ORDER BY thread_id LIMIT 1))
"""

_CHECKPOINTS = """
SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, metadata, type, checkpoint
  FROM checkpoints WHERE thread_id = CAST(? AS TEXT)
 ORDER BY checkpoint_ns, checkpoint_id
"""

_WRITES = """
SELECT checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
  FROM writes WHERE thread_id = CAST(? AS TEXT)
 ORDER BY checkpoint_ns, checkpoint_id, task_id, idx
"""

# The table had no such column before 3.1 of the package.
_WRITES_WITHOUT_PATH = _WRITES.replace("task_path", "''")

_SENDS = """
SELECT type, value FROM writes
 WHERE thread_id = CAST(? AS TEXT) AND checkpoint_ns = CAST(? AS TEXT)
   AND checkpoint_id = CAST(? AS TEXT) AND channel = CAST(? AS TEXT)
 ORDER BY task_id, idx
"""


class SqliteSaverTables:
    def __init__(self, path: str, conn: sqlite3.Connection) -> None:
        self._path = path
        self._conn = conn
        columns = self._columns()
        self._writes = _WRITES if "task_path" in columns["writes"] else _WRITES_WITHOUT_PATH

    def _columns(self) -> dict[str, set[str]]:
        query = "SELECT name FROM pragma_table_info(CAST(? AS TEXT))"
        found = {name: {each for (each,) in self._rows(query, name)} for name in _COLUMNS}
        nothing = f"the file has no tables of a SqliteSaver. path=`{self._path}`"
        check_columns(found, _COLUMNS, nothing)
        return found

    def threads(self, prefix: str) -> Iterator[str]:
        last: str | None = None
        while True:
            start = prefix if last is None else last
            of_each_table = (start, last, prefix, prefix)
            ((last,),) = self._rows(_NEXT_THREAD, *of_each_table, *of_each_table)
            if last is None:
                return
            yield last

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._translated():
            self._conn.execute("BEGIN")
        try:
            yield
        finally:
            with self._translated():
                self._conn.execute("ROLLBACK")

    def writes(self, thread_id: str) -> Iterator[WriteRow]:
        for row in self._rows(self._writes, thread_id):
            yield WriteRow._make((*row[:-2], row[-2:]))

    def checkpoints(self, thread_id: str) -> Iterator[CheckpointRow]:
        for row in self._rows(_CHECKPOINTS, thread_id):
            yield CheckpointRow._make((*row[:-2], _load(row[-2:])))

    def sends(self, thread_id: str, namespace: str, checkpoint_id: str) -> list[Typed]:
        return [*self._rows(_SENDS, thread_id, namespace, checkpoint_id, TASKS)]

    def _rows(self, query: str, *names: str | None) -> Iterator[Any]:
        bound = [None if each is None else each.encode("utf-8", _ESCAPE) for each in names]
        with self._translated(), closing(self._conn.execute(query, bound)) as rows:
            yield from rows

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as cause:
            raise _our_error(self._path, cause) from cause


def _load(value: Typed) -> Callable[[SerializerProtocol], Any]:
    return lambda serde: serde.loads_typed(value)


@contextmanager
def opened(path: str) -> Iterator[SqliteSaverTables]:
    if not os.path.isfile(path):
        raise NotFound(f"the file does not exist. path=`{path}`")
    with closing(_connected(path)) as conn:
        yield SqliteSaverTables(path, conn)


def _connected(path: str) -> sqlite3.Connection:
    try:
        return _connection(path, "mode=ro")
    except sqlite3.OperationalError as cause:
        # In a read-only folder SQLite opens a database in WAL mode only as immutable. That would
        # skip what is still in the log.
        if _has_log(path):
            raise _our_error(path, cause) from cause
    except sqlite3.Error as cause:
        raise _our_error(path, cause) from cause
    try:
        return _connection(path, "mode=ro&immutable=1")
    except sqlite3.Error as cause:
        raise _our_error(path, cause) from cause


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
        conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        conn.close()
        raise
    return conn


def _our_error(path: str, cause: sqlite3.Error) -> LimpetError:
    name = getattr(cause, "sqlite_errorname", "unknown")
    where = f"path=`{path}` sqlite=`{name}`"
    code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_INTERNAL)
    if code == sqlite3.SQLITE_IOERR_SHORT_READ:  # the file is cut short
        return Corrupt(f"the database is damaged. {where}")
    match code & 0xFF:
        case sqlite3.SQLITE_NOTADB:
            return InvalidInput(f"the file is not a SQLite database. {where}")
        case sqlite3.SQLITE_CORRUPT:
            return Corrupt(f"the database is damaged. {where}")
        case sqlite3.SQLITE_ERROR | sqlite3.SQLITE_SCHEMA:  # no such column, or module
            return Unsupported(f"{OTHER_LAYOUT}. {where}")
        case sqlite3.SQLITE_TOOBIG:
            return InvalidInput(f"a value is too large for SQLite. {where}")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Unavailable(f"other writers hold the file. {where}")
        case sqlite3.SQLITE_READONLY:
            return Unavailable(f"the folder is read-only: copy the file elsewhere. {where}")
    return Unavailable(f"SQLite cannot read the file. {where}")
