"""What `ConversationStore` promises, kept by Pydantic AI's own store and by ours."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic_ai import Conversation, DeferredToolRequests, UserError
from pydantic_ai.conversation import ConversationTypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import (
    BinaryImage,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RunUsage

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

START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


async def test_nothing_is_there_at_first(conversations: ConversationStore) -> None:
    assert await conversations.load("chat") is None
    assert await conversations.load_entries("chat") is None
    assert await conversations.read_record("chat") is None
    assert await conversations.list_conversations() == []
    assert await conversations.read_history(None) == []
    with pytest.raises(LookupError):
        await conversations.read_entry("e")
    with pytest.raises(LookupError):
        await conversations.read_history("e")


async def test_an_empty_conversation(conversations: ConversationStore) -> None:
    assert await conversations.save(Conversation(conversation_id="chat")) == []
    chat = await loaded(conversations, "chat")
    assert chat.messages == []
    chat.messages.append(asked("hello"))
    (entry,) = await conversations.save(chat)
    assert entry.parent_id is None
    assert await words_of(conversations, "chat") == ["hello"]


async def test_saves_append(conversations: ConversationStore) -> None:
    chat = new_chat("chat", "a", "b")
    first = await conversations.save(chat)
    assert await conversations.save(chat) == []
    chat.messages.append(said("c"))
    (third,) = await conversations.save(chat)
    assert [e.parent_id for e in [*first, third]] == [None, first[0].id, first[1].id]
    entries = await conversations.load_entries("chat")
    assert entries == [*first, third]
    assert (await loaded(conversations, "chat")).messages == chat.messages
    for entry in entries:
        assert await conversations.read_entry(entry.id) == entry
    for end in (1, 2, 3):
        assert await conversations.read_history(entries[end - 1].id) == entries[:end]


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4])
async def test_only_the_last_messages(conversations: ConversationStore, limit: int) -> None:
    await saved(conversations, "chat", "a", "b", "c")
    entries = await conversations.load_entries("chat")
    assert entries is not None
    wanted = entries[-limit:] if limit else []
    assert await conversations.load_entries("chat", limit=limit) == wanted
    assert await conversations.read_history(entries[-1].id, limit=limit) == wanted
    window = await loaded(conversations, "chat", limit=limit)
    window.messages.append(said("d"))
    await conversations.save(window)
    assert await words_of(conversations, "chat") == ["a", "b", "c", "d"]
    with pytest.raises(UserError):
        await conversations.load("chat", limit=-1)


async def test_everything_comes_back(conversations: ConversationStore) -> None:
    """Also bytes, links, wide integers, usage, and what a paused run waits for."""
    call = ToolCallPart(tool_name="pay", args={"sum": 2**70}, tool_call_id="c1")
    picture = BinaryImage(data=b"\xff\x00\x80", media_type="image/png")
    messages: list[ModelMessage] = [
        ModelRequest(
            parts=[UserPromptPart(content=["see", picture, ImageUrl(url="https://x.org/y.png")])],
            instructions="Be kind.",
            metadata={"k": [1, None]},
        ),
        ModelResponse(parts=[ThinkingPart(content="hm"), call], provider_details={"x": 1.0}),
        ModelRequest(parts=[ToolReturnPart(tool_name="pay", content={"ok": True, "n": 2**70})]),
    ]
    chat = Conversation(
        conversation_id="chat/with % and ü",
        messages=list(messages),
        usage=RunUsage(requests=2, input_tokens=7, details={"audio": 3}, tool_calls=1),
        deferred_tool_requests=DeferredToolRequests(
            approvals=[call], metadata={"c1": {"why": "much money"}}
        ),
    )
    await conversations.save(chat)
    found = await loaded(conversations, "chat/with % and ü")
    assert found == chat
    assert ConversationTypeAdapter.dump_json(found) == ConversationTypeAdapter.dump_json(chat)


async def test_only_usage_changes(conversations: ConversationStore) -> None:
    chat = await saved(conversations, "chat", "a")
    chat.usage = RunUsage(requests=5)
    assert await conversations.save(chat) == []
    found = await loaded(conversations, "chat")
    assert (found.usage.requests, texts(found.messages)) == (5, ["a"])
    found.messages.append(said("b"))
    await conversations.save(found)
    assert await words_of(conversations, "chat") == ["a", "b"]


async def test_a_stale_copy_is_refused(conversations: ConversationStore) -> None:
    await saved(conversations, "chat", "a")
    first, second = [await loaded(conversations, "chat") for _ in range(2)]
    first.messages.append(said("first"))
    await conversations.save(first)
    second.messages.append(said("second"))
    with pytest.raises(ConversationConflict):
        await conversations.save(second)
    assert await words_of(conversations, "chat") == ["a", "first"]
    with pytest.raises(ConversationConflict):
        await saved(conversations, "chat", "new")
    with pytest.raises(ConversationConflict):
        await conversations.branch("chat", at=0, expected_revision=second.revision)


async def test_a_deleted_conversation_is_gone(conversations: ConversationStore) -> None:
    chat = await saved(conversations, "chat", "a")
    entries = await conversations.load_entries("chat")
    assert entries is not None
    await conversations.delete("chat")
    await conversations.delete("chat")
    assert await conversations.load("chat") is None
    assert await conversations.list_conversations() == []
    with pytest.raises(LookupError):
        await conversations.read_entry(entries[0].id)
    with pytest.raises(ConversationConflict):  # a copy from before cannot be saved
        await conversations.save(chat)
    await saved(conversations, "chat", "again")
    with pytest.raises(ConversationConflict):
        await conversations.save(chat)
    assert await words_of(conversations, "chat") == ["again"]


async def test_a_rewritten_history_is_a_branch(conversations: ConversationStore) -> None:
    chat = await saved(conversations, "chat", "a", "b", "c")
    tip = (await conversations.load_entries("chat") or [])[-1].id
    chat.messages[1:] = [asked("summary"), asked("d")]
    assert len(await conversations.save(chat)) == 2
    assert await words_of(conversations, "chat") == ["a", "summary", "d"]
    record = await conversations.read_record("chat")
    assert record is not None
    assert record.branches == [tip]
    assert texts([e.message for e in await conversations.read_history(tip)]) == ["a", "b", "c"]
    chat.messages[:] = [asked("other")]  # nothing in common
    await conversations.save(chat)
    assert await words_of(conversations, "chat") == ["other"]


async def test_branch_and_back(conversations: ConversationStore) -> None:
    chat = await saved(conversations, "chat", "a", "b", "c")
    entries = await conversations.load_entries("chat")
    assert entries is not None
    branch = await conversations.branch("chat", at=1, expected_revision=chat.revision)
    assert texts(branch.messages) == ["a"]
    assert await words_of(conversations, "chat") == ["a"]
    branch.messages.append(said("x"))
    await conversations.save(branch)
    assert await words_of(conversations, "chat") == ["a", "x"]
    back = await conversations.branch(
        "chat", from_entry=entries[1].id, expected_revision=branch.revision
    )
    assert texts(back.messages) == ["a", "b"]
    record = await conversations.read_record("chat")
    assert record is not None
    assert record.branches[0] == entries[2].id
    whole = await conversations.branch(
        "chat", from_entry=entries[2].id, expected_revision=back.revision
    )
    assert texts(whole.messages) == ["a", "b", "c"]
    whole.messages.append(said("d"))
    await conversations.save(whole)
    assert await words_of(conversations, "chat") == ["a", "b", "c", "d"]
    none = await conversations.branch("chat", at=0, expected_revision=whole.revision)
    assert none.messages == []
    none.messages.append(asked("again"))
    await conversations.save(none)
    assert await words_of(conversations, "chat") == ["again"]
    with pytest.raises(UserError):
        await conversations.branch("chat", from_entry="?", expected_revision=none.revision)


async def test_forks_live_on_their_own(conversations: ConversationStore) -> None:
    usage = RunUsage(requests=3)
    chat = new_chat("chat", "a", "b", "c")
    chat.usage = usage
    await conversations.save(chat, scope="ann")
    entries = await conversations.load_entries("chat")
    assert entries is not None
    whole = await conversations.fork("chat", new_conversation_id="whole")
    part = await conversations.fork("chat", at=2, new_conversation_id="part", scope="bob")
    early = await conversations.fork("chat", from_entry=entries[0].id)
    none = await conversations.fork("chat", at=0, new_conversation_id="none")
    assert [texts(f.messages) for f in (whole, part, early, none)] == [
        ["a", "b", "c"],
        ["a", "b"],
        ["a"],
        [],
    ]
    assert await conversations.load_entries("part") == entries[:2]
    record = await conversations.read_record("part")
    assert record is not None
    assert (record.forked_from, record.forked_at) == ("chat", entries[1].id)
    assert (record.scope, record.usage.requests, whole.usage.requests) == ("bob", 0, 3)
    part.messages.append(said("x"))
    await conversations.save(part)
    chat.messages.append(said("d"))
    await conversations.save(chat)
    with pytest.raises(ConversationConflict):
        await conversations.fork("chat", new_conversation_id="part")
    await conversations.delete("chat")
    assert await words_of(conversations, "part") == ["a", "b", "x"]
    assert await words_of(conversations, "whole") == ["a", "b", "c"]
    for entry in entries:
        assert await conversations.read_entry(entry.id) == entry
    grandchild = await conversations.fork("part", at=1, new_conversation_id="chat")
    assert texts(grandchild.messages) == ["a"]
    await conversations.delete("whole")
    with pytest.raises(LookupError):
        await conversations.read_entry(entries[2].id)
    assert await conversations.read_entry(entries[1].id) == entries[1]


async def test_scopes(conversations: ConversationStore) -> None:
    await saved(conversations, "a", "1", scope="ann")
    await saved(conversations, "b", "2", scope="bob")
    await saved(conversations, "c", "3", scope="ann")
    await saved(conversations, "d", "4")
    chat = await loaded(conversations, "a", scope="ann")
    chat.messages.append(said("more"))
    await conversations.save(chat)  # keeps its scope

    async def ids(**options: Any) -> list[str]:
        listed = await conversations.list_conversations(**options)
        return [each.conversation_id for each in listed]

    assert await ids() == ["a", "d", "c", "b"]
    assert await ids(limit=2) == ["a", "d"]
    assert await ids(scope="ann") == ["a", "c"]
    assert await ids(scope="ann", limit=1) == ["a"]
    assert await ids(scope="nobody") == []
    assert await conversations.load("a", scope="bob") is None
    await conversations.delete("a", scope="bob")
    assert await conversations.load("a") is not None
    chat.messages.append(said("even more"))
    with pytest.raises(ConversationConflict):
        await conversations.save(chat, scope="bob")


async def test_records_are_listed_by_their_own_time(conversations: ConversationStore) -> None:
    for id, minutes in (("b", 2), ("c", 3), ("a", 1)):
        record = ConversationRecord(
            conversation_id=id, head_id=None, updated_at=START + timedelta(minutes=minutes)
        )
        await conversations.write_record(record, expected_revision=None)
        assert await conversations.read_record(id) == record
    listed = await conversations.read_records(limit=2)
    assert [each.conversation_id for each in listed] == ["c", "b"]


async def test_writing_a_record(conversations: ConversationStore) -> None:
    entries = entries_after(None, "a", "b")
    record = ConversationRecord(conversation_id="chat", head_id=entries[1].id, revision="r1")
    with pytest.raises(ConversationConflict):
        await conversations.write_record(record, new_entries=entries, expected_revision="r0")
    with pytest.raises(LookupError):
        await conversations.read_entry(entries[0].id)  # nothing of it stays
    await conversations.write_record(record, new_entries=entries, expected_revision=None)
    with pytest.raises(ConversationConflict):  # repeated after a lost answer
        await conversations.write_record(record, new_entries=entries, expected_revision=None)
    assert await conversations.read_history(entries[1].id) == entries
    unknown = replace(record, head_id="unknown", revision="r2")
    with pytest.raises(ConversationConflict):
        await conversations.write_record(unknown, expected_revision="r1")
    with pytest.raises(ConversationConflict):
        await conversations.write_record(
            replace(unknown, conversation_id="other"), expected_revision=None
        )
    assert await conversations.read_record("chat") == record
    with pytest.raises(ConversationConflict):
        await conversations.delete_record("chat", expected_revision="r2")
    with pytest.raises(ConversationConflict):
        await conversations.delete_record("other", expected_revision="r1")
    await conversations.delete_record("chat", expected_revision="r1")
    with pytest.raises(ConversationConflict):
        await conversations.delete_record("chat", expected_revision="r1")


async def test_what_is_given_and_returned_is_a_copy(conversations: ConversationStore) -> None:
    chat = await saved(conversations, "chat", "a")
    given: Any = chat.messages[0]
    given.parts[0].content = "changed"
    found: Any = (await loaded(conversations, "chat")).messages[0]
    found.parts[0].content = "changed"
    record = await conversations.read_record("chat")
    assert record is not None
    record.branches.append("changed")
    again = await conversations.read_record("chat")
    assert again is not None
    assert again.branches == []
    assert await words_of(conversations, "chat") == ["a"]
