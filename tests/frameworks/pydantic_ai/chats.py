"""Messages and conversations for the tests of Pydantic AI."""

from collections.abc import Sequence
from typing import Any

from pydantic_ai import Conversation
from pydantic_ai.conversation_store import ConversationEntry, ConversationStore
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)

from tests.present import present


def asked(text: str) -> ModelMessage:
    return ModelRequest(parts=[UserPromptPart(content=text)])


def said(text: str) -> ModelMessage:
    return ModelResponse(parts=[TextPart(content=text)], model_name="a-model")


def texts(messages: Sequence[Any]) -> list[Any]:
    """Return what the first part of each message says."""
    return [each.parts[0].content for each in messages]


def new_chat(id: str, *words: str) -> Conversation:
    return Conversation(conversation_id=id, messages=[asked(word) for word in words])


async def saved(store: ConversationStore, id: str, *words: str, **options: Any) -> Conversation:
    """Store a new conversation with a message for each word."""
    chat = new_chat(id, *words)
    await store.save(chat, **options)
    return chat


async def loaded(store: ConversationStore, id: str, **options: Any) -> Conversation:
    return present(await store.load(id, **options))


async def words_of(store: ConversationStore, id: str, **options: Any) -> list[Any]:
    return texts((await loaded(store, id, **options)).messages)


def entries_after(parent_id: str | None, *words: str) -> list[ConversationEntry]:
    entries: list[ConversationEntry] = []
    for word in words:
        entries.append(ConversationEntry(parent_id=parent_id, message=asked(word)))
        parent_id = entries[-1].id
    return entries
