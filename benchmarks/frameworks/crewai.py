"""CrewAI: `LimpetFlowPersistence` against its `SQLiteFlowPersistence`."""

import os
from pathlib import Path
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}

from crewai.flow.persistence import FlowPersistence, SQLiteFlowPersistence

import limpet
from benchmarks.frameworks.side import Side
from limpet.compat.crewai import LimpetFlowPersistence

PACKAGE = "crewai"
ABOUT = (
    "A turn is what a `@persist` flow with two methods does: `load_state`, then `save_state` with "
    "the question, and again with the answer, each time of all messages."
)
FLOW = "chat-42"


class _Flow(Side):
    def __init__(self, persistence: FlowPersistence) -> None:
        self._persistence = persistence

    async def turn(self, question: str, answer: str) -> None:
        state: dict[str, Any] = self._persistence.load_state(FLOW) or {"id": FLOW, "messages": []}
        for method, role, content in (("ask", "user", question), ("reply", "assistant", answer)):
            state["messages"].append({"role": role, "content": content})
            self._persistence.save_state(FLOW, method, state)

    async def count(self) -> int:
        return len((self._persistence.load_state(FLOW) or {})["messages"])


class _Ours(_Flow):
    title = "LimpetFlowPersistence"

    def __init__(self, folder: Path) -> None:
        self._file = folder / "limpet.db"
        self._store = limpet.open(f"sqlite:///{self._file}")
        super().__init__(LimpetFlowPersistence(self._store))

    async def close(self) -> None:
        self._store.close()

    @property
    def path(self) -> Path:
        return self._file


class _Theirs(_Flow):
    title = "SQLiteFlowPersistence"

    def __init__(self, folder: Path) -> None:
        self._file = folder / "crewai.db"
        super().__init__(SQLiteFlowPersistence(str(self._file)))

    async def close(self) -> None:
        pass  # it opens a connection for each call

    @property
    def path(self) -> Path:
        return self._file


def ours(folder: Path) -> Side:
    return _Ours(folder)


def theirs(folder: Path) -> Side:
    return _Theirs(folder)
