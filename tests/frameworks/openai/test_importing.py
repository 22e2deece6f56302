"""What the SDK's own sessions hold is what a `LimpetSession` returns after an import."""

from pathlib import Path

from agents import Runner

import limpet
from limpet.compat.openai import LimpetSession
from limpet.compat.openai_sqlite import import_sqlite
from tests.frameworks.openai import origin
from tests.frameworks.openai.models import agent, echo


async def test_sessions_go_on(memory: limpet.Store, tmp_path: Path) -> None:
    there = await origin.plain(tmp_path / "a.db")
    assert import_sqlite(memory, tmp_path / "a.db").skipped == ()
    for name, items in there.items():
        assert await LimpetSession(name, memory).get_items() == items
    session = LimpetSession("alice/1", memory)
    result = await Runner.run(agent(echo), "more", session=session)
    assert result.final_output == "3: more"


async def test_branches(memory: limpet.Store, tmp_path: Path) -> None:
    there = await origin.advanced(tmp_path / "a.db")
    assert import_sqlite(memory, tmp_path / "a.db").skipped == ()
    assert await LimpetSession("chat", memory).branches() == sorted(there)
    for branch, items in there.items():
        assert await LimpetSession("chat", memory, branch=branch).get_items() == items
