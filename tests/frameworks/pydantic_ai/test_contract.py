"""What `ConversationStore` promises, kept by both stores; test_stateful.py compares the rest."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic_ai import Conversation, DeferredToolRequests
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
    entries_after,
    loaded,
    saved,
    words_of,
)
from tests.present import present

START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


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
    record = present(await conversations.read_record("chat"))
    record.branches.append("changed")
    again = present(await conversations.read_record("chat"))
    assert again.branches == []
    assert await words_of(conversations, "chat") == ["a"]
