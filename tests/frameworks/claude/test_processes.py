"""Two processes that append to one session."""

import asyncio
import multiprocessing

import pytest
from claude_agent_sdk import fold_session_summary

import limpet
from limpet.compat.claude import LimpetClaudeStore
from tests.frameworks.claude.keys import key, said, uuid
from tests.frameworks.kit import SHARED, Places

ENTRIES = 40


async def append(url: str, name: str) -> None:
    async with limpet.open_async(url) as store:
        sessions = LimpetClaudeStore(store)
        for n in range(ENTRIES):
            own, shared = said(f"{name}{n}", name, customTitle=f"{name}{n}"), said(f"both{n}", "b")
            await sessions.append(key(), [own, shared])


def work(url: str, name: str) -> None:
    asyncio.run(append(url, name))


@pytest.mark.slow
@pytest.mark.parametrize("engine", SHARED)
async def test_processes_lose_and_double_nothing(engine: str, places: Places) -> None:
    url = places.url(engine)
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=work, args=(url, name)) for name in "ab"]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
        assert each.exitcode == 0
    async with limpet.open_async(url) as store:
        sessions = LimpetClaudeStore(store)
        loaded = await sessions.load(key()) or []
        wanted = [uuid(f"{name}{n}") for name in ("a", "b", "both") for n in range(ENTRIES)]
        found = [each["uuid"] for each in loaded]
        assert sorted(found) == sorted(wanted)
        for name in "ab":  # each process in its own order
            own = [uuid(f"{name}{n}") for n in range(ENTRIES)]
            assert [each for each in found if each in own] == own
        (summary,) = await sessions.list_session_summaries(key()["project_key"])
        assert summary["data"] == fold_session_summary(None, key(), loaded)["data"]
