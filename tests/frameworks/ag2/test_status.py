"""The status of a stream, and its usage, from what AG2 itself writes."""

from typing import Any
from uuid import UUID

from ag2 import Agent, Context, MemoryStream, events
from ag2.testing import TestConfig

import limpet
from limpet.compat.ag2 import LimpetStorage
from tests.frameworks.kit import standing

USED = events.Usage(prompt_tokens=10, completion_tokens=4, total_tokens=14)


async def test_status_and_usage(memory: limpet.Store) -> None:
    stream = MemoryStream(LimpetStorage(memory), id=UUID(int=42))
    seen = []

    async def ask(context: Context) -> str:
        seen.append(standing(memory)[:2])
        return str(await context.input("Go on?"))

    async def answer() -> events.HumanMessage:
        seen.append(standing(memory)[:2])
        return events.HumanMessage("yes")

    done = events.ModelResponse(events.ModelMessage("done"), usage=USED)
    config: Any = TestConfig(events.ToolCallEvent("ask", arguments="{}"), done)
    agent = Agent("a", config=config, tools=[ask], hitl_hook=answer)
    await agent.ask("hello", stream=stream)
    assert seen == [("running", False), ("waiting", True)]
    assert standing(memory) == ("completed", False, 14)
