"""What watchers cost while nothing happens: the CPU of their process, all its threads."""

import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any

import limpet

START_S_MAX = 300


def idle(url: str, options: dict[str, Any], watchers: int, seconds: float) -> float:
    """Return how much of a core so many watchers of different scopes take."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=measure, args=(far, url, options, watchers, seconds))
    process.start()
    if not near.poll(START_S_MAX):
        raise TimeoutError("the watchers do not answer")
    cost: float = near.recv()
    process.join(START_S_MAX)
    return cost


def measure(
    far: Connection, url: str, options: dict[str, Any], watchers: int, seconds: float
) -> None:
    """Watch, and say what it costs."""
    with limpet.open(url, **options) as store:
        for number in range(watchers):
            store.scope(f"idle-{number}").save({"n": number})
        far.send(asyncio.run(_watching(store, watchers, seconds)))


async def _watching(store: limpet.Store, watchers: int, seconds: float) -> float:
    begun = 0

    async def watch(number: int) -> None:
        nonlocal begun
        async for _ in store.aio.scope(f"idle-{number}").watch():
            begun += 1

    tasks = [asyncio.create_task(watch(number)) for number in range(watchers)]
    while begun < watchers:
        await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)
    before = time.process_time()
    await asyncio.sleep(seconds)
    cost = (time.process_time() - before) / seconds
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return cost
