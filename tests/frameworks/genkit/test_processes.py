"""An agent of another process."""

import asyncio
from multiprocessing.connection import Connection

import pytest

import limpet
from limpet.compat.genkit.python import LimpetGenkitStore
from tests.frameworks.genkit.agents import ended, guide
from tests.frameworks.genkit.rows import PENDING, abort, get
from tests.processes import SPAWN, begin


async def detach(url: str, told: Connection) -> None:
    """Tell the id of the snapshot of a long turn."""
    with limpet.open(url) as store:
        chat = guide(LimpetGenkitStore(store)).chat(session_id="s")
        await chat.send("hello")
        task = await chat.detach("work hard")
        told.send(task.snapshot_id)
        await ended()


@pytest.mark.slow
async def test_a_turn_of_a_killed_process_is_aborted(url: str) -> None:
    heard, told = SPAWN.Pipe(duplex=False)
    process = begin(detach, url, told)
    id = await asyncio.to_thread(heard.recv)
    process.kill()
    process.join()
    with limpet.open(url) as store:
        sessions = LimpetGenkitStore(store)
        assert (await get(sessions, id)).status == PENDING
        assert await abort(sessions, id) == PENDING
        assert (await guide(sessions).chat(session_id="s").send("again")).text == "3 messages"
