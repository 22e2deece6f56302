"""`import_sqlite` and `import_postgres`: threads from LangGraph's own savers.

Synchronous, for a `Store` or an `AsyncStore`; from async code `await store.run(lambda store: …)`.
Every checkpoint is imported with its id, parent, metadata, values, versions and pending writes, in
all namespaces: a graph continues where it stopped. An import may be repeated, also after it was
interrupted. What cannot be imported is reported, and does not stop the rest.

The tables are only read and may be in use: each thread is read in one transaction. The writes of a
thread are saved first, so that a visible checkpoint has all of its pending writes; then its
checkpoints, the oldest of a namespace first. One is in memory at a time.
"""

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby
from typing import Any, cast

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from limpet import AsyncStore, Store
from limpet.api.integrations import check_prefix, limits
from limpet.compat.langgraph import records
from limpet.compat.langgraph.checkpoints import put_writes
from limpet.compat.langgraph.classes import Allow, items_of
from limpet.compat.langgraph.decode import loaded
from limpet.compat.langgraph.migrate import tables
from limpet.compat.langgraph.migrate.tables import CheckpointRow, SaverTables, Typed, WriteRow
from limpet.compat.langgraph.saver import LimpetSaver
from limpet.compat.langgraph.serde import checked
from limpet.compat.wire import Tally, Transfer, folder_of
from limpet.errors import Corrupt, InvalidInput, LimpetError, Unsupported

_OLD_VERSIONS = (1, 2, 3)  # of checkpoints whose sends are stored as writes of their parent
_TEXT = frozenset((str,))


def import_sqlite(
    store: Store | AsyncStore,
    path: str | os.PathLike[str],
    *,
    prefix: str = "",
    allow: Allow = (),
    serde: SerializerProtocol | None = None,
) -> Transfer:
    """Bring the threads whose ids begin with `prefix` into a store; count the new checkpoints.

    `path` is the file of a `SqliteSaver` or an `AsyncSqliteSaver`, of any version that has a table
    of writes. As with `LimpetSaver`, your own classes must be listed in `allow`: no other class
    that the file names is imported or called. `serde` is the serializer that the values were saved
    with, such as one that encrypts; they are stored through it again.

    A checkpoint with a value that is refused is skipped and reported (`snapshot_skipped`). If a
    write of a task is refused, all of that task are (`writes_skipped`): LangGraph runs it again.

    Raises:
        NotFound: the file does not exist, or a table is missing.
        InvalidInput: the file is not a SQLite database.
        Unsupported: the tables have another layout.
    """
    return _imported(store, lambda: tables.opened(folder_of(path)), prefix, allow, serde)


def import_postgres(
    store: Store | AsyncStore,
    url: str,
    *,
    prefix: str = "",
    allow: Allow = (),
    serde: SerializerProtocol | None = None,
) -> Transfer:
    """Do what `import_sqlite` does, for the tables of a `PostgresSaver`.

    `url` is `postgresql://user@host/database`, or another connection string of libpq. The store may
    be in the same database. The transactions are read-only, and SELECT is all the role needs.

    Raises:
        NotFound: a table is missing, or not on the search path.
        InvalidInput: the URL is not valid.
        Unavailable: the server did not answer.
        Unsupported: the tables have another layout, or psycopg is not installed.
    """

    def opened() -> AbstractContextManager[SaverTables]:
        try:
            from limpet.compat.langgraph.migrate import postgres
        except ImportError:
            raise Unsupported("PostgreSQL needs an extra: pip install 'limpet[postgres]'") from None
        return postgres.opened(url)

    return _imported(store, opened, prefix, allow, serde)


def _imported(
    store: Store | AsyncStore,
    opened: Callable[[], AbstractContextManager[SaverTables]],
    prefix: str,
    allow: Allow,
    serde: SerializerProtocol | None,
) -> Transfer:
    check_prefix(prefix)
    listed = items_of(allow)
    saver = LimpetSaver(store, serde=serde, allow=listed)
    with opened() as found:
        return _Import(found, saver, checked(serde, listed)).run(prefix)


class _Import:
    def __init__(self, tables: SaverTables, saver: LimpetSaver, serde: SerializerProtocol) -> None:
        self._tables = tables
        self._saver = saver
        self._context = saver._context
        self._driver = saver._context.store.driver
        self._serde = serde
        self._tally = Tally()
        self._incomplete: set[tuple[str, str]] = set()  # of the thread, by namespace and id

    def run(self, prefix: str) -> Transfer:
        for thread_id in self._tables.threads(prefix):
            self._incomplete.clear()
            with self._tables.reading():
                for _, rows in groupby(self._tables.writes(thread_id), key=lambda row: row[:3]):
                    self._writes(thread_id, list(rows))
                for row in self._tables.checkpoints(thread_id):
                    self._checkpoint(thread_id, row)
        return self._tally.result()

    def _writes(self, thread_id: str, rows: list[WriteRow]) -> None:
        """Save all writes of a task or none: LangGraph then runs the task again."""
        first = rows[0]
        ordinary: dict[int, tuple[str, Any]] = {}  # by index
        special: dict[int, tuple[str, Any]] = {}  # they replace others
        try:
            config = _config(thread_id, first.namespace, first.checkpoint_id)
            for row in rows:
                if type(row.idx) is not int:
                    raise Corrupt("the index of a write is not an integer")
                writes = special if row.channel in WRITES_IDX_MAP else ordinary
                writes[row.idx] = (row.channel, self._read(row.value))
            for writes in (ordinary, special):
                if writes:
                    items = [*writes.values()], first.task_id, first.task_path, [*writes]
                    self._driver.drive(put_writes(self._context, config, *items))
        except (InvalidInput, Unsupported, Corrupt) as refusal:
            where = (first.namespace, first.checkpoint_id)
            self._skip("writes_skipped", thread_id, where, refusal, task_id=first.task_id)

    def _checkpoint(self, thread_id: str, row: CheckpointRow) -> None:
        try:
            config = _config(thread_id, row.namespace, row.parent_id)
            checkpoint = self._whole(thread_id, row)
            metadata = {} if row.metadata is None else loaded(partial(json.loads, row.metadata))
            if not isinstance(metadata, dict):
                raise Corrupt("the metadata is not that of a checkpoint")
            versions = checkpoint.get("channel_versions", {})
            # The values of delta channels would silently lack a part.
            deltas = records.delta_channels(metadata) & versions.keys()
            needs_parent = deltas - checkpoint["channel_values"].keys()
            if needs_parent and (row.namespace, row.parent_id or "") in self._incomplete:
                fact = "its delta channels need a parent that was skipped"
                raise InvalidInput(f"{fact}. parent=`{row.parent_id}`")
            scope = records.scope_of(thread_id, row.namespace)
            before = self._context.backend.read_info(scope, row.id)
            self._saver.put(config, checkpoint, cast("Any", metadata), versions)
        except (InvalidInput, Unsupported, Corrupt) as refusal:
            self._skip("snapshot_skipped", thread_id, (row.namespace, row.id), refusal)
        else:
            self._tally.add(before, before and self._context.backend.read_info(scope, row.id))

    def _whole(self, thread_id: str, row: CheckpointRow) -> Any:
        found = loaded(lambda: row.load(self._serde))
        if not _is_checkpoint(found):
            raise Corrupt("the row is not a checkpoint")
        found["id"] = row.id
        is_old = found.get("v") in _OLD_VERSIONS and not found.get("pending_sends")
        sends = self._tables.sends(thread_id, row.namespace, row.parent_id) if is_old else []
        if row.parent_id and sends:  # they become part of the checkpoint, as in new ones
            versions = found.get("channel_versions") or {}
            first = self._saver.get_next_version(None)
            found["channel_values"][TASKS] = [self._read(each) for each in sends]
            last = loaded(lambda: max(versions.values(), default=first))
            found["channel_versions"] = {**versions, TASKS: last}
        return found

    def _read(self, value: Typed) -> Any:
        return loaded(lambda: self._serde.loads_typed(value))

    def _skip(
        self,
        code: str,
        thread_id: str,
        where: tuple[str, str],
        cause: LimpetError,
        **names: Any,
    ) -> None:
        namespace, id = where
        self._incomplete.add(where)
        scope = None
        try:
            scope = records.scope_of(thread_id, namespace)
        except InvalidInput:
            names |= {"thread_id": thread_id, "checkpoint_ns": namespace}
        self._tally.skip(code, cause, scope=scope, id=id, **names)


def _config(thread_id: str, namespace: str, checkpoint_id: str | None) -> Any:
    """Return the config of a row, whose columns may hold anything, or raise InvalidInput."""
    records.scope_of(thread_id, namespace)
    if checkpoint_id is not None and checkpoint_id != "":
        limits.check_id("checkpoint_id", checkpoint_id)
    named = {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
    return {"configurable": named}


def _is_checkpoint(found: Any) -> bool:
    if not isinstance(found, dict):
        return False
    parts = [found, found.get("channel_values"), found.get("channel_versions", {})]
    return all(
        isinstance(part, dict) and all(isinstance(name, str) for name in part) for part in parts
    )
