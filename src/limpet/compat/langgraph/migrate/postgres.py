"""The tables of `PostgresSaver`, in read-only transactions."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from limpet.compat.langgraph.migrate.tables import (
    OTHER_LAYOUT,
    CheckpointRow,
    Typed,
    WriteRow,
    check_columns,
)
from limpet.errors import Corrupt, InvalidInput, LimpetError, Unavailable, Unsupported

_CONNECT_S = 10
_BATCH = 16  # rows that the server sends at once: each may hold a large value

_COLUMNS = {
    "checkpoints": ("checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint"),
    "checkpoint_blobs": ("checkpoint_ns", "channel", "version", "type", "blob"),
    "checkpoint_writes": ("checkpoint_ns", "checkpoint_id", "task_id", "idx", "type", "blob"),
}

_COLUMNS_OF = """
SELECT attname FROM pg_attribute
 WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""

# The next thread in the order of the primary keys.
_NEXT_THREAD = """
SELECT min(thread_id) FROM (
    (SELECT thread_id FROM checkpoints
      WHERE thread_id >= %(start)s AND thread_id IS DISTINCT FROM %(last)s
        AND starts_with(thread_id, %(prefix)s)
      ORDER BY thread_id LIMIT 1)
    UNION ALL
    (SELECT thread_id FROM checkpoint_writes
      WHERE thread_id >= %(start)s AND thread_id IS DISTINCT FROM %(last)s
        AND starts_with(thread_id, %(prefix)s)
      ORDER BY thread_id LIMIT 1)) AS found
"""

# Versions are read as text: the key of their blobs. `jsonb_each_text` of something else than an
# object would end the import.
_CHECKPOINTS = """
SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, metadata::text, checkpoint::text,
       CASE jsonb_typeof(checkpoint -> 'channel_versions') WHEN 'object'
            THEN ARRAY(SELECT key FROM jsonb_each_text(checkpoint -> 'channel_versions'))
            ELSE ARRAY[]::text[] END,
       CASE jsonb_typeof(checkpoint -> 'channel_versions') WHEN 'object'
            THEN ARRAY(SELECT value FROM jsonb_each_text(checkpoint -> 'channel_versions'))
            ELSE ARRAY[]::text[] END
  FROM checkpoints WHERE thread_id = %s ORDER BY checkpoint_ns, checkpoint_id
"""

_BLOBS = """
SELECT channel, type, blob FROM checkpoint_blobs
 WHERE thread_id = %s AND checkpoint_ns = %s
   AND (channel, version) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
"""

_WRITES = """
SELECT checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, blob
  FROM checkpoint_writes WHERE thread_id = %s ORDER BY checkpoint_ns, checkpoint_id, task_id, idx
"""

# The table had no such column before LangGraph's tenth migration.
_WRITES_WITHOUT_PATH = _WRITES.replace("task_path", "''")

_SENDS = """
SELECT type, blob FROM checkpoint_writes
 WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s AND channel = %s
 ORDER BY task_id, idx
"""


class PostgresSaverTables:
    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn
        columns = self._columns()
        has_path = "task_path" in columns["checkpoint_writes"]
        self._writes = _WRITES if has_path else _WRITES_WITHOUT_PATH

    def _columns(self) -> dict[str, set[str]]:
        found = {name: {each for (each,) in self._all(_COLUMNS_OF, name)} for name in _COLUMNS}
        check_columns(found, _COLUMNS, "the database has no tables of a PostgresSaver.")
        return found

    def threads(self, prefix: str) -> Iterator[str]:
        last: str | None = None
        while True:
            names = {"start": prefix if last is None else last, "last": last, "prefix": prefix}
            with _translated():
                row = self._conn.execute(_NEXT_THREAD, names).fetchone()
            last = None if row is None else row[0]
            if last is None:
                return
            yield last

    @contextmanager
    def reading(self) -> Iterator[None]:
        with _translated(), self._conn.transaction():
            yield

    def writes(self, thread_id: str) -> Iterator[WriteRow]:
        for row in self._streamed(self._writes, thread_id):
            yield WriteRow._make((*row[:-2], row[-2:]))

    def checkpoints(self, thread_id: str) -> Iterator[CheckpointRow]:
        values: _Values | None = None
        for namespace, id, parent_id, metadata, body, channels, versions in self._streamed(
            _CHECKPOINTS, thread_id
        ):
            if values is None or values.namespace != namespace:
                values = _Values(self, thread_id, namespace)
            load = partial(values.load, body, dict(zip(channels, versions, strict=True)))
            yield CheckpointRow(namespace, id, parent_id, metadata, load)

    def sends(self, thread_id: str, namespace: str, checkpoint_id: str) -> list[Typed]:
        return self._all(_SENDS, thread_id, namespace, checkpoint_id, TASKS)

    def blobs(
        self, thread_id: str, namespace: str, versions: Mapping[str, str]
    ) -> list[tuple[str, str, bytes]]:
        """Return channel, format and bytes of the values that are stored as blobs."""
        names = ([*versions.keys()], [*versions.values()])
        return self._all(_BLOBS, thread_id, namespace, *names)

    def _all(self, query: str, *names: Any) -> list[Any]:
        with _translated():
            return self._conn.execute(query.encode(), names, binary=True).fetchall()

    def _streamed(self, query: str, thread_id: str) -> Iterator[Any]:
        with _translated(), self._conn.cursor("limpet_import", binary=True) as rows:
            rows.itersize = _BATCH
            rows.execute(query.encode(), [thread_id])
            yield from rows


class _Values:
    """The values of the last checkpoint of a namespace: most are those of the next one, too."""

    def __init__(self, tables: PostgresSaverTables, thread_id: str, namespace: str) -> None:
        self.namespace = namespace
        self._tables = tables
        self._thread_id = thread_id
        self._known: dict[str, tuple[str, tuple[Any, ...]]] = {}

    def load(self, body: str, versions: Mapping[str, str], serde: SerializerProtocol) -> Any:
        checkpoint = json.loads(body)
        inline = checkpoint.get("channel_values") or {}
        if not isinstance(inline, dict):
            raise Corrupt("the row is not a checkpoint")
        return {**checkpoint, "channel_values": {**inline, **self._of(versions, serde)}}

    def _of(self, versions: Mapping[str, str], serde: SerializerProtocol) -> dict[str, Any]:
        """Return the values of channels in these versions; some channels have none."""
        known = {
            channel: self._known[channel]
            for channel, version in versions.items()
            if channel in self._known and self._known[channel][0] == version
        }
        new = {channel: each for channel, each in versions.items() if channel not in known}
        self._known = known
        if new:
            rows = self._tables.blobs(self._thread_id, self.namespace, new)
            found = {channel: (form, body) for channel, form, body in rows if form != "empty"}
            for channel, version in new.items():
                typed = found.get(channel)
                made = () if typed is None else (serde.loads_typed(typed),)
                known[channel] = (version, made)
        return {channel: value[0] for channel, (_, value) in known.items() if value}


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
        yield PostgresSaverTables(conn)


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
