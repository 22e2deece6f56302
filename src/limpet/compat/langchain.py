"""Chat histories of LangChain: its `BaseChatMessageHistory` on every engine.

`RunnableWithMessageHistory` reads it before each call, and adds the question and the answer::

    from langchain_core.runnables.history import RunnableWithMessageHistory
    from limpet.compat.langchain import LimpetChatMessageHistory

    store = limpet.open("sqlite:///agents.db")
    chain = RunnableWithMessageHistory(model, lambda id: LimpetChatMessageHistory(id, store))
    chain.invoke("Hello!", {"configurable": {"session_id": "chat-42"}})

`docs/guides/langchain.md` lists where each thing is stored, so that other programs see it.
"""

from collections.abc import Sequence
from typing import Any

from limpet import AsyncStore, Scope, Store
from limpet.compat import needs
from limpet.compat.logs import KIND, MAIN, Log
from limpet.compat.wire import check_store

with needs("langchain_core", "LangChain", extra="langchain"):
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict

__all__ = ["LimpetChatMessageHistory"]


class LimpetChatMessageHistory(BaseChatMessageHistory):
    """The messages of a conversation in an open store, sync or async.

    What `add_messages` gets is one snapshot, and costs what is added. Nothing is lost if several
    threads or processes add at once. The async methods are those of the base class, which call
    the sync ones in a thread.

    Example:
        history = LimpetChatMessageHistory("chat-42", store)
        history.add_user_message("Hello!")
        print(history.messages)
    """

    def __init__(self, session_id: str, store: Store | AsyncStore) -> None:
        """Open a history. Nothing is read or written."""
        self.session_id = session_id
        scope: Scope[Any] = check_store(store).sync.scope(session_id, MAIN, KIND)
        self._log = Log(scope, "messages", "langchain")

    def __repr__(self) -> str:
        return f"LimpetChatMessageHistory({self.session_id!r})"

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """The messages, read from the store each time.

        Raises:
            AlreadyExists: another framework has a conversation with this id.
            Corrupt: another program, or a newer LangChain, saved something else here.
        """
        return self._log.read(_message) or []

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Add messages as one snapshot: all of them are stored when this returns.

        Raises:
            AlreadyExists: another framework has a conversation with this id.
            InvalidInput: a message is not JSON. Nothing was stored.
        """
        self._log.append([message_to_dict(each) for each in messages])

    def clear(self) -> None:
        """Delete the messages and their history."""
        self._log.delete()


def _message(item: Any) -> BaseMessage:
    return messages_from_dict([item])[0]
