"""What only our store promises: one commit a save, its addresses, many writers, bad data."""

import asyncio
from pathlib import Path

import pytest
from pydantic_ai import Conversation, DeferredToolRequests, UserError
from pydantic_ai.conversation_store import ConversationConflict, ConversationRecord
from pydantic_ai.messages import ToolCallPart

import limpet
from limpet.compat.pydantic_ai import LimpetConversationStore
from tests.frameworks.pydantic_ai.chats import (
    asked,
    entries_after,
    loaded,
    new_chat,
    said,
    saved,
    texts,
    words_of,
)
from tests.present import present

KIND = "conversation"
TURNS, TASKS = 6, 4


def infos(store: limpet.Store, id: str) -> list[limpet.SnapshotInfo]:
    return list(store.scope(id, kind=KIND).history())


async def test_a_whole_story_on_every_engine(any_store: limpet.Store) -> None:
    conversations = LimpetConversationStore(any_store)
    chat = await saved(conversations, "chat", "a", "b", scope="ann")
    branch = await conversations.branch("chat", at=1, expected_revision=chat.revision)
    branch.messages.append(said("c"))
    await conversations.save(branch)
    await conversations.fork("chat", new_conversation_id="fork")
    await conversations.delete("chat")
    assert await words_of(LimpetConversationStore(any_store), "fork") == ["a", "c"]
    (record,) = await conversations.list_conversations(scope="ann")
    assert record.forked_from == "chat"
    with pytest.raises(limpet.InvalidInput, match="expected a store"):
        LimpetConversationStore("sqlite:///x.db")  # type: ignore[arg-type]


async def test_addresses(memory: limpet.Store) -> None:
    """A save is one snapshot; a fork says where it comes from."""
    conversations = LimpetConversationStore(memory.aio)
    chat = new_chat("ann/chat", "a", "b")
    entries = await conversations.save(chat)
    chat.messages.append(said("c"))
    entries += await conversations.save(chat)
    second, first = infos(memory, "ann/chat")
    assert (second.parent_id, first.parent_id) == (first.id, None)
    assert first.labels == {entries[0].id: "entry", entries[1].id: "entry"}
    state = memory.scope("ann/chat", kind=KIND).load().state  # type: ignore[union-attr]
    assert [each["id"] for each in state["messages"]] == [each.id for each in entries]
    assert state["messages"][2]["message"]["parts"][0]["content"] == "c"
    assert second.metadata["pydantic_ai"]["head_id"] == entries[2].id
    await conversations.branch("ann/chat", at=2, expected_revision=chat.revision)
    assert infos(memory, "ann/chat")[0].parent_id == first.id
    await conversations.fork("ann/chat", at=1, new_conversation_id="fork")
    (begun,) = infos(memory, "fork")
    assert begun.forked_from is not None
    assert begun.forked_from.scope.session_id == "ann/chat"


@pytest.mark.parametrize("count", [64, 65, 200])
async def test_more_entries_than_labels(memory: limpet.Store, count: int) -> None:
    """Entries without a label are found too, also in a branch that was left, and in a fork."""
    conversations = LimpetConversationStore(memory)
    chat = new_chat("chat", *map(str, range(count)))
    entries = await conversations.save(chat)
    assert await conversations.read_entry(entries[0].id) == entries[0]
    assert await conversations.read_history(entries[2].id) == entries[:3]
    branch = await conversations.branch("chat", at=1, expected_revision=chat.revision)
    assert texts(branch.messages) == ["0"]
    assert await conversations.read_entry(entries[1].id) == entries[1]
    back = await conversations.branch(
        "chat", from_entry=entries[-2].id, expected_revision=branch.revision
    )
    assert len(back.messages) == count - 1
    await conversations.fork("chat", new_conversation_id="fork")
    await conversations.delete("chat")
    assert await conversations.read_entry(entries[1].id) == entries[1]
    with pytest.raises(KeyError):
        await conversations.read_entry(entries[-1].id)


async def test_new_entries_must_be_the_end_of_the_history(memory: limpet.Store) -> None:
    conversations = LimpetConversationStore(memory)
    first, second = entries_after(None, "a", "b")
    for head_id, entries in ((first.id, [first, second]), (first.id, [second, first])):
        record = ConversationRecord(conversation_id="chat", head_id=head_id)
        with pytest.raises(limpet.InvalidInput, match="the end of the history"):
            await conversations.write_record(record, new_entries=entries, expected_revision=None)
    assert await conversations.read_record("chat") is None


async def test_a_large_request_waits(memory: limpet.Store) -> None:
    """What a paused run waits for may be larger than other metadata."""
    conversations = LimpetConversationStore(memory)
    call = ToolCallPart(tool_name="write", args={"text": "x" * 100_000}, tool_call_id="c")
    waiting = DeferredToolRequests(approvals=[call])
    chat = Conversation(conversation_id="chat", deferred_tool_requests=waiting)
    await conversations.save(chat)
    assert (await loaded(conversations, "chat")).deferred_tool_requests == waiting


async def test_what_other_programs_saved(memory: limpet.Store) -> None:
    """It is reported where it is asked for, and does not disturb other conversations."""
    conversations = LimpetConversationStore(memory)
    (entry,) = await conversations.save(new_chat("ours", "a"))
    memory.scope("theirs", kind=KIND).save({"messages": [{"role": "user"}]})
    odd = {"pydantic_ai": {"head_id": ["odd"]}}
    memory.scope("odd", kind=KIND).save([], labels={entry.id: "entry"}, metadata=odd)
    changed = memory.scope("changed", kind=KIND)
    await saved(conversations, "changed", "b")
    head = present(changed.info())
    changed.append("messages", ["?"], metadata=head.metadata, labels=head.labels)
    for id in ("theirs", "odd"):
        with pytest.raises(limpet.Corrupt, match=f"session=`{id}`"):
            await conversations.load(id)
    with pytest.raises(limpet.Corrupt, match="session=`changed`"):
        await conversations.load("changed")
    with pytest.raises(limpet.Corrupt):
        await conversations.load("changed", limit=1)
    listed = [each.conversation_id for each in await conversations.list_conversations()]
    assert listed == ["changed", "ours"]
    assert await conversations.read_entry(entry.id) == entry
    memory.scope("ours", "notes", KIND).save({"not": "a conversation"})
    assert await words_of(conversations, "ours") == ["a"]


async def test_deleting_leaves_other_scopes(memory: limpet.Store) -> None:
    conversations = LimpetConversationStore(memory)
    await saved(conversations, "chat", "a")
    memory.scope("chat", "planner").save({"step": 1})
    await conversations.delete("chat")
    assert [each.key.scope_id for each in memory.scopes("chat")] == ["planner"]


async def test_going_back_with_the_tools_of_limpet(memory: limpet.Store) -> None:
    """`restore` and `fork` of a scope make conversations that go on."""
    conversations = LimpetConversationStore(memory)
    chat = await saved(conversations, "chat", "a")
    first = infos(memory, "chat")[0]
    chat.messages.append(said("b"))
    await conversations.save(chat)
    scope = memory.scope("chat", kind=KIND)
    scope.restore(first)
    with pytest.raises(ConversationConflict):
        await conversations.save(chat)
    again = await loaded(conversations, "chat")
    again.messages.append(said("c"))
    await conversations.save(again)
    assert await words_of(conversations, "chat") == ["a", "c"]
    scope.fork(first, to="fork", scope_id="main")
    fork = await loaded(conversations, "fork")
    fork.messages.append(said("d"))
    await conversations.save(fork)
    assert await words_of(conversations, "fork") == ["a", "d"]


async def test_pruning_leaves_the_conversation(memory: limpet.Store) -> None:
    conversations = LimpetConversationStore(memory)
    chat = await saved(conversations, "chat", "a")
    entries = present(await conversations.load_entries("chat"))
    for word in "bcd":
        chat.messages.append(said(word))
        await conversations.save(chat)
    memory.scope("chat", kind=KIND).prune(keep_last=1)
    assert await words_of(conversations, "chat") == ["a", "b", "c", "d"]
    assert await conversations.read_entry(entries[0].id) == entries[0]
    branch = await conversations.branch("chat", at=1, expected_revision=chat.revision)
    assert texts(branch.messages) == ["a"]


async def talk(url: str, name: str) -> int:
    """Add messages to one conversation, as a worker that loads again after a conflict."""
    conflicts = 0
    async with limpet.open_async(url) as store:
        conversations = LimpetConversationStore(store)
        for number in range(TURNS):
            while True:
                chat = await conversations.load("chat") or Conversation(conversation_id="chat")
                chat.messages.append(asked(f"{name}{number}"))
                try:
                    await conversations.save(chat)
                    break
                except ConversationConflict:
                    conflicts += 1
    return conflicts


async def check_talk(url: str) -> None:
    with limpet.open(url) as store:
        words = await words_of(LimpetConversationStore(store), "chat")
        assert len(infos(store, "chat")) == len(words) == TASKS * TURNS
    for name in range(TASKS):
        assert [each for each in words if each[0] == str(name)] == [
            f"{name}{number}" for number in range(TURNS)
        ]


async def test_many_writers_lose_and_double_nothing(url: str) -> None:
    await asyncio.gather(*(talk(url, str(name)) for name in range(TASKS)))
    await check_talk(url)


async def test_forks_and_deletes_at_once(url: str) -> None:
    """A fork has its messages, or is refused; never something in between."""
    with limpet.open(url) as one, limpet.open(url) as two:
        first, second = LimpetConversationStore(one), LimpetConversationStore(two)
        for turn in range(4):
            await saved(first, "chat", "a", "b")

            async def fork(name: str) -> bool:
                try:
                    await second.fork("chat", new_conversation_id=name)
                except UserError:  # no such conversation, or a conflict
                    return False
                return True

            names = [f"{turn}.{each}" for each in range(3)]
            *made, _ = await asyncio.gather(*map(fork, names), first.delete("chat"))
            for name, is_made in zip(names, made, strict=True):
                found = await first.load(name)
                assert (found is not None) == is_made
                assert found is None or texts(found.messages) == ["a", "b"]


async def test_a_save_costs_what_is_new(tmp_path: Path) -> None:
    """Also after a fork, whose copy is stored once."""
    with limpet.open(f"sqlite:///{tmp_path}/x.db") as store:
        conversations = LimpetConversationStore(store)
        chat = new_chat("chat")
        for number in range(60):
            chat.messages += [asked(f"question {number} " * 40), said(f"answer {number} " * 40)]
            await conversations.save(chat)
        stats = store.stats()
        assert stats.stored_bytes < stats.logical_bytes / 20
