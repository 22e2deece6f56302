"""The tables of `SqliteSaver`, read and never written."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from limpet.backends.sqlite.errors import translated
from limpet.compat.langgraph.migrate.importing import CheckpointRow, Typed, WriteRow, check_columns
from limpet.errors import NotFound

_WAIT_S = 30.0
_ESCAPE = "surrogateescape"

_COLUMNS = {
    "checkpoints": ("thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "type"),
    "writes": ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type"),
}

# Names are bound as bytes and cast: text in the file may be none, and is found nevertheless.

# The thread that follows one, in the order of the keys: both tables begin with it.
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

# As the table was before 3.1 of the package.
_WRITES_WITHOUT_PATH = """
SELECT checkpoint_ns, checkpoint_id, task_id, '', idx, channel, type, value
  FROM writes WHERE thread_id = CAST(? AS TEXT)
 ORDER BY checkpoint_ns, checkpoint_id, task_id, idx
"""

_SENDS = """
SELECT type, value FROM writes
 WHERE thread_id = CAST(? AS TEXT) AND checkpoint_ns = CAST(? AS TEXT)
   AND checkpoint_id = CAST(? AS TEXT) AND channel = CAST(? AS TEXT)
 ORDER BY task_id, idx
"""


class SqliteTables:
    """The tables in one file."""

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
        """Yield the ids of the threads that begin with a prefix, in text order."""
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
        """Return a context in which all that is read is of one moment. Writers do not wait."""
        with self._told():
            self._conn.execute("BEGIN")
        try:
            yield
        finally:
            with self._told():
                self._conn.execute("ROLLBACK")

    def writes(self, thread_id: str) -> Iterator[WriteRow]:
        """Yield what the tasks of a thread wrote."""
        for row in self._rows(self._writes, thread_id):
            yield WriteRow._make((*row[:-2], row[-2:]))

    def checkpoints(self, thread_id: str) -> Iterator[CheckpointRow]:
        """Yield the checkpoints of a thread."""
        for row in self._rows(_CHECKPOINTS, thread_id):
            yield CheckpointRow._make((*row[:-2], _load(row[-2:])))

    def sends(self, thread_id: str, namespace: str, checkpoint_id: str) -> list[Typed]:
        """Return what waits on a checkpoint to be sent."""
        return [*self._rows(_SENDS, thread_id, namespace, checkpoint_id, TASKS)]

    def _rows(self, query: str, *names: str | None) -> Iterator[Any]:
        bound = [None if each is None else each.encode("utf-8", _ESCAPE) for each in names]
        with self._told(), closing(self._conn.execute(query, bound)) as rows:
            yield from rows

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as cause:
            raise translated(self._path, cause) from cause


def _load(value: Typed) -> Callable[[SerializerProtocol], Any]:
    return lambda serde: serde.loads_typed(value)


@contextmanager
def opened(path: str) -> Iterator[SqliteTables]:
    """Open the tables of a file until the block ends."""
    if not os.path.isfile(path):
        raise NotFound(f"there is no such file. path=`{path}`")
    with closing(_connected(path)) as conn:
        yield SqliteTables(path, conn)


def _connected(path: str) -> sqlite3.Connection:
    try:
        return _connection(path, "mode=ro")
    except sqlite3.OperationalError as cause:
        # Where nothing can be created beside it, a file is only read as one that never changes.
        # That would pass over what a writer left in the log.
        if _has_log(path):
            raise translated(path, cause) from cause
    except sqlite3.Error as cause:
        raise translated(path, cause) from cause
    try:
        return _connection(path, "mode=ro&immutable=1")
    except sqlite3.Error as cause:
        raise translated(path, cause) from cause


def _has_log(path: str) -> bool:
    try:
        return os.path.getsize(f"{path}-wal") > 0
    except OSError:
        return False


def _connection(path: str, options: str) -> sqlite3.Connection:
    url = f"{Path(path).as_uri()}?{options}"
    conn = sqlite3.connect(url, uri=True, timeout=_WAIT_S, isolation_level=None)
    # Text that is none is refused where it stands, instead of ending the import.
    conn.text_factory = lambda text: text.decode("utf-8", _ESCAPE)
    try:
        conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        conn.close()
        raise
    return conn
