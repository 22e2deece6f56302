"""Several tasks and processes on one session, and the SDK's own wrappers around it."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from agents import Runner
from agents.extensions.memory import EncryptedSession

import limpet
from limpet.compat.openai import LimpetSession
from tests.environments import ROOT
from tests.frameworks.kit import SHARED, Places
from tests.frameworks.openai.models import agent, look_up, with_tool

WRITER = """
import asyncio, sys
import limpet
from limpet.compat.openai import LimpetSession

async def main(url, name):
    async with limpet.open_async(url) as store:
        session = LimpetSession("chat", store)
        for number in range(20):
            await session.add_items([{"by": name, "n": number, "of": k} for k in range(2)])

asyncio.run(main(*sys.argv[1:]))
"""


def item(by: int, n: int) -> Any:
    return {"role": "user", "content": f"{by} {n}"}


async def test_tasks_of_two_stores_lose_nothing(places: Places) -> None:
    url = places.url("sqlite")
    with limpet.open(url) as a, limpet.open(url) as b:
        sessions = [LimpetSession("chat", store) for store in (a, b, a, b)]

        async def write(by: int, session: LimpetSession) -> None:
            for n in range(10):
                await session.add_items([item(by, n)])

        await asyncio.gather(*(write(*each) for each in enumerate(sessions)))
        found = await sessions[0].get_items()
        for by in range(4):
            mine = [each for each in found if each["content"].startswith(f"{by} ")]
            assert mine == [item(by, n) for n in range(10)]
        assert len(found) == 40

        async def drain(session: LimpetSession) -> list[Any]:
            popped = []
            while (last := await session.pop_item()) is not None:
                popped.append(last)
            return popped

        popped = [each for some in await asyncio.gather(*map(drain, sessions)) for each in some]
        assert sorted(each["content"] for each in popped) == sorted(
            each["content"] for each in found
        )


async def test_metadata_set_at_once_is_all_kept(places: Places) -> None:
    url = places.url("sqlite")
    with limpet.open(url) as a, limpet.open(url) as b:
        values = {f"name-{n}": n for n in range(10)}
        await asyncio.gather(
            *(
                LimpetSession("chat", (a, b)[n % 2]).set_metadata(**{name: n})
                for name, n in values.items()
            )
        )
        assert await LimpetSession("chat", a).metadata() == values


@pytest.mark.slow
@pytest.mark.parametrize("engine", SHARED)
async def test_processes_lose_nothing(engine: str, places: Places) -> None:
    url = places.url(engine)
    with limpet.open(url):
        pass
    command = [sys.executable, "-c", WRITER, url]
    running = [subprocess.Popen([*command, name], cwd=ROOT) for name in "abc"]
    assert [each.wait(timeout=120) for each in running] == [0, 0, 0]
    with limpet.open(url) as store:
        found = await LimpetSession("chat", store).get_items()
    for name in "abc":
        mine = [(each["n"], each["of"]) for each in found if each["by"] == name]
        assert mine == [(n, k) for n in range(20) for k in range(2)]


async def test_an_encrypted_session(memory: limpet.Store) -> None:
    inner = LimpetSession("chat", memory)
    session = EncryptedSession("chat", inner, "a long secret for this test")
    helper = agent(with_tool, look_up)
    for word in ("shell", "rock"):
        await Runner.run(helper, word, session=session)
    assert len(await session.get_items()) == 8
    assert b"SHELL" not in repr(await inner.get_items()).encode()
    assert len(helper.model.inputs[-1]) == 7
    again = EncryptedSession("chat", LimpetSession("chat", memory), "a long secret for this test")
    items = await session.get_items()
    assert await again.get_items() == items
    assert await again.pop_item() == items[-1]
    assert await session.get_items(limit=2) == items[-3:-1]
