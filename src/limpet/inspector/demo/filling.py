"""Fills a store with the sessions of the demo."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from limpet.api.store import Store
from limpet.core.times import from_us
from limpet.inspector.demo import sessions
from limpet.inspector.demo.clock import StoryClock
from limpet.opening import open as open_store


def fill(url: str, *, now: datetime | None = None) -> list[str]:
    """Write the sessions of the demo into an empty store, as if over the last days.

    With the same `now`, all ids, texts and times are the same. Returns a line for each session
    that was left out because its package is not installed.
    """
    left_out: list[str] = []
    with open_store(url) as store:
        tools = store.driver.tools
        clock = StoryClock(now or from_us(tools.draw().now))
        store.driver.opened.tools = tools._replace(draw=clock.draw)
        sessions.write_port(store, clock)
        sessions.write_bug(store, clock)
        sessions.write_support(store, clock)
        sessions.write_drafts(store, clock)
        sessions.write_runs(store, clock, url)
        sessions.write_digests(store, clock)
        _run(_write_async(store, clock))
        try:
            sessions.write_invoice(store, clock)
        except ImportError:
            hint = "pip install 'limpet[langgraph]'"
            left_out.append(f"the session of LangGraph is left out: it needs {hint}")
    return left_out


async def _write_async(store: Store, clock: StoryClock) -> None:
    await sessions.write_trip(store, clock)
    await sessions.write_newsroom(store, clock)
    await sessions.write_kelp(store, clock)
    await sessions.write_report(store, clock)


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine, also for a caller whose thread has a loop already."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()
