"""From the return of `save` in one process to the loop of a watcher in another."""

import multiprocessing
import random
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import limpet

SCOPE = ("watched", "main")
START_S_MAX = 60
# Saves come at any moment of the interval of the polling.
PAUSE_S = (0.01, 0.12)


def latencies(
    url: str, options: dict[str, Any], count: int, *, pause_s: float = 0.0
) -> list[float]:
    """Return how many seconds each save took to be heard of, in order of size."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    heard: dict[str, float] = {}
    begun = threading.Event()
    with limpet.open(url, **options) as store:
        scope = store.scope(*SCOPE)
        scope.save({"n": -1})

        def listen() -> None:
            for info in scope.watch(timeout_s=START_S_MAX):
                heard[info.revision] = time.monotonic()
                begun.set()

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        begun.wait(START_S_MAX)
        writer = context.Process(target=write, args=(far, url, options, count, pause_s))
        writer.start()
        said = dict(_received(near, count))
        deadline = time.monotonic() + START_S_MAX
        while list(said)[-1] not in heard and time.monotonic() < deadline:
            time.sleep(0.01)
        writer.join(START_S_MAX)
    thread.join(START_S_MAX)
    # One that was overtaken by the next is heard of with that one; the last never is.
    return sorted(max(0.0, heard[each] - at) for each, at in said.items() if each in heard)


def _received(near: Connection, count: int) -> Iterator[tuple[str, float]]:
    for _ in range(count):
        if not near.poll(START_S_MAX):
            raise TimeoutError("the writer does not answer")
        yield near.recv()


def write(far: Connection, url: str, options: dict[str, Any], count: int, pause_s: float) -> None:
    """Save again and again, and say when each save was done."""
    chance = random.Random(count)
    with limpet.open(url, **options) as store:
        scope = store.scope(*SCOPE)
        for number in range(count):
            time.sleep(pause_s + chance.uniform(*PAUSE_S))
            info = scope.save({"n": number})
            far.send((info.revision, time.monotonic()))
