"""Agent Framework: `LimpetCheckpointStorage` against its `FileCheckpointStorage`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_framework import FileCheckpointStorage, WorkflowCheckpoint

from benchmarks.frameworks.side import Side, limpet_in
from limpet.compat.agent_framework import LimpetCheckpointStorage

PACKAGE = "agent-framework-core"
ABOUT = (
    "Agent Framework has no SQLite storage; its files are the only ones on disk, and they are not "
    "synced. A turn is what a workflow with two steps does that is resumed for each question: "
    "`get_latest`, then `save` with the question, and again with the answer."
)
NAME = "chat"


class Checkpoints(Side):
    def __init__(self, storage: Any, path: Path, *close: Callable[[], None]) -> None:
        super().__init__(f"`{type(storage).__name__}`", path, *close)
        self._storage = storage

    async def turn(self, question: str, answer: str) -> None:
        latest = await self._storage.get_latest(workflow_name=NAME)
        messages = [] if latest is None else latest.state["messages"]
        previous = None if latest is None else latest.checkpoint_id
        for role, content in (("user", question), ("assistant", answer)):
            messages = [*messages, {"role": role, "content": content}]
            previous = await self._storage.save(
                WorkflowCheckpoint(
                    NAME,
                    "hash",
                    previous_checkpoint_id=previous,
                    state={"_executor_state": {"hear": {}, "answer": {}}, "messages": messages},
                    iteration_count=len(messages),
                )
            )

    async def count(self) -> int:
        latest = await self._storage.get_latest(workflow_name=NAME)
        return len(latest.state["messages"])


def ours(folder: Path) -> Side:
    path, store = limpet_in(folder)
    return Checkpoints(LimpetCheckpointStorage(store), path, store.close)


def theirs(folder: Path) -> Side:
    path = folder / "checkpoints"
    return Checkpoints(FileCheckpointStorage(path), path)
