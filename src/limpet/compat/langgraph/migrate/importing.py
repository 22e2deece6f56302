"""Brings the checkpoints of another saver's tables into a store, as if they had been saved there.

Thread by thread, and in each the writes first: a checkpoint that can be seen has all that waits on
it. Of each namespace the oldest comes first. One checkpoint is in memory at a time.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import TASKS

from limpet.compat.langgraph import records
from limpet.compat.langgraph.decode import loaded
from limpet.compat.langgraph.saver import LimpetSaver
from limpet.compat.wire import Transfer
from limpet.core import limits
from limpet.core.findings import finding
from limpet.errors import Corrupt, InvalidInput, LimpetError, NotFound, Unsupported
from limpet.model import Finding, ScopeKey

Typed = tuple[str, bytes]
"""A value as a serializer writes it: its form, and bytes."""


_OLD = (1, 2, 3)  # versions of checkpoints whose sends stand with their parent
_GAPS_MAX = 64  # places of a task that special writes may have had


class CheckpointRow(NamedTuple):
    """A checkpoint in a table. `load` returns it, with its values."""

    namespace: str
    id: str
    parent_id: str | None
    metadata: str | bytes | None
    load: Callable[[SerializerProtocol], Any]


class WriteRow(NamedTuple):
    """One value that a task wrote, in a table."""

    namespace: str
    checkpoint_id: str
    task_id: str
    task_path: str
    idx: int
    channel: str
    value: Typed


class Tables(Protocol):
    """The tables of another saver, opened to be read."""

    def threads(self, prefix: str) -> Iterator[str]:
        """Yield the ids of the threads that begin with a prefix."""

    def reading(self) -> AbstractContextManager[object]:
        """Return a context in which all that is read is of one moment."""

    def writes(self, thread_id: str) -> Iterator[WriteRow]:
        """Yield what the tasks of a thread wrote: those of one task together, by their place."""

    def checkpoints(self, thread_id: str) -> Iterator[CheckpointRow]:
        """Yield the checkpoints of a thread, those of one namespace together, the oldest first."""

    def sends(self, thread_id: str, namespace: str, checkpoint_id: str) -> list[Typed]:
        """Return what waits on a checkpoint to be sent, in the order of LangGraph."""


class Import:
    """One import: out of tables, through a saver."""

    def __init__(self, tables: Tables, saver: LimpetSaver, serde: SerializerProtocol) -> None:
        self._tables = tables
        self._saver = saver
        self._serde = serde
        self._count = 0
        self._skipped: list[Finding] = []
        self._incomplete: set[tuple[str, str]] = set()

    def threads(self, prefix: str) -> Transfer:
        """Save what can be saved of some threads, and return what came of it."""
        for thread_id in self._tables.threads(prefix):
            self._incomplete.clear()
            with self._tables.reading():
                tasks = groupby(self._tables.writes(thread_id), key=lambda row: row[:3])
                for _, rows in tasks:
                    self._writes(thread_id, list(rows))
                for row in self._tables.checkpoints(thread_id):
                    self._checkpoint(thread_id, row)
        return Transfer(self._count, tuple(self._skipped))

    # What tasks wrote

    def _writes(self, thread_id: str, rows: list[WriteRow]) -> None:
        """Save what one task wrote: all of it, or nothing, so that LangGraph runs it again."""
        first = rows[0]
        config = _config(thread_id, first.namespace, first.checkpoint_id)
        places: dict[int, tuple[str, Any]] = {}
        special: dict[str, Any] = {}
        try:
            _check_names(thread_id, first.namespace, first.checkpoint_id)
            for row in rows:
                if type(row.idx) is not int:
                    raise Corrupt("the place of a write is no number")
                value = _read(self._serde, row.value)
                if row.channel in WRITES_IDX_MAP:
                    special[row.channel] = value
                else:
                    places[row.idx] = (row.channel, value)
            for writes in (_in_place(places, special), list(special.items())):
                if writes:
                    self._saver.put_writes(config, writes, first.task_id, first.task_path)
        except (InvalidInput, Unsupported, Corrupt) as refusal:
            place = (first.namespace, first.checkpoint_id)
            self._skip("writes_skipped", thread_id, place, refusal, task_id=first.task_id)

    # Checkpoints

    def _checkpoint(self, thread_id: str, row: CheckpointRow) -> None:
        config = _config(thread_id, row.namespace, row.parent_id)
        try:
            _check_names(thread_id, row.namespace, row.parent_id)
            checkpoint = self._whole(thread_id, row)
            metadata = _metadata_of(row)
            self._check_deltas(row, checkpoint, metadata)
            self._saver.put(config, checkpoint, metadata, checkpoint.get("channel_versions", {}))
        except (InvalidInput, Unsupported, Corrupt) as refusal:
            self._skip("snapshot_skipped", thread_id, (row.namespace, row.id), refusal)
        else:
            self._count += 1

    def _whole(self, thread_id: str, row: CheckpointRow) -> Any:
        checkpoint = loaded(lambda: row.load(self._serde))
        if not _is_checkpoint(checkpoint):
            raise Corrupt("the row holds something else than a checkpoint")
        checkpoint = {**checkpoint, "id": row.id}
        if checkpoint.get("v") in _OLD and row.parent_id and not checkpoint.get("pending_sends"):
            self._with_sends(thread_id, row, checkpoint)
        return checkpoint

    def _with_sends(self, thread_id: str, row: CheckpointRow, checkpoint: dict[str, Any]) -> None:
        """Add what an old checkpoint has to send: it stands with its parent, and now in itself."""
        found = self._tables.sends(thread_id, row.namespace, row.parent_id or "")
        versions = checkpoint.get("channel_versions") or {}
        if found:
            sends = [_read(self._serde, each) for each in found]
            first = self._saver.get_next_version(None)
            last = loaded(lambda: max(versions.values(), default=first))
            checkpoint["channel_values"] = {**checkpoint["channel_values"], TASKS: sends}
            checkpoint["channel_versions"] = {**versions, TASKS: last}

    def _check_deltas(self, row: CheckpointRow, checkpoint: Any, metadata: Any) -> None:
        """Refuse a checkpoint whose channels are made of what an ancestor holds, if that is amiss.

        They would be read without a part of what they held, and nobody would know.
        """
        deltas = records.delta_channels(metadata) & checkpoint.get("channel_versions", {}).keys()
        parent = (row.namespace, row.parent_id or "")
        if parent in self._incomplete and deltas - checkpoint["channel_values"].keys():
            raise InvalidInput(f"its parent is not complete. parent=`{row.parent_id}`")

    def _skip(
        self,
        code: str,
        thread_id: str,
        place: tuple[str, str],
        cause: LimpetError,
        **names: Any,
    ) -> None:
        namespace, id = place
        self._incomplete.add(place)
        scope = _scope_of(thread_id, namespace)
        if scope is None:
            names |= {"thread_id": thread_id, "checkpoint_ns": namespace}
        self._skipped.append(finding("error", code, str(cause), scope=scope, id=id, **names))


def _in_place(places: dict[int, tuple[str, Any]], special: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the ordinary writes of a task so that each gets the place that it had.

    Where one is missing, a special write had that turn: it has a place of its own in any case.
    """
    if not places:
        return []
    turn = next(iter(special.items()), None)
    gaps = max(places) + 1 - len(places)
    if turn is None or min(places) < 0 or gaps > _GAPS_MAX:
        return [places[idx] for idx in sorted(places)]
    return [places.get(idx, turn) for idx in range(max(places) + 1)]


def _config(thread_id: str, namespace: str, checkpoint_id: str | None) -> Any:
    named = {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
    return {"configurable": named}


def _check_names(thread_id: str, namespace: object, checkpoint_id: object) -> None:
    """Raise InvalidInput if a row does not name what a checkpoint can be named by."""
    records.scope_of(thread_id, namespace)
    if checkpoint_id is not None and checkpoint_id != "":
        limits.check_id("checkpoint_id", checkpoint_id)


def _scope_of(thread_id: str, namespace: str) -> ScopeKey | None:
    try:
        return records.scope_of(thread_id, namespace)
    except InvalidInput:
        return None


def _metadata_of(row: CheckpointRow) -> Any:
    metadata = {} if row.metadata is None else loaded(lambda: json.loads(row.metadata or ""))
    if not isinstance(metadata, dict):
        raise Corrupt("the metadata is not that of a checkpoint")
    return metadata


def _is_checkpoint(found: Any) -> bool:
    if not isinstance(found, dict) or not isinstance(found.get("channel_values"), dict):
        return False
    versions = found.get("channel_versions", {})
    if not isinstance(versions, dict):
        return False
    names: Iterable[Any] = [*found, *found["channel_values"], *versions]
    return all(isinstance(name, str) for name in names)


def _read(serde: SerializerProtocol, value: Typed) -> Any:
    return loaded(lambda: serde.loads_typed(value))


# What the tables of LangGraph's own savers have in common, whatever the database.


def check_columns(
    found: Mapping[str, Collection[str]], wanted: Mapping[str, Collection[str]], nothing: str
) -> None:
    """See that all tables are there with the columns that are read.

    Raises:
        NotFound: a table is missing; `nothing` says so.
        Unsupported: a column is.
    """
    for table, columns in wanted.items():
        if not found[table]:
            raise NotFound(f"{nothing} table=`{table}`")
        missing = [each for each in columns if each not in found[table]]
        if missing:
            where = f"table=`{table}` column=`{missing[0]}`"
            raise Unsupported(f"the tables are those of another saver. {where}")
