"""Sessions of the OpenAI Agents SDK."""

from pathlib import Path
from typing import Any

from agents import SQLiteSession

import limpet
from benchmarks.frameworks.side import Side
from limpet.compat.openai import LimpetSession

PACKAGE = "openai-agents"
ABOUT = (
    "A turn is what `Runner.run` does with a session: `get_items`, then `add_items` with the "
    "question and `add_items` with the answer. `SQLiteSession` is in a file."
)


class Sessions(Side):
    def __init__(self, title: str, session: Any, path: Path) -> None:
        self.title = title
        self._session = session
        self._path = path

    async def turn(self, question: str, answer: str) -> None:
        await self._session.get_items()
        await self._session.add_items([{"role": "user", "content": question}])
        part = {"type": "output_text", "text": answer, "annotations": []}
        message = {"id": "msg", "type": "message", "role": "assistant", "status": "completed"}
        await self._session.add_items([{**message, "content": [part]}])

    async def count(self) -> int:
        return len(await self._session.get_items())

    async def close(self) -> None:
        self._session.close()

    @property
    def path(self) -> Path:
        return self._path


class Ours(Sessions):
    def __init__(self, path: Path) -> None:
        self._store = limpet.open(f"sqlite:///{path}")
        super().__init__("`LimpetSession`", LimpetSession("chat", self._store), path)

    async def close(self) -> None:
        self._store.close()


def ours(folder: Path) -> Side:
    return Ours(folder / "limpet.db")


def theirs(folder: Path) -> Side:
    path = folder / "agents.db"
    return Sessions("`SQLiteSession`", SQLiteSession("chat", path), path)
