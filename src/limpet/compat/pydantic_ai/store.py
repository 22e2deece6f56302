"""Pydantic AI's `ConversationStore` on every engine."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import nlargest
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessagesTypeAdapter

from limpet.api.scope import Scope
from limpet.api.store import AsyncStore, Store
from limpet.compat.logs import KIND
from limpet.compat.wire import check_store
from limpet.core import codec, limits
from limpet.errors import AlreadyExists, Conflict, Corrupt, InvalidInput, NotFound
from limpet.model import HEAD, JSON, SnapshotInfo

_FACADE = "pydantic_ai"
_SCOPE_ID = "main"
_KEY = "messages"
_ENTRY = "entry"
"""The value of a label that is named after an entry."""

_RECORD: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)

Item: TypeAlias = dict[str, Any]
"""An entry as it is stored: `id` and `message`. The entry before it is its parent."""


class _Line(NamedTuple):
    """A history from its first entry on, and a snapshot whose state begins with it."""

    snapshot: SnapshotInfo
    items: list[Item]


class LimpetConversationStore(ConversationStore):
    """Pydantic AI's conversations in an opened store, sync or async. The caller closes the store.

    A save is one atomic step: record and messages together, or on a conflict nothing of them. It
    costs what is new; loading costs one read of the history. Every earlier save stays in the
    history of the session, also the branches that a conversation has left.

    A fork has its own copy of the messages, so that each conversation can be deleted by itself.
    `delete` erases all messages of the conversation, also those of its branches; what forks
    have of them stays. It leaves everything else that other programs stored in the session.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self._store = check_store(store).aio

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, None if there is none.

        Raises:
            Corrupt: another program saved something else under this id.
        """
        head = await _scope(self._store, conversation_id).info()
        return None if head is None else _record_of(head)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> list[ConversationRecord]:
        """Return the records, or those with this scope: the newest `updated_at` first.

        Reads the metadata of all conversations, whatever the limit is.
        """

        def read(store: Store) -> list[ConversationRecord]:
            found = (each for each, _ in _records(store) if scope in (None, each.scope))
            if limit is None:
                return sorted(found, key=_updated_at, reverse=True)
            return nlargest(limit, found, key=_updated_at)

        return await self._store.run(read)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries as one step, durably.

        After a lost answer it may be repeated: if it was stored, that is a conflict, and nothing is
        stored twice.

        Raises:
            ConversationConflict: the stored revision is not `expected_revision`, or the history
                that the record continues is gone. Nothing was stored.
            InvalidInput: the new entries are not the end of the record's history.
        """
        _check_chain(record, new_entries)
        try:
            await self._store.run(
                lambda store: _write(store, record, new_entries, expected_revision)
            )
        except (AlreadyExists, Conflict, NotFound) as cause:
            raise ConversationConflict(record.conversation_id) from cause

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation with all its messages and its history, as one step.

        Raises:
            ConversationConflict: the stored revision is not `expected_revision`.
        """
        scope = _scope(self._store, conversation_id)
        head = await scope.info()
        if head is None or _record_of(head).revision != expected_revision:
            raise ConversationConflict(conversation_id)
        try:
            await scope.delete(expect=head.revision)
        except Conflict as cause:
            raise ConversationConflict(conversation_id) from cause

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry of any conversation.

        The last 64 entries of a save are found by an index. For others all conversations are read.

        Raises:
            KeyError: no conversation has it.
        """
        (entry,) = await self.read_history(entry_id, limit=1)
        return entry

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """Return the entries from the first up to `head_id`, or only the last `limit` of them.

        Raises:
            KeyError: no conversation has such an entry.
        """
        if head_id is None or limit == 0:
            return []

        def read(store: Store) -> list[ConversationEntry]:
            found = _find(store, head_id)
            if found is None:
                raise KeyError(head_id)
            return _entries_of(found, limit)

        return await self._store.run(read)


def _scope(store: Any, conversation_id: str) -> Any:
    """Return the scope of a conversation, of the API that `store` is of."""
    return store.scope(conversation_id, _SCOPE_ID, KIND)


def _write(
    store: Store,
    record: ConversationRecord,
    new_entries: Sequence[ConversationEntry],
    expected_revision: str | None,
) -> None:
    scope: Scope = _scope(store, record.conversation_id)
    head = scope.info()
    stored = None if head is None else _record_of(head)
    if (None if stored is None else stored.revision) != expected_revision:
        raise ConversationConflict(record.conversation_id)
    items = _items_of(new_entries)
    facts = _RECORD.dump_python(
        record, mode="json", exclude={"conversation_id"}, exclude_defaults=True
    )
    metadata = {_FACADE: facts}
    expect = None if head is None else head.revision
    # The head has a label even if it is not new, so that each line is found by its end.
    labels = _labels([each.id for each in new_entries] or [record.head_id])
    after = new_entries[0].parent_id if new_entries else record.head_id
    if after == (None if stored is None else stored.head_id):
        scope.append(_KEY, items, labels=labels, metadata=metadata, expect=expect)
        return
    if after is None:
        scope.save({_KEY: items}, parent=None, labels=labels, metadata=metadata, expect=expect)
        return
    found = _find(store, after)
    if found is None:
        raise ConversationConflict(record.conversation_id)
    state = {_KEY: [*found.items, *items]}
    if head is None:
        # A copy of another conversation. The step fails if that is deleted meanwhile.
        store.scope(*found.snapshot.scope).fork(
            found.snapshot.id,
            to=scope.session_id,
            scope_id=_SCOPE_ID,
            patch=state,
            labels=_labels([each["id"] for each in state[_KEY]]),
            metadata=metadata,
        )
        return
    parent = found.snapshot if found.snapshot.scope == scope.key else HEAD
    scope.save(state, parent=parent, labels=labels, metadata=metadata, expect=expect)


def _check_chain(record: ConversationRecord, entries: Sequence[ConversationEntry]) -> None:
    is_chain = all(each.parent_id == before.id for before, each in pairwise(entries))
    if entries and not (is_chain and entries[-1].id == record.head_id):
        raise InvalidInput(
            "new entries must be the end of the history: each the parent of the next, the last "
            f"one the head. conversation_id=`{record.conversation_id}`"
        )


def _labels(ids: Sequence[str | None]) -> dict[str, str]:
    """Return the labels of a snapshot: so many of its last entries as a snapshot can have."""
    return {each: _ENTRY for each in ids[-limits.LABELS_MAX :] if each is not None}


def _find(store: Store, entry_id: str) -> _Line | None:
    """Return the history up to an entry, from any snapshot that has it."""
    damaged: Corrupt | None = None
    for info in _candidates(store, entry_id):
        try:
            found = store.scope(*info.scope).load(info.id)
            items = [] if found is None else _items_in(found.state, info)
        except Corrupt as error:
            damaged = error  # another snapshot may have the entry as well
            continue
        for end in range(len(items), 0, -1):
            if items[end - 1]["id"] == entry_id:
                return _Line(info, items[:end])
    if damaged is not None:
        raise damaged
    return None


def _candidates(store: Store, entry_id: str) -> Iterator[SnapshotInfo]:
    """Yield the snapshots labelled with an entry, then the ends of the lines of all conversations.

    Together these hold every entry that a conversation has.
    """
    yield from store.history(labels={entry_id: _ENTRY})
    for record, head in _records(store):
        yield head
        for tip in record.branches:
            yield from store.scope(*head.scope).history(labels={tip: _ENTRY}, limit=1)


def _records(store: Store) -> Iterator[tuple[ConversationRecord, SnapshotInfo]]:
    """Yield all conversations with their heads; what is not one of Pydantic AI is skipped."""
    for each in store.scopes(kind=KIND):
        if each.head is None or each.key.scope_id != _SCOPE_ID:
            continue
        try:
            yield _record_of(each.head), each.head
        except Corrupt:
            continue


def _record_of(head: SnapshotInfo) -> ConversationRecord:
    facts = head.metadata.get(_FACADE)
    if isinstance(facts, dict):
        try:
            return _RECORD.validate_python({**facts, "conversation_id": head.session_id})
        except ValidationError:
            pass  # its text has parts of the conversation
    raise _foreign(head)


def _updated_at(record: ConversationRecord) -> datetime:
    return record.updated_at


def _items_of(entries: Sequence[ConversationEntry]) -> list[Item]:
    messages = ModelMessagesTypeAdapter.dump_python([e.message for e in entries], mode="json")
    return [{"id": e.id, "message": each} for e, each in zip(entries, messages, strict=True)]


def _items_in(state: JSON, info: SnapshotInfo) -> list[Item]:
    items = state.get(_KEY) if isinstance(state, dict) else None
    if not isinstance(items, list) or not all(map(_is_item, items)):
        raise _foreign(info)
    return items


def _is_item(value: JSON) -> bool:
    return isinstance(value, dict) and value.keys() == {"id", "message"}


def _entries_of(line: _Line, limit: int | None) -> list[ConversationEntry]:
    begin = 0 if limit is None else max(0, len(line.items) - limit)
    items = line.items[begin:]
    # As JSON: bytes are base64 there.
    encoded = codec.encode([each["message"] for each in items])
    try:
        messages = ModelMessagesTypeAdapter.validate_json(encoded)
    except ValidationError:
        raise _foreign(line.snapshot) from None
    parent_id = line.items[begin - 1]["id"] if begin else None
    entries = []
    for item, message in zip(items, messages, strict=True):
        entries.append(ConversationEntry(id=item["id"], parent_id=parent_id, message=message))
        parent_id = item["id"]
    return entries


def _foreign(info: SnapshotInfo) -> Corrupt:
    return Corrupt(
        "this is not a conversation that this version of Pydantic AI can read: another program, or "
        f"a newer version, saved it. conversation_id=`{info.session_id}` id=`{info.id}`"
    )
