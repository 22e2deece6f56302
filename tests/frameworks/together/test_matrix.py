"""Several frameworks on one store: none reads or writes what is another one's."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ag2.events import HumanMessage as HumanMessageEvent
from google.adk.events.event import Event
from google.adk.sessions import Session
from langchain_core.messages import HumanMessage
from llama_index.core.llms import ChatMessage
from pydantic_ai import Conversation
from pydantic_ai.messages import ModelRequest

import limpet
from limpet import AlreadyExists
from limpet.compat.adk import LimpetSessionService
from limpet.compat.ag2 import LimpetStorage
from limpet.compat.claude import LimpetClaudeStore
from limpet.compat.langchain import LimpetChatMessageHistory
from limpet.compat.llama_index import LimpetAsyncChatStore
from limpet.compat.logs import FRAMEWORKS, Logs
from limpet.compat.openai import LimpetSession, list_sessions
from limpet.compat.pydantic_ai import LimpetConversationStore
from tests.effort import slowly
from tests.frameworks.kit import ENGINES, FAST, Places

Verbs = dict[str, Callable[[], Awaitable[Any]]]
ENTRY: Any = {"type": "user", "uuid": "u-1", "message": {"role": "user", "content": "hello"}}


class OpenAI:
    def __init__(self, store: limpet.Store, name: str) -> None:
        self.session = LimpetSession(f"claude/{name}/s", store)

    async def begin(self) -> None:
        await self.session.add_items([{"role": "user", "content": "hello"}])

    def verbs(self) -> Verbs:
        session = self.session
        return {
            "get_items": session.get_items,
            "add_items": self.begin,
            "pop_item": session.pop_item,
            "clear_session": session.clear_session,
            "branch": lambda: session.branch("b"),
            "branch at a snapshot": lambda: session.branch("b", at="any"),
            "metadata": session.metadata,
            "set_metadata": lambda: session.set_metadata(title="t"),
            "replace": lambda: session._atomic_replace_items([]),
        }

    async def listed(self) -> list[str]:
        return [each.session_id async for each in list_sessions(self.session._store)]


class Claude:
    def __init__(self, store: limpet.Store, name: str) -> None:
        self.sessions = LimpetClaudeStore(store)
        self.key: Any = {"project_key": name, "session_id": "s"}

    async def begin(self) -> None:
        await self.sessions.append(self.key, [ENTRY])

    def verbs(self) -> Verbs:
        return {
            "append": self.begin,
            "append a fork": lambda: self.sessions.append(
                self.key, [{**ENTRY, "forkedFrom": {"sessionId": "s", "messageUuid": "u-1"}}]
            ),
            "load": lambda: self.sessions.load(self.key),
            "delete": lambda: self.sessions.delete(self.key),
        }

    async def listed(self) -> list[str]:
        project = self.key["project_key"]
        found = await self.sessions.list_sessions(project)
        assert len(found) == len(await self.sessions.list_session_summaries(project))
        return [f"claude/{project}/{each['session_id']}" for each in found]


class Adk:
    def __init__(self, store: limpet.Store, name: str) -> None:
        self.service = LimpetSessionService(store)
        self.where: dict[str, Any] = {"app_name": "claude", "user_id": name, "session_id": "s"}

    async def begin(self) -> None:
        session = await self.service.create_session(**self.where)
        await self.service.append_event(session, Event(author="user", invocation_id="1"))

    async def append(self) -> None:
        stale = Session(app_name="claude", user_id=self.where["user_id"], id="s")
        await self.service.append_event(stale, Event(author="user", invocation_id="2"))

    def verbs(self) -> Verbs:
        return {
            "create_session": self.begin,
            "get_session": lambda: self.service.get_session(**self.where),
            "append_event": self.append,
            "fork_session": lambda: self.service.fork_session(**self.where),
            "delete_session": lambda: self.service.delete_session(**self.where),
        }

    async def listed(self) -> list[str]:
        found = (await self.service.list_sessions(app_name="claude")).sessions
        return [f"claude/{each.user_id}/{each.id}" for each in found]


class PydanticAI:
    def __init__(self, store: limpet.Store, name: str) -> None:
        self.conversations = LimpetConversationStore(store)
        self.id = f"claude/{name}/s"

    async def begin(self) -> None:
        chat = Conversation(conversation_id=self.id)
        chat.messages.append(ModelRequest.user_text_prompt("hello"))
        await self.conversations.save(chat)

    def verbs(self) -> Verbs:
        return {
            "save": self.begin,
            "load": lambda: self.conversations.load(self.id),
            "fork": lambda: self.conversations.fork(self.id, new_conversation_id="f"),
            "branch": lambda: self.conversations.branch(self.id, at=1, expected_revision="r"),
            "delete": lambda: self.conversations.delete(self.id),
        }

    async def listed(self) -> list[str]:
        return [each.conversation_id for each in await self.conversations.list_conversations()]


class LangChain:
    def __init__(self, store: limpet.Store, name: str) -> None:
        self.store = store
        self.history = LimpetChatMessageHistory(f"claude/{name}/s", store)

    async def begin(self) -> None:
        await self.history.aadd_messages([HumanMessage("hello")])

    def verbs(self) -> Verbs:
        return {
            "messages": self.history.aget_messages,
            "add_messages": self.begin,
            "clear": self.history.aclear,
        }

    async def listed(self) -> list[str]:
        """It has no list."""
        return Logs(self.store, "messages", "langchain").names()


class LlamaIndex:
    def __init__(self, store: limpet.Store, name: str) -> None:
        self.chats = LimpetAsyncChatStore(store)
        self.key = f"claude/{name}/s"

    async def begin(self) -> None:
        await self.chats.add_message(self.key, ChatMessage("hello"))

    def verbs(self) -> Verbs:
        return {
            "get_messages": lambda: self.chats.get_messages(self.key),
            "add_message": self.begin,
            "set_messages": lambda: self.chats.set_messages(self.key, []),
            "delete_message": lambda: self.chats.delete_message(self.key, 0),
            "delete_messages": lambda: self.chats.delete_messages(self.key),
            "archive_oldest_messages": lambda: self.chats.archive_oldest_messages(self.key, 1),
        }

    async def listed(self) -> list[str]:
        return await self.chats.get_keys()


class Ag2:
    def __init__(self, store: limpet.Store, name: str) -> None:
        self.store = store
        self.storage = LimpetStorage(store)
        self.id: Any = f"claude/{name}/s"

    async def begin(self) -> None:
        context: Any = SimpleNamespace(stream=SimpleNamespace(id=self.id))
        await self.storage.save_event(HumanMessageEvent("hello"), context)

    def verbs(self) -> Verbs:
        return {
            "save_event": self.begin,
            "get_history": lambda: self.storage.get_history(self.id),
            "set_history": lambda: self.storage.set_history(self.id, []),
            "drop_history": lambda: self.storage.drop_history(self.id),
        }

    async def listed(self) -> list[str]:
        """It has no list."""
        return Logs(self.store, "events", "ag2").names()


SHARING: dict[str, Callable[[limpet.Store, str], Any]] = {
    "adk": Adk,
    "ag2": Ag2,
    "claude": Claude,
    "langchain": LangChain,
    "llama_index": LlamaIndex,
    "openai": OpenAI,
    "pydantic_ai": PydanticAI,
}
"""Those whose conversations are in the same scopes, by their marks."""


def everything(store: limpet.Store) -> dict[str, Any]:
    scopes = [each.key for each in store.scopes()]
    return {
        "/".join(key): [
            list(store.scope(*key).load_many(list(store.scope(*key).history()))),
            list(store.scope(*key).notes()),
        ]
        for key in scopes
    }


@pytest.fixture(params=slowly(ENGINES, but=FAST))
def store(request: pytest.FixtureRequest, places: Places) -> Any:
    with limpet.open(places.url(request.param)) as store:
        yield store


async def test_no_framework_reads_or_writes_what_is_another_ones(store: limpet.Store) -> None:
    assert {*SHARING} <= {*FRAMEWORKS}
    for name, framework in SHARING.items():
        await framework(store, name).begin()
    before = everything(store)
    for owner in SHARING:
        for name in SHARING.keys() - {owner}:
            for verb, call in SHARING[name](store, owner).verbs().items():
                with pytest.raises(AlreadyExists) as caught:
                    await call()
                said = str(caught.value)
                expected = f"conversation of {FRAMEWORKS[owner]}, not of {FRAMEWORKS[name]}: "
                assert expected in said, (owner, name, verb)
    assert everything(store) == before
    for name, framework in SHARING.items():
        assert await framework(store, name).listed() == [f"claude/{name}/s"]
