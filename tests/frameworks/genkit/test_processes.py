"""Several processes with agents on one store."""

import asyncio
from multiprocessing.connection import Connection

import pytest

import limpet
from limpet.compat.genkit.python import LimpetGenkitStore
from tests.frameworks.genkit.agents import ended, guide
from tests.frameworks.genkit.rows import ABORTED, PENDING, abort, get
from tests.frameworks.kit import SHARED, Places
from tests.present import present
from tests.processes import SPAWN, begin


async def detach(url: str, told: Connection) -> None:
    """Tell the id of the snapshot of a long turn, and its status once the work has ended."""
    with limpet.open(url) as store:
        agent = guide(LimpetGenkitStore(store))
        chat = agent.chat(session_id="s")
        await chat.send("hello")
        task = await chat.detach("work hard")
        told.send(task.snapshot_id)
        await ended()
        found = present(await agent.get_snapshot(snapshot_id=task.snapshot_id))
        told.send(str(found.status))


@pytest.mark.slow
@pytest.mark.parametrize("engine", SHARED)
@pytest.mark.parametrize("killed", [False, True])
async def test_a_turn_of_another_process_is_aborted(
    places: Places, engine: str, killed: bool
) -> None:
    """Whether that process is told of it, or was killed during the turn."""
    url = places.url(engine)
    heard, told = SPAWN.Pipe(duplex=False)
    process = begin(detach, url, told)
    id = await asyncio.to_thread(heard.recv)
    if killed:
        process.kill()
        process.join()
    with limpet.open(url) as store:
        sessions = LimpetGenkitStore(store)
        assert (await get(sessions, id)).status == PENDING
        assert await abort(sessions, id) == PENDING
        if not killed:
            assert await asyncio.to_thread(heard.recv) == ABORTED
            process.join()
            assert process.exitcode == 0
        assert (await guide(sessions).chat(session_id="s").send("again")).text == "3 messages"
