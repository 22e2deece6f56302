"""The status of a session, from what Genkit itself writes."""

import pytest
from genkit.exp.agent import AgentError

import limpet
from limpet.compat.genkit.python import LimpetGenkitStore
from tests.frameworks.genkit.agents import guide
from tests.frameworks.kit import standing


async def test_status(memory: limpet.Store) -> None:
    agent = guide(LimpetGenkitStore(memory))
    chat = agent.chat(session_id="s")
    asked = await chat.send("book Rome")
    assert standing(memory, "s")[:2] == ("waiting", True)
    await chat.resume(respond=[asked.interrupts[0].respond("no")])
    assert standing(memory, "s")[:2] == ("completed", False)
    with pytest.raises(AgentError):
        await agent.chat(session_id="failing").send("fail")
    assert standing(memory, "failing")[:2] == ("failed", True)
