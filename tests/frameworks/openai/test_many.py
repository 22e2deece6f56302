"""Several tasks and processes on one session, and the SDK's own wrappers around it."""

import asyncio
import inspect
import sqlite3
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from agents import Runner
from agents.extensions.memory import EncryptedSession
from agents.memory import OpenAIResponsesCompactionSession

import limpet
from limpet.compat.openai import LimpetSession
from tests.frameworks.kit import Places
from tests.frameworks.openai.models import agent, look_up, with_tool
from tests.processes import run_at_once


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


async def test_metadata_set_at_once_is_all_kept(memory: limpet.Store) -> None:
    sessions = [LimpetSession("chat", memory) for _ in range(2)]
    values = {f"name-{n}": n for n in range(10)}
    await asyncio.gather(*(sessions[n % 2].set_metadata(**{k: n}) for k, n in values.items()))
    assert await sessions[0].metadata() == values


async def write(url: str, by: int) -> None:
    async with limpet.open_async(url) as store:
        session = LimpetSession("chat", store)
        for n in range(0, 40, 2):
            await session.add_items([item(by, n), item(by, n + 1)])


@pytest.mark.slow
async def test_processes_lose_nothing(url: str) -> None:
    run_at_once(write, [(url, by) for by in range(3)])
    with limpet.open(url) as store:
        found = await LimpetSession("chat", store).get_items()
    mine_in_order = sorted(found, key=lambda each: each["content"][0])
    assert mine_in_order == [item(by, n) for by in range(3) for n in range(40)]


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


@pytest.mark.parametrize("what", ["add", "pop", "clear"])
async def test_a_cancelled_task_ends_after_its_write(places: Places, what: str) -> None:
    """So the SDK, which reads the session then, never adds the same items again."""
    url = places.url("sqlite")
    async with limpet.open_async(url) as store:
        session = LimpetSession("chat", store)
        await session.add_items([item(0, 0)])
        writes: dict[str, Any] = {
            "add": lambda: session.add_items([item(0, 1)]),
            "pop": session.pop_item,
            "clear": session.clear_session,
        }
        with closing(sqlite3.connect(url.removeprefix("sqlite://"))) as other:
            other.execute("BEGIN IMMEDIATE")  # writers wait
            task = asyncio.ensure_future(writes[what]())
            for _ in range(3):
                await asyncio.sleep(0.02)
                task.cancel()
            await asyncio.sleep(0.02)
            other.rollback()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(await session.get_items()) == (2 if what == "add" else 0)


async def test_what_was_compacted_stays_in_the_history(memory: limpet.Store) -> None:
    session = LimpetSession("chat", memory)
    await session.add_items([item(0, 0), item(0, 1)])
    summary = {"type": "compaction", "encrypted_content": "short", "id": "c"}

    async def compact(**_: Any) -> Any:
        return SimpleNamespace(output=[summary], usage=None)

    client: Any = SimpleNamespace(responses=SimpleNamespace(compact=compact))
    wrapper = OpenAIResponsesCompactionSession("chat", session, client=client)
    await wrapper.run_compaction({"force": True, "compaction_mode": "input"})
    assert await session.get_items() == [summary]
    found = [each async for each in session.scope.history()]
    states = [each.state async for each in session.scope.load_many(found)]
    can_replace = "_atomic_replace_items" in inspect.getsource(OpenAIResponsesCompactionSession)
    assert [len(each["items"]) for each in states] == ([1, 2] if can_replace else [1, 0])

    assert await session._atomic_replace_items([item(0, 2)])  # what newer SDKs do
    assert await session.get_items() == [item(0, 2)]
    infos = [each async for each in session.scope.history(limit=2)]
    assert await (await session.branch(at=infos[1])).get_items() == [summary]
