"""Chat stores of LlamaIndex: both of its interfaces on every engine.

`Memory` takes a `LimpetAsyncChatStore`; the older buffers take a `LimpetChatStore`::

    from llama_index.core.memory import Memory
    from limpet.compat.llama_index import LimpetAsyncChatStore

    async with limpet.open_async("sqlite:///agents.db") as store:
        memory = Memory.from_defaults(session_id="chat-42", chat_store=LimpetAsyncChatStore(store))
        await agent.run("Hello!", memory=memory)

Both have the same conversations. `docs/guides/llama_index.md` lists where each thing is stored.
"""

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from limpet import AsyncStore, Store
from limpet.api.integrations import AsyncDriver
from limpet.compat import needs
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

P = ParamSpec("P")
T = TypeVar("T")
Messages: TypeAlias = list[ChatMessage]
Status: TypeAlias = MessageStatus | None
as_message = ChatMessage.model_validate


class LimpetChatStore(BaseChatStore):
    """The messages of a `ChatMemoryBuffer` in an open store, sync or async.

    Safe for threads and processes. Each call is one step and one snapshot; history keeps what is
    removed, except by `delete_messages` without a status. A conversation of another framework is
    AlreadyExists. The async methods are those of the base class, which call these in a thread.
    """

    _logs: Logs = PrivateAttr()

    def __init__(self, store: Store | AsyncStore, /) -> None:
        super().__init__()
        self._logs = Logs(check_store(store).sync, "messages", "llama_index")

    def get_messages(
        self, key: str, status: Status = None, limit: int | None = None, offset: int | None = None
    ) -> Messages:
        """Return the messages with a status, by default also those that `Memory` archived.

        The oldest are first.
        """
        found = self._logs.of(key).read(lambda item: (as_message(item), _status(item)))
        messages = [message for message, its in found or [] if status in (None, its)]
        return messages[offset or 0 :][:limit]

    def add_message(self, key: str, message: ChatMessage, status: Status = ACTIVE) -> None:
        """Append a message."""
        self.add_messages(key, [message], status)

    def add_messages(self, key: str, messages: Messages, status: Status = ACTIVE) -> None:
        """Append messages."""
        self._logs.of(key).append([_item(each, status) for each in messages])

    def set_messages(self, key: str, messages: Messages, status: Status = ACTIVE) -> None:
        """Replace all messages, whatever their status is."""
        self._logs.of(key).replace([_item(each, status) for each in messages])

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Remove the message at a position among all of them and return it; None if none is."""

        def take(items: list[Any]) -> Any:
            return as_message(items.pop(idx)) if -len(items) <= idx < len(items) else ABSENT

        return self._logs.of(key).change(take) or None

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Remove the last message and return it; None if there is none."""
        return self.delete_message(key, -1)

    def delete_messages(self, key: str, status: Status = None) -> Messages | None:
        """Remove the messages with a status; without one delete the conversation. Return them."""
        if status is not None:
            return self._take(key, status, None)
        items = self._logs.of(key).delete()
        return None if items is None else list(map(as_message, items))

    def delete_oldest_messages(self, key: str, n: int) -> Messages:
        """Remove the oldest active messages and return them."""
        return self._take(key, ACTIVE, n)

    def archive_oldest_messages(self, key: str, n: int) -> Messages:
        """Give the oldest active messages the status `archived` and return them."""
        return self._take(key, ACTIVE, n, archive=True)

    def get_keys(self) -> list[str]:
        """Return the keys, in text order."""
        return self._logs.names()

    def _take(
        self, key: str, status: MessageStatus, n: int | None, *, archive: bool = False
    ) -> Messages:
        def take(items: list[Any]) -> Any:
            taken = [item for item in items if _status(item) == status][:n]
            messages = list(map(as_message, taken))
            for item in taken:
                item[STATUS] = ARCHIVED.value if archive else None
            items[:] = [item for item in items if _status(item) is not None]
            return messages or ABSENT

        return self._logs.of(key).change(take) or []


def _in_pool(
    method: Callable[Concatenate[LimpetChatStore, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the async twin of a method."""

    @wraps(method)
    async def twin(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        driver: AsyncDriver = self._driver
        return await driver.offload(partial(method, self._chats, *args, **options))

    return twin


class LimpetAsyncChatStore(AsyncDBChatStore):
    """The messages of `Memory`: a `LimpetChatStore` whose methods are awaited."""

    _chats: LimpetChatStore = PrivateAttr()
    _driver: AsyncDriver = PrivateAttr()

    def __init__(self, store: Store | AsyncStore, /) -> None:
        super().__init__()
        self._chats = LimpetChatStore(store)
        self._driver = store.aio.driver

    _read = _in_pool(LimpetChatStore.get_messages)
    add_message = _in_pool(LimpetChatStore.add_message)
    add_messages = _in_pool(LimpetChatStore.add_messages)
    set_messages = _in_pool(LimpetChatStore.set_messages)
    delete_message = _in_pool(LimpetChatStore.delete_message)
    delete_messages = _in_pool(LimpetChatStore.delete_messages)
    delete_oldest_messages = _in_pool(LimpetChatStore.delete_oldest_messages)
    archive_oldest_messages = _in_pool(LimpetChatStore.archive_oldest_messages)
    get_keys = _in_pool(LimpetChatStore.get_keys)

    async def get_messages(
        self, key: str, status: Status = ACTIVE, limit: int | None = None, offset: int | None = None
    ) -> Messages:
        """Return the messages with a status, or all of them; the oldest first."""
        return await self._read(key, status, limit, offset)

    async def count_messages(self, key: str, status: Status = ACTIVE) -> int:
        """Return how many messages have a status, or how many there are."""
        return len(await self.get_messages(key, status))


def _item(message: ChatMessage, status: Status) -> Any:
    item = message.model_dump(mode="json")
    return {**item, STATUS: ARCHIVED.value} if status == ARCHIVED else item


def _status(item: Any) -> Any:
    return item.get(STATUS, ACTIVE)
