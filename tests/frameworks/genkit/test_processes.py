"""Several processes with agents on one store."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import limpet
from limpet.compat.genkit.python import LimpetGenkitStore
from tests.environments import ROOT
from tests.frameworks.genkit.agents import guide
from tests.frameworks.genkit.rows import ABORTED, PENDING, abort, get
from tests.frameworks.genkit.worker import COUNT
from tests.frameworks.kit import SHARED, Places

pytestmark = pytest.mark.slow


@contextmanager
def worker(verb: str, url: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.frameworks.genkit.worker", verb, url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("engine", SHARED)
async def test_an_abort_reaches_another_process(places: Places, engine: str) -> None:
    url = places.url(engine)
    with limpet.open(url) as store, worker("detach", url) as process:
        assert process.stdout is not None
        id = process.stdout.readline().strip()
        sessions = LimpetGenkitStore(store)
        assert await abort(sessions, id) == PENDING
        assert process.stdout.readline().strip() == ABORTED
        assert process.wait() == 0
        assert (await guide(sessions).chat(session_id="s").send("again")).text == "3 messages"


@pytest.mark.parametrize("engine", SHARED)
async def test_a_process_is_killed_during_a_turn(places: Places, engine: str) -> None:
    url = places.url(engine)
    with worker("detach", url) as process:
        assert process.stdout is not None
        id = process.stdout.readline().strip()
    with limpet.open(url) as store:
        sessions = LimpetGenkitStore(store)
        agent = guide(sessions)
        assert (await get(sessions, id)).status == PENDING
        assert await agent.abort(id) == PENDING
        assert (await agent.chat(session_id="s").send("again")).text == "3 messages"


@pytest.mark.parametrize("engine", SHARED)
async def test_no_change_of_any_process_is_lost(places: Places, engine: str) -> None:
    url = places.url(engine)
    with worker("count", url) as one, worker("count", url) as two, worker("count", url) as three:
        assert [each.wait() for each in (one, two, three)] == [0, 0, 0]
    with limpet.open(url) as store:
        found = await get(LimpetGenkitStore(store), "n")
    assert found.state is not None
    assert found.state.custom == {"n": 3 * COUNT}
