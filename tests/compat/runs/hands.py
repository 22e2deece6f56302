"""Run stores of every sort behind one signature, so that a test is written once."""

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from limpet import Store
from limpet.compat.runs import AsyncRunStore, Checkpoint

T = TypeVar("T")
Checkpoints = list[Checkpoint]

FIXTURES = Path(__file__).with_name("fixtures")
SESSIONS = FIXTURES / "sessions"
HELLO = "run-hello-world-1772416455123"


class Runs(Protocol):
    """What `RunStore` and `GoRunStore` have in common."""

    def save(self, checkpoint: Any) -> None: ...
    def load(self, run_id: str) -> Checkpoint: ...
    def list(self) -> Checkpoints: ...
    def delete(self, run_id: str) -> None: ...
    def has_checkpoint(self, run_id: str) -> bool: ...


class AsyncHands:
    """An `AsyncRunStore`, driven in this thread."""

    def __init__(self, store: Store) -> None:
        self._runs = AsyncRunStore(store)
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)

    def close(self) -> None:
        self._runner.close()

    def save(self, checkpoint: Any) -> None:
        self._wait(self._runs.save(checkpoint))

    def load(self, run_id: str) -> Checkpoint:
        return self._wait(self._runs.load(run_id))

    def list(self) -> Checkpoints:
        return self._wait(self._runs.list())

    def delete(self, run_id: str) -> None:
        self._wait(self._runs.delete(run_id))

    def has_checkpoint(self, run_id: str) -> bool:
        return self._wait(self._runs.has_checkpoint(run_id))

    def _wait(self, awaitable: Awaitable[T]) -> T:
        async def whole() -> T:
            return await awaitable

        return self._runner.run(whole())


def large(run_id: str, created_at: str = "2026-03-01T20:54:15Z") -> Checkpoint:
    """Return a checkpoint of 256 KB that cannot be compressed to much less."""
    numbers = [str(pow(3, 997 + n, 10**1000)) for n in range(256)]
    return Checkpoint(run_id, "big", 7, numbers, "p" * 1000, 11, 12, created_at)


def bare(checkpoint: Checkpoint) -> Checkpoint:
    """Return what a listing shows of a checkpoint."""
    whole = checkpoint.to_json() | {"messages": None, "system_prompt": ""}
    return Checkpoint.from_json({name: whole[name] for name in [*whole][:8]})


def golden() -> Any:
    """Return what the real List and Load gave for the files."""
    return json.loads((FIXTURES / "expected_list.json").read_bytes())
