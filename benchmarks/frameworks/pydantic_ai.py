"""Pydantic AI: `LimpetConversationStore` against one row per conversation with all its messages."""

import asyncio
import sqlite3
from pathlib import Path

from pydantic_ai import Conversation
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)

from benchmarks.frameworks.side import Side, limpet_in
from limpet.compat.pydantic_ai import LimpetConversationStore

PACKAGE = "pydantic-ai-slim"
ABOUT = (
    "A turn is `load`, two new messages, and `save`. Pydantic AI has no durable store of its own "
    "(the one of pydantic-ai-harness needs an older Pydantic AI), so the other side is what people "
    "write by hand: a SQLite table in WAL mode with one row per conversation, its whole history "
    "as JSON of `ModelMessagesTypeAdapter`, and a revision that is compared. The connection stays "
    "open, and the SQL runs in a thread."
)
CHAT = "chat"


def turn_of(question: str, answer: str) -> list[ModelMessage]:
    return [
        ModelRequest(parts=[UserPromptPart(content=question)]),
        ModelResponse(parts=[TextPart(content=answer)], model_name="a-model"),
    ]


class Ours(Side):
    def __init__(self, folder: Path) -> None:
        path, store = limpet_in(folder)
        super().__init__("`LimpetConversationStore`", path, store.close)
        self._conversations = LimpetConversationStore(store)

    async def turn(self, question: str, answer: str) -> None:
        chat = await self._conversations.load(CHAT) or Conversation(conversation_id=CHAT)
        chat.messages += turn_of(question, answer)
        await self._conversations.save(chat)

    async def count(self) -> int:
        chat = await self._conversations.load(CHAT)
        return 0 if chat is None else len(chat.messages)


class Theirs(Side):
    def __init__(self, folder: Path) -> None:
        path = folder / "one_row.db"
        self._db = sqlite3.connect(path, check_same_thread=False)
        super().__init__("one row of SQLite", path, self._db.close)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("CREATE TABLE chats (id TEXT PRIMARY KEY, revision INT, messages BLOB)")

    async def turn(self, question: str, answer: str) -> None:
        revision, messages = await asyncio.to_thread(self._load)
        messages += turn_of(question, answer)
        await asyncio.to_thread(self._save, revision, messages)

    def _load(self) -> tuple[int, list[ModelMessage]]:
        row = self._db.execute("SELECT revision, messages FROM chats WHERE id = ?", (CHAT,))
        revision, messages = row.fetchone() or (0, b"[]")
        return revision, ModelMessagesTypeAdapter.validate_json(messages)

    def _save(self, revision: int, messages: list[ModelMessage]) -> None:
        encoded = ModelMessagesTypeAdapter.dump_json(messages)
        with self._db:
            if revision == 0:
                self._db.execute("INSERT INTO chats VALUES (?, 1, ?)", (CHAT, encoded))
                return
            done = self._db.execute(
                "UPDATE chats SET revision = revision + 1, messages = ? "
                "WHERE id = ? AND revision = ?",
                (encoded, CHAT, revision),
            )
            if done.rowcount != 1:
                raise RuntimeError("another writer was faster")

    async def count(self) -> int:
        return len((await asyncio.to_thread(self._load))[1])


ours, theirs = Ours, Theirs
