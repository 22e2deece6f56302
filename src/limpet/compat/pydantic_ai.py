"""Conversations of Pydantic AI agents: its `ConversationStore` on every engine.

Load a conversation before a run, and save the result after it::

    from pydantic_ai import Conversation
    from limpet.compat.pydantic_ai import LimpetConversationStore

    async with limpet.open_async("sqlite:///agents.db") as store:
        conversations = LimpetConversationStore(store)
        chat = await conversations.load("chat-42") or Conversation(conversation_id="chat-42")
        result = await agent.run("Hello!", conversation=chat)
        await conversations.save(result)

`docs/guides/pydantic_ai.md` lists where each thing is stored, so that other programs see it.

`docs/decisions/0038-pydantic-ai.md` says why.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from limpet import AsyncStore, Scope, Store
from limpet.api.integrations import Recent, codec, limits
from limpet.compat import needs
from limpet.compat.logs import KIND, MAIN, check_own, foreign
from limpet.compat.wire import check_store
from limpet.errors import AlreadyExists, Conflict, Corrupt, InvalidInput, NotFound
from limpet.model import HEAD, JSON, Parent, ScopeKey, SnapshotInfo

with needs("pydantic_ai", "Pydantic AI", extra="pydantic-ai"):
    from pydantic import TypeAdapter, ValidationError
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
    from typing_extensions import TypedDict

__all__ = ["LimpetConversationStore"]

_FACADE = "pydantic_ai"
_KEY = "messages"
_HEADS_MAX = 256
_SMALL_BYTES = 64 * 1024  # of a history that is parsed in the event loop
_ENTRY = "entry"
"""The value of a label that is named after an entry."""

_UPDATED_AT = attrgetter("updated_at")
_RECORD: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


class _Item(TypedDict):
    """An entry as it is stored. The entry before it is its parent."""

    id: str
    message: ModelMessage


class _State(TypedDict):
    messages: list[_Item]


_STATE: TypeAdapter[_State] = TypeAdapter(_State)


class _Line(NamedTuple):
    """A history from its first entry on, as an encoded state, and the snapshot that has it."""

    snapshot: SnapshotInfo
    body: bytes


class LimpetConversationStore(ConversationStore):
    """Conversations in an open store, sync or async. Safe for tasks, threads and processes.

    A save is one atomic step: record and messages together, or on a conflict nothing of them. It
    costs what is new; loading costs one read of the history. Every earlier save stays in the
    history of the session, also the branches that a conversation has left.

    A fork has its own copy of the messages, so that each conversation can be deleted by itself.
    `delete` erases all messages of the conversation, also those of its branches; what forks
    have of them stays. It leaves everything else that other programs stored in the session.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self._store = check_store(store).aio
        # By the revision of the record and by the entry: what follows a `read_record` need not
        # look for its head again. Outdated ones are harmless: they lead to nothing, or a conflict.
        self._heads: Recent[str, SnapshotInfo] = Recent(_HEADS_MAX)
        self._just_read: tuple[str | None, _Line] | None = None

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, None if there is none.

        Raises:
            AlreadyExists: it is a conversation of another framework.
            Corrupt: another program saved something else under this id.
        """
        key = _scope(self._store, conversation_id).key
        line = await self._store.run(lambda store: _line_of(store, key, None))
        if line is None:
            return None
        head = line.snapshot
        record = _record_of(head)
        # `load` asks for the history right after this, and before any other callback of the loop.
        self._just_read = record.head_id, line
        asyncio.get_running_loop().call_soon(self._forget)
        self._heads.put(record.revision, head)
        if record.head_id is not None:
            self._heads.put(record.head_id, head)
        return record

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> list[ConversationRecord]:
        """Return the records, or those with this scope: the newest `updated_at` first.

        Reads the metadata of all conversations, whatever the limit is.
        """

        def read(store: Store) -> list[ConversationRecord]:
            heads = (each.head for each in store.scopes(kind=KIND) if each.key[1] == MAIN)
            records = (_try_record(head) for head in heads if head is not None)
            found = (each for each in records if each and scope in (None, each.scope))
            if limit is None:
                return sorted(found, key=_UPDATED_AT, reverse=True)
            return nlargest(limit, found, key=_UPDATED_AT)

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
            AlreadyExists: there is a conversation of another framework.
            InvalidInput: the new entries are not the end of the record's history.
        """
        _check_chain(record, new_entries)
        seen = None if expected_revision is None else self._heads.get(expected_revision)
        try:
            await self._store.run(
                lambda store: _write(store, record, new_entries, expected_revision, seen)
            )
        except (Conflict, NotFound) as cause:
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
        last_id, line = self._just_read or (None, None)
        if line is not None and last_id == head_id and len(line.body) <= _SMALL_BYTES:
            return _entries_of(line, limit)
        seen = self._heads.get(head_id)

        def read(store: Store) -> list[ConversationEntry]:
            found = _find(store, head_id, [] if seen is None else [seen])
            if found is None:
                raise KeyError(head_id)
            return _entries_of(found, limit)

        return await self._store.run(read)

    def _forget(self) -> None:
        self._just_read = None


def _scope(store: Any, conversation_id: str) -> Any:
    """Return the scope of a conversation, of the API that `store` is of."""
    return store.scope(conversation_id, MAIN, KIND)


def _write(
    store: Store,
    record: ConversationRecord,
    new_entries: Sequence[ConversationEntry],
    expected_revision: str | None,
    seen: SnapshotInfo | None,
) -> None:
    scope: Scope = _scope(store, record.conversation_id)
    head = seen if seen is not None and seen.scope == scope.key else scope.info()
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
    # Where it is most likely, and for a fork where it says that it comes from.
    near = scope if head is not None else _scope(store, record.forked_from or scope.session_id)
    found = _find(store, after, _candidates(near, after))
    if found is None:
        raise ConversationConflict(record.conversation_id)
    state = {_KEY: [*_items_in(found), *items]}
    if head is None:
        # A copy of another conversation. The step fails if that is deleted meanwhile.
        try:
            store.scope(*found.snapshot.scope).fork(
                found.snapshot.id,
                to=scope.session_id,
                scope_id=MAIN,
                patch=state,
                labels=_labels([each["id"] for each in state[_KEY]]),
                metadata=metadata,
            )
        except AlreadyExists as cause:
            raise ConversationConflict(record.conversation_id) from cause
        return
    is_own = found.snapshot.scope == scope.key
    parent: Parent | SnapshotInfo = found.snapshot if is_own else HEAD
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


def _find(store: Store, entry_id: str, first: Iterable[SnapshotInfo]) -> _Line | None:
    """Return the history up to an entry, from one of the `first` snapshots or any that has it."""
    damaged: Corrupt | None = None
    for info in chain(first, _candidates_anywhere(store, entry_id)):
        try:
            line = _line_to(store, info, entry_id)
        except Corrupt as error:
            damaged = error  # another snapshot may have the entry as well
            continue
        if line is not None:
            return line
    if damaged is not None:
        raise damaged
    return None


def _candidates_anywhere(store: Store, entry_id: str) -> Iterator[SnapshotInfo]:
    yield from store.history(labels={entry_id: _ENTRY})
    for each in store.scopes(kind=KIND):
        yield from _candidates(store.scope(*each.key), entry_id)


def _candidates(scope: Scope, entry_id: str) -> Iterator[SnapshotInfo]:
    """Yield the snapshots of a conversation that may have an entry, the most likely ones first.

    Those at the ends of its lines hold every entry that it has.
    """
    yield from scope.history(labels={entry_id: _ENTRY}, limit=1)
    head = scope.info()
    record = None if head is None else _try_record(head)
    if head is None or record is None:
        return
    yield head
    for tip in record.branches:
        yield from scope.history(labels={tip: _ENTRY}, limit=1)


def _line_to(store: Store, info: SnapshotInfo, entry_id: str) -> _Line | None:
    """Return the state of a snapshot, without what comes after an entry; None if it has not it."""
    # The head is read faster than others, and nearly always it is the head.
    whole = _line_of(store, info.scope, None)
    if whole is None or whole.snapshot.id != info.id:
        whole = _line_of(store, info.scope, info.id)
    if whole is None:
        return None  # deleted meanwhile
    if _record_of(info).head_id == entry_id:
        return whole
    items = _items_in(whole)
    for end in range(len(items), 0, -1):
        if items[end - 1]["id"] == entry_id:
            return _Line(info, codec.encode({_KEY: items[:end]}))
    return None


def _line_of(store: Store, scope: ScopeKey, id: str | None) -> _Line | None:
    found = store.driver.run(lambda backend: backend.read_snapshots(scope, [id]))
    return _Line(*found[0]) if found else None


def _record_of(head: SnapshotInfo) -> ConversationRecord:
    record = _try_record(head)
    if record is None:
        check_own(head, _FACADE)
        raise foreign(head, _FACADE)
    return record


def _try_record(head: SnapshotInfo) -> ConversationRecord | None:
    """Return the record in a snapshot; None if it is not one of Pydantic AI."""
    facts = head.metadata.get(_FACADE)
    if not isinstance(facts, dict):
        return None
    try:
        return _RECORD.validate_python({**facts, "conversation_id": head.session_id})
    except ValidationError:
        return None


def _items_of(entries: Sequence[ConversationEntry]) -> list[JSON]:
    messages = ModelMessagesTypeAdapter.dump_python([e.message for e in entries], mode="json")
    return [{"id": e.id, "message": each} for e, each in zip(entries, messages, strict=True)]


def _items_in(line: _Line) -> list[JSON]:
    state = codec.decode(line.body)
    items = state.get(_KEY) if isinstance(state, dict) else None
    if not isinstance(items, list) or not all(map(_is_item, items)):
        raise foreign(line.snapshot, _FACADE)
    return items


def _is_item(value: JSON) -> bool:
    return isinstance(value, dict) and value.keys() == {"id", "message"}


def _entries_of(line: _Line, limit: int | None) -> list[ConversationEntry]:
    body = line.body
    if limit is not None:  # and the one before them, which is the parent of the first
        body = codec.encode({_KEY: _items_in(line)[-limit - 1 :]})
    try:
        items = _STATE.validate_json(body)["messages"]
    except ValidationError:
        # Without the cause, whose text has parts of the conversation.
        raise foreign(line.snapshot, _FACADE) from None
    parents = [None, *(each["id"] for each in items)]
    entries = [
        ConversationEntry(id=each["id"], parent_id=parent_id, message=each["message"])
        for parent_id, each in zip(parents, items, strict=False)
    ]
    return entries if limit is None else entries[-limit:]
