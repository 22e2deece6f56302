"""The status of a session, and the usage of a run that waits, from what the SDK itself writes."""

from agents import Runner, Usage

import limpet
from limpet.compat.openai import LimpetSession
from tests.frameworks.kit import standing
from tests.frameworks.openai.approval import janitor
from tests.frameworks.openai.models import agent, look_up, with_tool


async def test_status_and_usage(memory: limpet.Store) -> None:
    session = LimpetSession("done", memory)
    await Runner.run(agent(with_tool, look_up), "word", session=session)
    assert standing(memory, "done") == ("completed", False, 0)
    await session.add_items([{"role": "user", "content": "again"}])
    assert standing(memory, "done") == ("running", False, 0)

    session, janitors = LimpetSession("asks", memory), janitor(print)
    state = (await Runner.run(janitors, "Clean", session=session)).to_state()
    assert standing(memory, "asks") == ("waiting", True, 0)
    (question,) = state.get_interruptions()
    state.approve(question)
    await Runner.run(janitors, state, session=session)
    assert standing(memory, "asks") == ("completed", False, 0)

    saved = (await Runner.run(janitor(print), "Clean", session=session)).to_state()
    saved._context.usage.add(Usage(requests=1, input_tokens=10, output_tokens=4, total_tokens=14))
    await LimpetSession("saved", memory).save_run(saved)
    assert standing(memory, "saved") == ("interrupted", True, 14)
