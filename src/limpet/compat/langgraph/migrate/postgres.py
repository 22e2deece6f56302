"""The tables of `PostgresSaver`, in read-only transactions."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, ClassVar

import psycopg
from langgraph.checkpoint.serde.base import SerializerProtocol

from limpet.compat.langgraph.migrate.tables import OTHER_LAYOUT, CheckpointRow, SaverTables, Source
from limpet.errors import Corrupt, InvalidInput, LimpetError, Unavailable, Unsupported

_CONNECT_S = 10
_numbers = count()
_BATCH = 16  # rows that the server sends at once: each may hold a large value

_COLUMNS_OF = """
SELECT attname FROM pg_attribute
 WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""

_CHECKPOINTS = """
SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, metadata::text, checkpoint::text
  FROM checkpoints WHERE thread_id = %s ORDER BY checkpoint_ns, checkpoint_id
"""

_BLOBS = """
SELECT channel, type, blob FROM checkpoint_blobs
 WHERE thread_id = %s AND checkpoint_ns = %s
   AND (channel, version) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
"""


class PostgresDatabase:
    """A database that is read, with the methods of a `SqliteFile`."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn

    def columns(self, table: str) -> set[str]:
        return {name for (name,) in self.rows(_COLUMNS_OF, table)}

    @contextmanager
    def reading(self) -> Iterator[None]:
        with _translated(), self._conn.transaction():
            yield

    def rows(self, query: str, *names: Any) -> Iterator[Any]:
        with _translated(), self._conn.cursor(f"limpet_{next(_numbers)}", binary=True) as rows:
            rows.itersize = _BATCH
            rows.execute(query.encode(), names)
            yield from rows


class PostgresSaverTables(SaverTables):
    nothing = "the database has no tables of a PostgresSaver."
    columns: ClassVar = {
        "checkpoints": ("checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint"),
        "checkpoint_blobs": ("checkpoint_ns", "channel", "version", "type", "blob"),
        "checkpoint_writes": ("checkpoint_ns", "checkpoint_id", "task_id", "idx", "type", "blob"),
    }
    threads_sql = """
SELECT thread_id FROM (SELECT thread_id FROM checkpoints
                        UNION SELECT thread_id FROM checkpoint_writes) AS found
 WHERE starts_with(thread_id, %s) ORDER BY thread_id
"""
    writes_sql = """
SELECT checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob
  FROM checkpoint_writes WHERE thread_id = %s ORDER BY checkpoint_ns, checkpoint_id, task_id, idx
"""
    sends_sql = """
SELECT type, blob FROM checkpoint_writes
 WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s AND channel = %s
 ORDER BY task_id, idx
"""

    def checkpoints(self, thread_id: str) -> Iterator[CheckpointRow]:
        values: _Values | None = None
        for namespace, *facts, body in self._source.rows(_CHECKPOINTS, thread_id):
            if values is None or values.namespace != namespace:
                values = _Values(self._source, thread_id, namespace)
            yield CheckpointRow._make((namespace, *facts, partial(values.load, body)))


class _Values:
    """The values of the last checkpoint of a namespace: most are those of the next one, too."""

    def __init__(self, database: Source, thread_id: str, namespace: str) -> None:
        self.namespace = namespace
        self._database = database
        self._thread_id = thread_id
        self._known: dict[tuple[str, str], tuple[Any, ...]] = {}  # by channel and version

    def load(self, body: str, serde: SerializerProtocol) -> Any:
        checkpoint = json.loads(body)
        inline = checkpoint.get("channel_values") or {}
        versions = checkpoint.get("channel_versions", {})
        if not isinstance(inline, dict) or not isinstance(versions, dict):
            raise Corrupt("the row is not a checkpoint")
        values = self._of({name: str(each) for name, each in versions.items()}, serde)
        return {**checkpoint, "channel_values": {**inline, **values}}

    def _of(self, versions: Mapping[str, str], serde: SerializerProtocol) -> dict[str, Any]:
        """Return the values of channels in these versions; some channels have none."""
        new = [each for each in versions.items() if each not in self._known]
        made: dict[str, tuple[Any, ...]] = {}
        if new:
            where = (self._thread_id, self.namespace, *map(list, zip(*new, strict=True)))
            for channel, form, body in self._database.rows(_BLOBS, *where):
                made[channel] = () if form == "empty" else (serde.loads_typed((form, body)),)
        self._known = {
            each: self._known[each] if each in self._known else made.get(each[0], ())
            for each in versions.items()
        }
        return {channel: value[0] for (channel, _), value in self._known.items() if value}


@contextmanager
def opened(url: str) -> Iterator[PostgresSaverTables]:
    if not isinstance(url, str) or not url.strip():
        raise InvalidInput(
            f"url must be postgresql://user@host/database. type=`{type(url).__name__}`"
        )
    try:
        # Without prepared statements, which a pooler may not support.
        conn = psycopg.connect(
            url, autocommit=True, prepare_threshold=None, connect_timeout=_CONNECT_S
        )
    except psycopg.OperationalError as cause:
        raise _our_error(cause) from cause
    except psycopg.Error:
        # The driver's message would repeat the password of the URL.
        raise InvalidInput("url is not a valid PostgreSQL URL") from None
    with conn:
        with _translated():
            conn.read_only = True
            conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        yield PostgresSaverTables(PostgresDatabase(conn))


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as cause:
        raise _our_error(cause) from cause


def _our_error(cause: psycopg.Error) -> LimpetError:
    # The server's message is left out: it may quote values.
    state = cause.sqlstate or ""
    where = f"postgres=`{state or type(cause).__name__}`"
    if state == "42501":
        return Unavailable(f"the role may not read the tables. {where}")
    match state[:2]:
        case "42" | "0A":  # a table, a column or an operator for its type is missing
            return Unsupported(f"{OTHER_LAYOUT}. {where}")
        case "XX":
            return Corrupt(f"the database is damaged, or the server failed. {where}")
        case "22" | "54":
            return InvalidInput(f"the server does not accept a value. {where}")
    if not state and isinstance(cause, psycopg.DataError):
        return InvalidInput(f"the driver does not accept a value. {where}")
    return Unavailable(f"postgres did not answer. {where}")
