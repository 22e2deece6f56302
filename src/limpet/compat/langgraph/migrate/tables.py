"""The tables of other savers: what is read of them, and those of `SqliteSaver`."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from limpet.compat import sqlite_files
from limpet.compat.sqlite_files import SqliteFile
from limpet.errors import NotFound, Unsupported

OTHER_LAYOUT = "the tables have another layout than LangGraph's savers"

Typed = tuple[str, bytes]
"""A value as a serializer returns it: format and bytes."""


class CheckpointRow(NamedTuple):
    """A row of a checkpoint. `load` decodes it with its values."""

    namespace: str
    id: str
    parent_id: str | None
    metadata: str | bytes | None
    load: Callable[[SerializerProtocol], Any]


class WriteRow(NamedTuple):
    namespace: str
    checkpoint_id: str
    task_id: str
    task_path: str
    idx: int
    channel: str
    value: Typed


class Source(Protocol):
    """A database that is read: `SqliteFile`, and the same for PostgreSQL."""

    def columns(self, table: str, /) -> set[str]: ...

    def reading(self) -> AbstractContextManager[object]: ...

    def rows(self, query: str, /, *names: Any) -> Iterator[Any]: ...


class SaverTables:
    """The tables of another saver, opened for reading. A subclass has the statements."""

    nothing: str
    columns: ClassVar[Mapping[str, Collection[str]]]  # by table, the one of writes last
    threads_sql: str
    writes_sql: str
    sends_sql: str

    def __init__(self, source: Source) -> None:
        """Raise NotFound if a table is missing, Unsupported if a column is."""
        self._source = source
        self.reading = source.reading  # a context in which all reads see one moment
        with self.reading():
            found = {table: source.columns(table) for table in self.columns}
        for table, names in self.columns.items():
            if not found[table]:
                raise NotFound(f"{self.nothing} table=`{table}`")
            missing = [each for each in names if each not in found[table]]
            if missing:
                where = f"table=`{table}` column=`{missing[0]}`"
                raise Unsupported(f"{OTHER_LAYOUT}. {where}")
        if "task_path" not in found[table]:  # as in early versions
            self.writes_sql = self.writes_sql.replace("task_path", "''")

    def threads(self, prefix: str) -> list[str]:
        """Return the ids of the threads that begin with a prefix."""
        with self.reading():
            return [thread_id for (thread_id,) in self._source.rows(self.threads_sql, prefix)]

    def writes(self, thread_id: str) -> Iterator[WriteRow]:
        """Yield the writes of a thread, those of one task together, by index."""
        for row in self._source.rows(self.writes_sql, thread_id):
            yield WriteRow._make((*row[:-2], row[-2:]))

    def checkpoints(self, thread_id: str) -> Iterator[CheckpointRow]:
        """Yield the checkpoints of a thread, by namespace, the oldest first."""
        raise NotImplementedError

    def sends(self, thread_id: str, namespace: str, checkpoint_id: str | None) -> list[Typed]:
        """Return the pending sends of a checkpoint in LangGraph's order."""
        return [*self._source.rows(self.sends_sql, thread_id, namespace, checkpoint_id, TASKS)]


# The tables of `SqliteSaver`, opened read-only

_KEY = ("thread_id", "checkpoint_ns", "checkpoint_id")
_CHECKPOINTS = """
SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, metadata, type, checkpoint
  FROM checkpoints WHERE thread_id = CAST(? AS TEXT)
 ORDER BY checkpoint_ns, checkpoint_id
"""


class SqliteSaverTables(SaverTables):
    columns: ClassVar = {
        "checkpoints": (*_KEY, "parent_checkpoint_id", "type"),
        "writes": (*_KEY, "task_id", "idx", "channel", "type"),
    }
    threads_sql = """
SELECT thread_id
  FROM (SELECT CAST(? AS TEXT) AS prefix),
       (SELECT thread_id FROM checkpoints UNION SELECT thread_id FROM writes)
 WHERE typeof(thread_id) = 'text' AND substr(thread_id, 1, length(prefix)) = prefix
 ORDER BY thread_id
"""
    writes_sql = """
SELECT checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
  FROM writes WHERE thread_id = CAST(? AS TEXT)
 ORDER BY checkpoint_ns, checkpoint_id, task_id, idx
"""
    sends_sql = """
SELECT type, value FROM writes
 WHERE thread_id = CAST(? AS TEXT) AND checkpoint_ns = CAST(? AS TEXT)
   AND checkpoint_id = CAST(? AS TEXT) AND channel = CAST(? AS TEXT)
 ORDER BY task_id, idx
"""

    def __init__(self, file: SqliteFile) -> None:
        self.nothing = f"the file has no tables of a SqliteSaver. path=`{file.path}`"
        super().__init__(file)

    def checkpoints(self, thread_id: str) -> Iterator[CheckpointRow]:
        for row in self._source.rows(_CHECKPOINTS, thread_id):
            yield CheckpointRow._make((*row[:-2], partial(_load, row[-2:])))


def _load(value: Typed, serde: SerializerProtocol) -> Any:
    return serde.loads_typed(value)


@contextmanager
def opened(path: str) -> Iterator[SqliteSaverTables]:
    with sqlite_files.opened(path, other_layout=OTHER_LAYOUT) as file:
        yield SqliteSaverTables(file)
