"""Chat stores of LlamaIndex: both of its interfaces on every engine.

`Memory` takes a `LimpetAsyncChatStore`; the older buffers take a `LimpetChatStore`::

    from llama_index.core.memory import Memory
    from limpet.compat.llama_index import LimpetAsyncChatStore

    async with limpet.open_async("sqlite:///agents.db") as store:
        memory = Memory.from_defaults(session_id="chat-42", chat_store=LimpetAsyncChatStore(store))
        await agent.run("Hello!", memory=memory)

Both have the same conversations. `docs/guides/llama_index.md` lists where each thing is stored.
"""

from typing import Any, TypeAlias

from limpet import AsyncStore, Store
from limpet.compat import needs
from limpet.compat.blocking import awaiting, blocking, result_of
from limpet.compat.logs import Logs
from limpet.compat.wire import ABSENT, check_store

with needs("llama_index.core", "LlamaIndex", extra="llama-index"):
    from llama_index.core.llms import ChatMessage
    from llama_index.core.storage.chat_store import BaseChatStore
    from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
    from pydantic import PrivateAttr

__all__ = ["LimpetAsyncChatStore", "LimpetChatStore"]

STATUS = "status"  # of an item that is archived; its other members are those of a `ChatMessage`
ACTIVE, ARCHIVED = MessageStatus.ACTIVE, MessageStatus.ARCHIVED

Messages: TypeAlias = list[ChatMessage]
Status: TypeAlias = MessageStatus | None
as_message = ChatMessage.model_validate


class LimpetAsyncChatStore(AsyncDBChatStore):
    """The messages of `Memory` in an open store, sync or async. Safe for tasks and processes.

    Each call is one step and one snapshot; history keeps what is removed, except by
    `delete_messages` without a status. A conversation of another framework is AlreadyExists.
    """

    _logs: Logs = PrivateAttr()

    def __init__(self, store: Store | AsyncStore, /) -> None:
        super().__init__()
        self._logs = Logs(check_store(store).aio, "messages", "llama_index")

    async def get_messages(
        self, key: str, status: Status = ACTIVE, limit: int | None = None, offset: int | None = None
    ) -> Messages:
        """Return the messages with a status, or all of them; the oldest first."""
        found = await self._logs.of(key).read(lambda item: (as_message(item), _status(item)))
        messages = [message for message, its in found or [] if status in (None, its)]
        return messages[offset or 0 :][:limit]

    async def count_messages(self, key: str, status: Status = ACTIVE) -> int:
        """Return how many messages have a status, or how many there are."""
        return len(await self.get_messages(key, status))

    async def add_message(self, key: str, message: ChatMessage, status: Status = ACTIVE) -> None:
        """Append a message."""
        await self.add_messages(key, [message], status)

    async def add_messages(self, key: str, messages: Messages, status: Status = ACTIVE) -> None:
        """Append messages."""
        await self._logs.of(key).append([_item(each, status) for each in messages])

    async def set_messages(self, key: str, messages: Messages, status: Status = ACTIVE) -> None:
        """Replace all messages, whatever their status is."""
        await self._logs.of(key).replace([_item(each, status) for each in messages])

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the message at a position among all of them and return it; None if none is."""

        def take(items: list[Any]) -> Any:
            return as_message(items.pop(idx)) if -len(items) <= idx < len(items) else ABSENT

        return await self._logs.of(key).change(take) or None

    async def delete_messages(self, key: str, status: Status = None) -> Messages | None:
        """Remove the messages with a status; without one delete the conversation. Return them."""
        if status is not None:
            return await self._take(key, status, None)
        items = await self._logs.of(key).delete()
        return None if items is None else list(map(as_message, items))

    async def delete_oldest_messages(self, key: str, n: int) -> Messages:
        """Remove the oldest active messages and return them."""
        return await self._take(key, ACTIVE, n)

    async def archive_oldest_messages(self, key: str, n: int) -> Messages:
        """Give the oldest active messages the status `archived` and return them."""
        return await self._take(key, ACTIVE, n, archive=True)

    async def get_keys(self) -> list[str]:
        """Return the keys, in text order."""
        return await self._logs.names()

    async def _take(
        self, key: str, status: MessageStatus, n: int | None, *, archive: bool = False
    ) -> Messages:
        def take(items: list[Any]) -> Any:
            taken = [item for item in items if _status(item) == status][:n]
            messages = list(map(as_message, taken))
            for item in taken:
                item[STATUS] = ARCHIVED.value if archive else None
            items[:] = [item for item in items if _status(item) is not None]
            return messages or ABSENT

        return await self._logs.of(key).change(take) or []


class LimpetChatStore(BaseChatStore):
    """The messages of a `ChatMemoryBuffer`: a `LimpetAsyncChatStore` for callers that do not await.

    Its async methods are those of the base class, which call the sync ones in a thread.
    """

    _aio: LimpetAsyncChatStore = PrivateAttr()

    def __init__(self, store: Store | AsyncStore, /) -> None:
        super().__init__()
        self._aio = LimpetAsyncChatStore(blocking(check_store(store)))

    add_message = awaiting(LimpetAsyncChatStore.add_message)
    set_messages = awaiting(LimpetAsyncChatStore.set_messages)
    delete_message = awaiting(LimpetAsyncChatStore.delete_message)
    delete_messages = awaiting(LimpetAsyncChatStore.delete_messages)
    get_keys = awaiting(LimpetAsyncChatStore.get_keys)

    def get_messages(self, key: str) -> Messages:
        """Return the messages, also those that `Memory` archived; the oldest first."""
        return result_of(self._aio.get_messages(key, None))

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Remove the last message and return it; None if there is none."""
        return self.delete_message(key, -1)


def _item(message: ChatMessage, status: Status) -> Any:
    item = message.model_dump(mode="json")
    return {**item, STATUS: ARCHIVED.value} if status == ARCHIVED else item


def _status(item: Any) -> Any:
    return item.get(STATUS, ACTIVE)
