"""The chat stores do what LlamaIndex's own do, on every engine."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.llms import MessageRole as Role
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

import limpet
from limpet.compat.llama_index import LimpetAsyncChatStore, LimpetChatStore
from tests.processes import run_at_once

ACTIVE, ARCHIVED = MessageStatus.ACTIVE, MessageStatus.ARCHIVED
BLOCKS: list[Any] = [
    {"block_type": "text", "text": "\0 \U0001f41a é"},
    {"block_type": "thinking", "content": "hm", "num_tokens": 2},
    {
        "block_type": "tool_call",
        "tool_call_id": "1",
        "tool_name": "add",
        "tool_kwargs": {"a": 2**70},
    },
    {"block_type": "image", "image": b"\x89PNG\r\n\x1a\n12345678", "detail": "low"},
    {"block_type": "image", "url": "https://example.com/a.png"},
    {"block_type": "audio", "audio": b"abcd", "format": "wav"},
    {"block_type": "document", "data": b"abcd", "title": "a.txt"},
    {"block_type": "cache", "cache_control": {"type": "ephemeral"}},
]
ALL = [
    *(ChatMessage(role=role, content=role.value) for role in Role),
    ChatMessage(role=Role.ASSISTANT, blocks=BLOCKS),
    ChatMessage(
        role=Role.TOOL, content="5", additional_kwargs={"tool_call_id": "1", "name": "add"}
    ),
    ChatMessage(role=Role.USER, content=""),
    ChatMessage(role=Role.USER, content="same"),
    ChatMessage(role=Role.USER, content="same"),
]


def said(*texts: str) -> list[ChatMessage]:
    return [ChatMessage(role=Role.USER, content=text) for text in texts]


@pytest.fixture(params=["ours", "theirs"])
def chats(request: pytest.FixtureRequest, memory: limpet.Store) -> Any:
    """A `BaseChatStore`."""
    return LimpetChatStore(memory) if request.param == "ours" else SimpleChatStore()


@pytest.fixture(params=["ours", "theirs"])
def queues(request: pytest.FixtureRequest, memory: limpet.Store) -> Any:
    """An `AsyncDBChatStore`."""
    if request.param == "ours":
        return LimpetAsyncChatStore(memory)
    return SQLAlchemyChatStore(table_name="messages")


def test_what_a_chat_store_does(chats: Any) -> None:
    assert chats.get_messages("a") == []
    assert chats.delete_messages("a") is None
    assert chats.delete_message("a", 0) is None
    assert chats.delete_last_message("a") is None
    assert chats.get_keys() == []

    chats.set_messages("a", [*ALL])
    assert chats.get_messages("a") == ALL
    chats.set_messages("a", said("one", "two"))
    chats.add_message("a", said("three")[0])
    chats.add_message("b", said("other")[0])
    assert chats.get_keys() == ["a", "b"]
    assert chats.delete_message("a", idx=1) == said("two")[0]
    assert chats.delete_message("a", 2) is None
    assert chats.delete_last_message("a") == said("three")[0]
    assert chats.get_messages("a") == said("one")
    assert chats.delete_messages("a") == said("one")
    assert chats.get_keys() == ["b"]
    chats.add_message("a", said("again")[0])
    assert chats.get_messages("a") == said("again")


async def test_the_async_methods_of_a_chat_store(chats: Any) -> None:
    await chats.aset_messages("a", [*ALL])
    await chats.async_add_message("a", ALL[0])
    assert await chats.aget_messages("a") == chats.get_messages("a") == [*ALL, ALL[0]]
    assert await chats.adelete_last_message("a") == ALL[0]
    assert await chats.adelete_message("a", 0) == ALL[0]
    assert await chats.aget_keys() == ["a"]
    assert await chats.adelete_messages("a") == ALL[1:]
    assert await chats.aget_keys() == []


async def test_what_a_queue_does(queues: Any) -> None:
    assert await queues.get_messages("a") == []
    assert await queues.archive_oldest_messages("a", 1) == []
    await queues.add_messages("a", ALL)
    assert await queues.get_messages("a") == ALL
    assert await queues.archive_oldest_messages("a", 3) == ALL[:3]
    await queues.add_message("a", said("old")[0], ARCHIVED)
    assert await queues.get_messages("a") == ALL[3:]
    assert await queues.get_messages("a", ARCHIVED) == [*ALL[:3], *said("old")]
    assert await queues.get_messages("a", None) == [*ALL, *said("old")]
    assert await queues.get_messages("a", limit=2, offset=1) == ALL[4:6]
    assert await queues.count_messages("a") == len(ALL) - 3
    assert await queues.count_messages("a", None) == len(ALL) + 1
    assert await queues.delete_oldest_messages("a", 2) == ALL[3:5]
    assert await queues.get_messages("a", None) == [*ALL[:3], *ALL[5:], *said("old")]
    await queues.delete_messages("a", ARCHIVED)
    assert await queues.get_messages("a", None) == ALL[5:]
    await queues.set_messages("a", said("new"))
    assert await queues.get_messages("a", None) == said("new")
    await queues.add_message("b", said("other")[0])
    assert sorted(await queues.get_keys()) == ["a", "b"]
    await queues.delete_messages("a")
    assert await queues.get_keys() == ["b"]


async def test_both_on_every_engine(any_store: limpet.Store) -> None:
    chats, queues = LimpetChatStore(any_store.aio), LimpetAsyncChatStore(any_store)
    await queues.add_messages("alice/1", ALL)
    await queues.archive_oldest_messages("alice/1", 2)
    assert chats.get_messages("alice/1") == ALL
    assert await queues.delete_message("alice/1", -1) == ALL[-1]
    assert await queues.get_keys() == chats.get_keys() == ["alice/1"]
    scope = any_store.scope("alice/1", kind="conversation")
    heads = list(scope.load_many(list(scope.history())))
    assert [len(each.state["messages"]) for each in heads] == [len(ALL) - 1, len(ALL), len(ALL)]
    assert {tuple(each.metadata) for each in heads} == {("llama_index",)}
    first, *_, last = heads[1].state["messages"]
    assert first == {**ALL[0].model_dump(mode="json"), "status": "archived"}
    assert last == ALL[-1].model_dump(mode="json")
    scope.fork(heads[-1], to="alice/2")
    assert await queues.get_messages("alice/2") == ALL
    chats.delete_messages("alice/1")
    assert list(any_store.sessions()) == ["alice/2"]


async def test_what_is_refused(memory: limpet.Store) -> None:
    chats = LimpetChatStore(memory)
    with pytest.raises(ValueError, match="serialize"):
        chats.add_message("a", ChatMessage(content="a", additional_kwargs={"b": object()}))
    with pytest.raises(limpet.InvalidInput):
        chats.add_message("", ALL[0])
    with pytest.raises(limpet.InvalidInput, match="expected a store"):
        LimpetAsyncChatStore("sqlite:///a.db")  # type: ignore[arg-type]
    for item in (5, {"role": "pirate", "blocks": []}):
        memory.scope("a", kind="conversation").save({"messages": [item]})
        with pytest.raises(limpet.Corrupt, match="of LlamaIndex"):
            chats.get_messages("a")


# With memories


async def test_a_memory_goes_on(url: str) -> None:
    """Also with what it archived, when its queue became too long."""

    def memory(store: Any) -> Memory:
        count: Callable[[str], list[str]] = str.split
        return Memory.from_defaults(
            session_id="chat",
            chat_store=LimpetAsyncChatStore(store),
            token_limit=20,
            token_flush_size=4,
            chat_history_token_ratio=0.5,
            tokenizer_fn=count,
        )

    texts = [f"question number {n}" for n in range(8)]
    async with limpet.open_async(url) as store:
        for text in texts:
            await memory(store).aput_messages(said(text))
    with limpet.open(url) as again:
        short = [each.content for each in memory(again).get()]
        assert short == texts[-len(short) :]
        assert 0 < len(short) < len(texts)
        assert await memory(again).aget_all() == said(*texts)


def test_a_buffer_goes_on(url: str) -> None:
    for n in range(3):
        with limpet.open(url) as store:
            buffer = ChatMemoryBuffer.from_defaults(
                chat_store=LimpetChatStore(store), chat_store_key="chat", tokenizer_fn=str.split
            )
            assert buffer.get() == said(*map(str, range(n)))
            buffer.put(said(str(n))[0])


# Several writers


async def write(url: str, by: int) -> None:
    async with limpet.open_async(url) as store:
        queues = LimpetAsyncChatStore(store)
        for n in range(10):
            await queues.add_messages("chat", said(f"{by} {n}", f"{by} {n}"))
            await queues.archive_oldest_messages("chat", 1)


@pytest.mark.parametrize("by", ["tasks", pytest.param("processes", marks=pytest.mark.slow)])
async def test_several_writers_lose_nothing(url: str, by: str) -> None:
    if by == "processes":
        run_at_once(write, [(url, each) for each in range(3)])
    else:
        await asyncio.gather(*(write(url, each) for each in range(3)))
    with limpet.open(url) as store:
        queues = LimpetAsyncChatStore(store)
        found = await queues.get_messages("chat", None)
        assert await queues.count_messages("chat", ARCHIVED) == 30
    pairs = [each.content for each in found[::2]]
    assert pairs == [each.content for each in found[1::2]]
    assert sorted(map(str, pairs)) == [f"{by} {n}" for by in range(3) for n in range(10)]
