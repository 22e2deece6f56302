"""Agents that run on our service, with a fake model."""

from typing import Any

from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.runners import Runner
from google.genai import types

import limpet
from limpet.compat.adk import LimpetSessionService
from tests.frameworks.adk.services import USER, Echo, Sessions, texts


def agent(**more: Any) -> LlmAgent:
    return LlmAgent(name="echo", model=Echo(model="echo"), **more)


def runner_of(ours: Sessions, root: Any) -> Runner:
    return Runner(app_name=ours.app_name, agent=root, session_service=ours.service)


async def ask(runner: Runner, text: str, session_id: str = "s") -> list[Any]:
    message = types.Content(role="user", parts=[types.Part(text=text)])
    running = runner.run_async(user_id=USER, session_id=session_id, new_message=message)
    return [each async for each in running]


async def test_a_conversation_continues_in_another_process(url: str) -> None:
    """Another store stands for it."""
    with limpet.open(url) as first:
        ours = Sessions(LimpetSessionService(first), "app")
        await ours.new("s")
        await ask(runner_of(ours, agent(output_key="last")), "hello")
        with limpet.open(url) as second:
            ours = Sessions(LimpetSessionService(second), "app")
            (answer,) = await ask(runner_of(ours, agent(output_key="last")), "again")
            assert texts([answer]) == ["again (3)"]
            session = await ours.get("s")
            assert texts(session.events) == ["hello", "hello (1)", "again", "again (3)"]
            assert session.state == {"last": "again (3)"}


async def test_agents_of_one_run_share_temporary_state(ours: Sessions) -> None:
    first = LlmAgent(name="first", model=Echo(model="echo"), output_key="temp:draft")
    second = LlmAgent(
        name="second", model=Echo(model="echo"), instruction="use {temp:draft}", output_key="done"
    )
    await ours.new("s")
    await ask(runner_of(ours, SequentialAgent(name="both", sub_agents=[first, second])), "go")
    session = await ours.get("s")
    assert list(session.state) == ["done"]
    assert all("temp:draft" not in each.actions.state_delta for each in session.events)


async def test_a_run_is_rewound(ours: Sessions) -> None:
    runner = runner_of(ours, agent(output_key="last"))
    await ours.new("s")
    for text in ("one", "two", "three"):
        await ask(runner, text)
    session = await ours.get("s")
    second = session.events[2].invocation_id
    await runner.rewind_async(user_id=USER, session_id="s", rewind_before_invocation_id=second)
    rewound = await ours.get("s")
    assert rewound.state == {"last": "one (1)"}
    assert len(rewound.events) == 7  # nothing is removed
    (answer,) = await ask(runner, "else")
    assert texts([answer]) == ["else (3)"]  # the model sees what was before
    assert texts((await ours.fork("s", second)).events) == ["one", "one (1)", "two", "two (3)"]
