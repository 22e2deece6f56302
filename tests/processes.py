"""Processes that do the same at once, for what an adapter promises to several writers."""

import asyncio
import multiprocessing
from collections.abc import Callable, Coroutine, Iterable
from multiprocessing.process import BaseProcess
from typing import Any

SPAWN = multiprocessing.get_context("spawn")
Work = Callable[..., Coroutine[Any, Any, object]]


def begin(work: Work, *arguments: Any, gate: Any = None) -> BaseProcess:
    """Start a process that runs an async function of a module; it ends with this process."""
    process = SPAWN.Process(target=_work, args=(gate, work, arguments), daemon=True)
    process.start()
    return process


def run_at_once(work: Work, calls: Iterable[tuple[Any, ...]]) -> None:
    """Run a process for each tuple of arguments. They begin when all are ready; none may fail."""
    calls = [*calls]
    gate = SPAWN.Barrier(len(calls))
    processes = [begin(work, *each, gate=gate) for each in calls]
    for each in processes:
        each.join()
    assert [each.exitcode for each in processes] == [0] * len(calls)


def _work(gate: Any, work: Work, arguments: tuple[Any, ...]) -> None:
    if gate is not None:
        gate.wait(300)
    asyncio.run(work(*arguments))
