"""The tables of other savers: what is read of them, and those of `SqliteSaver`."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

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


class SaverTables(Protocol):
    """The tables of another saver, opened for reading."""

    def threads(self, prefix: str) -> Iterator[str]:
        """Yield the ids of the threads that begin with a prefix."""

    def reading(self) -> AbstractContextManager[object]:
        """Return a context in which all reads see one moment."""

    def writes(self, thread_id: str) -> Iterator[WriteRow]:
        """Yield the writes of a thread, those of one task together, by index."""

    def checkpoints(self, thread_id: str) -> Iterator[CheckpointRow]:
        """Yield the checkpoints of a thread, by namespace, the oldest first."""

    def sends(self, thread_id: str, namespace: str, checkpoint_id: str) -> list[Typed]:
        """Return the pending sends of a checkpoint in LangGraph's order."""


def check_columns(
    found: Mapping[str, Collection[str]], wanted: Mapping[str, Collection[str]], nothing: str
) -> None:
    """Raise NotFound with `nothing` if a table is missing, Unsupported if a column is."""
    for table, columns in wanted.items():
        if not found[table]:
            raise NotFound(f"{nothing} table=`{table}`")
        missing = [each for each in columns if each not in found[table]]
        if missing:
            where = f"table=`{table}` column=`{missing[0]}`"
            raise Unsupported(f"{OTHER_LAYOUT}. {where}")


# The tables of `SqliteSaver`, opened read-only

_COLUMNS = {
    "checkpoints": ("thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "type"),
    "writes": ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type"),
}

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
    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        found = {name: file.columns(name) for name in _COLUMNS}
        nothing = f"the file has no tables of a SqliteSaver. path=`{file.path}`"
        check_columns(found, _COLUMNS, nothing)
        self._writes = _WRITES if "task_path" in found["writes"] else _WRITES_WITHOUT_PATH

    def threads(self, prefix: str) -> Iterator[str]:
        last: str | None = None
        while True:
            start = prefix if last is None else last
            of_each_table = (start, last, prefix, prefix)
            ((last,),) = self._file.rows(_NEXT_THREAD, *of_each_table, *of_each_table)
            if last is None:
                return
            yield last

    def reading(self) -> AbstractContextManager[None]:
        return self._file.reading()

    def writes(self, thread_id: str) -> Iterator[WriteRow]:
        for row in self._file.rows(self._writes, thread_id):
            yield WriteRow._make((*row[:-2], row[-2:]))

    def checkpoints(self, thread_id: str) -> Iterator[CheckpointRow]:
        for row in self._file.rows(_CHECKPOINTS, thread_id):
            yield CheckpointRow._make((*row[:-2], _load(row[-2:])))

    def sends(self, thread_id: str, namespace: str, checkpoint_id: str) -> list[Typed]:
        return [*self._file.rows(_SENDS, thread_id, namespace, checkpoint_id, TASKS)]


def _load(value: Typed) -> Callable[[SerializerProtocol], Any]:
    return lambda serde: serde.loads_typed(value)


@contextmanager
def opened(path: str) -> Iterator[SqliteSaverTables]:
    with sqlite_files.opened(path, other_layout=OTHER_LAYOUT) as file:
        yield SqliteSaverTables(file)
