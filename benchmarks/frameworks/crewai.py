"""CrewAI: `LimpetFlowPersistence` against its `SQLiteFlowPersistence`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}

from crewai.flow.persistence import FlowPersistence, SQLiteFlowPersistence

from benchmarks.frameworks.side import Side, limpet_in
from limpet.compat.crewai import LimpetFlowPersistence

PACKAGE = "crewai"
ABOUT = (
    "A turn is what a `@persist` flow with two methods does: `load_state`, then `save_state` with "
    "the question, and again with the answer, each time of all messages."
)
FLOW = "chat-42"


class Flow(Side):
    def __init__(
        self, persistence: FlowPersistence, path: Path, *close: Callable[[], None]
    ) -> None:
        super().__init__(f"`{type(persistence).__name__}`", path, *close)
        self._persistence = persistence

    async def turn(self, question: str, answer: str) -> None:
        state: dict[str, Any] = self._persistence.load_state(FLOW) or {"id": FLOW, "messages": []}
        for method, role, content in (("ask", "user", question), ("reply", "assistant", answer)):
            state["messages"].append({"role": role, "content": content})
            self._persistence.save_state(FLOW, method, state)

    async def count(self) -> int:
        return len((self._persistence.load_state(FLOW) or {})["messages"])


def ours(folder: Path) -> Side:
    path, store = limpet_in(folder)
    return Flow(LimpetFlowPersistence(store), path, store.close)


def theirs(folder: Path) -> Side:
    path = folder / "crewai.db"
    return Flow(SQLiteFlowPersistence(str(path)), path)
