"""Agent Framework: `LimpetCheckpointStorage` against its `FileCheckpointStorage`."""

from pathlib import Path
from typing import Any

from agent_framework import FileCheckpointStorage, WorkflowCheckpoint

import limpet
from benchmarks.frameworks.side import Side
from limpet.compat.agent_framework import LimpetCheckpointStorage

PACKAGE = "agent-framework-core"
ABOUT = (
    "Agent Framework has no SQLite storage; its files are the only ones on disk, and they are not "
    "synced. A turn is what a workflow with two steps does that is resumed for each question: "
    "`get_latest`, then `save` with the question, and again with the answer."
)
NAME = "chat"


class _Checkpoints(Side):
    def __init__(self, storage: Any) -> None:
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


class _Ours(_Checkpoints):
    title = "LimpetCheckpointStorage"

    def __init__(self, folder: Path) -> None:
        self._file = folder / "limpet.db"
        self._store = limpet.open_async(f"sqlite:///{self._file}")
        super().__init__(LimpetCheckpointStorage(self._store))

    async def close(self) -> None:
        await self._store.close()

    @property
    def path(self) -> Path:
        return self._file


class _Theirs(_Checkpoints):
    title = "FileCheckpointStorage"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "checkpoints"
        super().__init__(FileCheckpointStorage(self._folder))

    async def close(self) -> None:
        pass

    @property
    def path(self) -> Path:
        return self._folder


def ours(folder: Path) -> Side:
    return _Ours(folder)


def theirs(folder: Path) -> Side:
    return _Theirs(folder)
