"""OpenAI Agents SDK: `LimpetSession` against its `SQLiteSession`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents import SQLiteSession

from benchmarks.frameworks.side import Side, limpet_in
from limpet.compat.openai import LimpetSession

PACKAGE = "openai-agents"
ABOUT = (
    "A turn is what `Runner.run` does with a session: `get_items`, then `add_items` with the "
    "question and `add_items` with the answer. `SQLiteSession` is in a file."
)


class Sessions(Side):
    def __init__(self, title: str, session: Any, path: Path, close: Callable[[], None]) -> None:
        super().__init__(title, path, close)
        self._session = session

    async def turn(self, question: str, answer: str) -> None:
        await self._session.get_items()
        await self._session.add_items([{"role": "user", "content": question}])
        part = {"type": "output_text", "text": answer, "annotations": []}
        message = {"id": "msg", "type": "message", "role": "assistant", "status": "completed"}
        await self._session.add_items([{**message, "content": [part]}])

    async def count(self) -> int:
        return len(await self._session.get_items())


def ours(folder: Path) -> Side:
    path, store = limpet_in(folder)
    return Sessions("`LimpetSession`", LimpetSession("chat", store), path, store.close)


def theirs(folder: Path) -> Side:
    path = folder / "agents.db"
    session = SQLiteSession("chat", path)
    return Sessions("`SQLiteSession`", session, path, session.close)
