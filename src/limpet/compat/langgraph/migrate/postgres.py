"""The tables of `PostgresSaver`, read in transactions that cannot write."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from limpet.backends.postgres.errors import translated
from limpet.compat.langgraph.migrate.importing import CheckpointRow, Typed, WriteRow, check_columns
from limpet.errors import Corrupt, InvalidInput

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

# The thread that follows one, in the order of the keys: both tables begin with it.
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

# Versions come as the text under which their values are stored. What is no object has none: to
# take it apart would end the import.
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

# As the table was before the tenth migration.
_WRITES_WITHOUT_PATH = """
SELECT checkpoint_ns, checkpoint_id, task_id, '', idx, channel, type, blob
  FROM checkpoint_writes WHERE thread_id = %s ORDER BY checkpoint_ns, checkpoint_id, task_id, idx
"""

_SENDS = """
SELECT type, blob FROM checkpoint_writes
 WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s AND channel = %s
 ORDER BY task_id, idx
"""


class PostgresTables:
    """The tables in one database."""

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
        """Yield the ids of the threads that begin with a prefix, in the order of the database."""
        last: str | None = None
        while True:
            names = {"start": prefix if last is None else last, "last": last, "prefix": prefix}
            with _told():
                row = self._conn.execute(_NEXT_THREAD, names).fetchone()
            last = None if row is None else row[0]
            if last is None:
                return
            yield last

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Return a context in which all that is read is of one moment. Writers do not wait."""
        with _told(), self._conn.transaction():
            yield

    def writes(self, thread_id: str) -> Iterator[WriteRow]:
        """Yield what the tasks of a thread wrote."""
        for row in self._streamed(self._writes, thread_id):
            yield WriteRow._make((*row[:-2], row[-2:]))

    def checkpoints(self, thread_id: str) -> Iterator[CheckpointRow]:
        """Yield the checkpoints of a thread."""
        values: _Values | None = None
        for namespace, id, parent_id, metadata, body, channels, versions in self._streamed(
            _CHECKPOINTS, thread_id
        ):
            if values is None or values.namespace != namespace:
                values = _Values(self, thread_id, namespace)
            load = _Load(values, body, dict(zip(channels, versions, strict=True)))
            yield CheckpointRow(namespace, id, parent_id, metadata, load)

    def sends(self, thread_id: str, namespace: str, checkpoint_id: str) -> list[Typed]:
        """Return what waits on a checkpoint to be sent."""
        return self._all(_SENDS, thread_id, namespace, checkpoint_id, TASKS)

    def blobs(
        self, thread_id: str, namespace: str, versions: Mapping[str, str]
    ) -> list[tuple[str, str, bytes]]:
        """Return the values of channels, in some versions, that have a row of their own."""
        names = ([*versions.keys()], [*versions.values()])
        return self._all(_BLOBS, thread_id, namespace, *names)

    def _all(self, query: str, *names: Any) -> list[Any]:
        with _told():
            return self._conn.execute(query.encode(), names, binary=True).fetchall()

    def _streamed(self, query: str, thread_id: str) -> Iterator[Any]:
        with _told(), self._conn.cursor("limpet_import", binary=True) as rows:
            rows.itersize = _BATCH
            rows.execute(query.encode(), [thread_id])
            yield from rows


class _Values:
    """The values that the last checkpoint of a namespace had: most are those of the next, too."""

    def __init__(self, tables: PostgresTables, thread_id: str, namespace: str) -> None:
        self.namespace = namespace
        self._tables = tables
        self._thread_id = thread_id
        self._known: dict[str, tuple[str, tuple[Any, ...]]] = {}

    def of(self, versions: Mapping[str, str], serde: SerializerProtocol) -> dict[str, Any]:
        """Return the values of those channels that have any, in these versions."""
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


class _Load:
    """Loads one checkpoint: its JSON, and the values that are not in there."""

    def __init__(self, values: _Values, body: str, versions: dict[str, str]) -> None:
        self._values = values
        self._body = body
        self._versions = versions

    def __call__(self, serde: SerializerProtocol) -> Any:
        checkpoint = json.loads(self._body)
        inline = checkpoint.get("channel_values") or {}
        if not isinstance(inline, dict):
            raise Corrupt("the row holds something else than a checkpoint")
        found = self._values.of(self._versions, serde)
        return {**checkpoint, "channel_values": {**inline, **found}}


@contextmanager
def opened(url: str) -> Iterator[PostgresTables]:
    """Open the tables of a database until the block ends."""
    if not isinstance(url, str) or not url.strip():
        raise InvalidInput(f"write postgresql://user@host/database. type=`{type(url).__name__}`")
    try:
        # Nothing is prepared, so that it works through a pooler as well.
        conn = psycopg.connect(
            url, autocommit=True, prepare_threshold=None, connect_timeout=_CONNECT_S
        )
    except psycopg.OperationalError as cause:
        raise translated(cause) from cause
    except psycopg.Error:
        # What the driver says of a URL that it does not understand repeats the password in it.
        raise InvalidInput("the URL is not one of PostgreSQL") from None
    with conn:
        with _told():
            conn.read_only = True
            conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        yield PostgresTables(conn)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as cause:
        raise translated(cause) from cause
