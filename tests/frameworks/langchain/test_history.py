"""`LimpetChatMessageHistory` does what LangChain's own history in memory does, on every engine."""

import asyncio
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core import messages as of
from langchain_core.chat_history import BaseChatMessageHistory, InMemoryChatMessageHistory
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

import limpet
from limpet.compat.langchain import LimpetChatMessageHistory
from tests.processes import run_at_once

CALL: Any = {"name": "add", "args": {"a": 2}, "id": "c-1", "type": "tool_call"}
BAD_CALL: Any = {"name": "add", "args": "{", "id": "2", "error": "bad", "type": "invalid_tool_call"}
PICTURE: Any = {"type": "image", "base64": "AA==", "mime_type": "image/png"}
USED: Any = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
ALL = [
    of.SystemMessage("be kind"),
    of.HumanMessage([{"type": "text", "text": "what is \0 \U0001f41a é?"}, PICTURE], name="ann"),
    of.AIMessage("", tool_calls=[CALL], invalid_tool_calls=[BAD_CALL], usage_metadata=USED, id="a"),
    of.ToolMessage("5", tool_call_id="c-1", artifact={"raw": [2**70, None]}, status="error"),
    of.FunctionMessage(name="add", content="5"),
    of.ChatMessage(role="judge", content="fine", additional_kwargs={"score": 1.0}),
    of.RemoveMessage(id="a"),
    of.AIMessageChunk(content="Fi", response_metadata={"model": "fake"}),
    of.HumanMessageChunk(content="same"),
    of.HumanMessage("same"),
    of.HumanMessage("same"),
]


@pytest.fixture(params=["ours", "theirs"])
def history(request: pytest.FixtureRequest, memory: limpet.Store) -> BaseChatMessageHistory:
    if request.param == "ours":
        return LimpetChatMessageHistory("chat", memory)
    return InMemoryChatMessageHistory()


def test_messages_come_back_exactly(history: BaseChatMessageHistory) -> None:
    assert history.messages == []
    history.add_messages([])
    history.add_messages(ALL)
    history.add_message(ALL[0])
    history.add_user_message("hi")
    history.add_ai_message("yes?")
    expected = [*ALL, ALL[0], HumanMessage("hi"), AIMessage("yes?")]
    assert history.messages == expected
    assert list(map(repr, history.messages)) == list(map(repr, expected))


async def test_the_async_methods(history: BaseChatMessageHistory) -> None:
    """Also those that block, inside an event loop."""
    await history.aclear()
    await history.aadd_messages(ALL)
    history.add_user_message("hi")
    assert await history.aget_messages() == history.messages == [*ALL, HumanMessage("hi")]
    await history.aclear()
    assert history.messages == []
    history.add_user_message("again")
    history.clear()
    history.clear()
    assert await history.aget_messages() == []


def test_on_every_engine(any_store: limpet.Store) -> None:
    history = LimpetChatMessageHistory("alice/1", any_store.aio)
    assert list(any_store.sessions()) == []
    history.add_messages(ALL[:2])
    history.add_messages(ALL[2:])
    assert LimpetChatMessageHistory("alice/1", any_store).messages == ALL
    scope = any_store.scope("alice/1", kind="conversation")
    infos = list(scope.history())
    assert [len(each.state["messages"]) for each in scope.load_many(infos)] == [len(ALL), 2]
    assert infos[0].metadata == {"langchain": True}
    scope.fork(infos[1], to="alice/2")
    assert LimpetChatMessageHistory("alice/2", any_store).messages == ALL[:2]
    history.clear()
    assert list(any_store.sessions()) == ["alice/2"]


def test_what_is_refused(memory: limpet.Store) -> None:
    history = LimpetChatMessageHistory("chat", memory)
    with pytest.raises(limpet.InvalidInput):
        history.add_messages([ALL[0], of.ToolMessage("5", tool_call_id="1", artifact=object())])
    assert history.messages == []
    for bad in ("", "\0"):
        with pytest.raises(limpet.InvalidInput):
            LimpetChatMessageHistory(bad, memory)
    with pytest.raises(limpet.InvalidInput, match="expected a store"):
        LimpetChatMessageHistory("chat", "sqlite:///a.db")  # type: ignore[arg-type]
    scope = memory.scope("chat", kind="conversation")
    for item in (5, {"role": "user", "content": "secret"}, {"type": "robot", "data": {}}):
        scope.save({"messages": [item]})
        with pytest.raises(limpet.Corrupt, match="of LangChain") as caught:
            _ = history.messages
        assert caught.value.__context__ is None or caught.value.__suppress_context__


def write(url: str, by: int) -> None:
    with limpet.open(url) as store:
        history = LimpetChatMessageHistory("chat", store)
        for n in range(0, 20, 2):
            history.add_messages([HumanMessage(f"{by} {n}"), AIMessage(f"{by} {n + 1}")])


async def write_in_a_process(url: str, by: int) -> None:
    write(url, by)


@pytest.mark.parametrize("by", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_several_writers_lose_nothing(url: str, by: str) -> None:
    if by == "processes":
        run_at_once(write_in_a_process, [(url, each) for each in range(3)])
    else:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(write, [url] * 3, range(3)))
    with limpet.open(url) as store:
        said = [str(each.content) for each in LimpetChatMessageHistory("chat", store).messages]
    in_order = [f"{by} {n}" for by in range(3) for n in range(20)]
    assert sorted(said, key=lambda each: each[0]) == in_order
    assert all(a.split()[0] == b.split()[0] for a, b in zip(said[::2], said[1::2], strict=True))


# With a model


def answer(given: Any) -> AIMessage:
    said = given if isinstance(given, list) else given.to_messages()
    asked = [each.content for each in said if isinstance(each, HumanMessage)]
    return AIMessage(f"{len(asked)}: {asked[-1]}")


def chain(store: limpet.Store | limpet.AsyncStore, *, prompted: bool) -> Any:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Be {mood}."), MessagesPlaceholder("history"), ("human", "{question}")]
    )
    keys = {"input_messages_key": "question", "history_messages_key": "history"}
    with warnings.catch_warnings(action="ignore"):  # it is deprecated
        return RunnableWithMessageHistory(
            prompt | RunnableLambda(answer) if prompted else RunnableLambda(answer),
            lambda session_id: LimpetChatMessageHistory(session_id, store),
            **(keys if prompted else {}),  # type: ignore[arg-type]
        )


@pytest.mark.parametrize("prompted", [False, True])
async def test_a_chain_with_history(store: limpet.Store, prompted: bool) -> None:
    def asked(text: str) -> Any:
        return {"question": text, "mood": "kind"} if prompted else [HumanMessage(text)]

    configs: list[Any] = [{"configurable": {"session_id": name}} for name in ("a", "b")]
    talk = chain(store, prompted=prompted)
    assert talk.invoke(asked("one"), configs[0]).content == "1: one"
    assert (await talk.ainvoke(asked("two"), configs[0])).content == "2: two"
    assert [each.content for each in talk.stream(asked("three"), configs[0])] == ["3: three"]
    again = chain(store.aio, prompted=prompted)
    both = await again.abatch([asked("four"), asked("one")], configs)
    assert [each.content for each in both] == ["4: four", "1: one"]
    said = [each.content for each in LimpetChatMessageHistory("a", store).messages]
    assert said == ["one", "1: one", "two", "2: two", "three", "3: three", "four", "4: four"]
    assert len(list(store.scope("a", kind="conversation").history())) == 4


def test_without_an_event_loop_of_its_own(store: limpet.Store) -> None:
    """The sync methods neither need nor disturb the loop of the caller."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        asyncio.set_event_loop(loop)
        LimpetChatMessageHistory("chat", store).add_user_message("hi")
        assert asyncio.get_event_loop_policy().get_event_loop() is loop
