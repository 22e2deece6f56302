"""An agent of the OpenAI Agents SDK that is killed in the middle of a turn, and goes on.

python examples/openai_agents.py                     a file in this folder: openai_agents.db
python examples/openai_agents.py sqlite:///mine.db   your file, or any other store

Run it twice. The first process asks before it books, saves the run, and is killed while it waits.
The second finds the question, is told yes, and finishes the turn. Then it goes back to before that
turn and asks for something else, on a branch. The model is a fake: no network is needed.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

import limpet
from limpet.compat.openai import LimpetSession, list_sessions


class FakeModel(Model):
    """Answers by a fixed rule: it books what is asked for, and reports it."""

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
        last = input[-1]
        if last.get("type") == "function_call_output":
            output: Any = message(f"Done: {last['output']}.")
        elif last["content"].startswith("Book "):
            output = call("book", what=last["content"].removeprefix("Book "))
        else:
            output = message("Lisbon has hills, trams and the sea.")
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError  # this example does not stream


def message(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id="msg", type="message", role="assistant", status="completed", content=[part]
    )


def call(name: str, **arguments: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call", call_id=f"call-{name}", name=name, arguments=json.dumps(arguments)
    )


@function_tool(needs_approval=True)
def book(what: str) -> str:
    """Book something, after a person has approved it."""
    print(f"  (booking {what})")
    return f"{what} is booked"


AGENT = Agent(name="travel", model=FakeModel(), tools=[book])


async def first(session: LimpetSession) -> None:
    await session.set_metadata(title="A trip to Lisbon")
    answer = await Runner.run(AGENT, "What is Lisbon like?", session=session)
    print(f"turn 1: {answer.final_output}")
    asked = await Runner.run(AGENT, "Book a tram tour", session=session)
    await session.save_run(asked.to_state())
    print(f"turn 2: waits for approval of `{asked.interruptions[0].name}`; the process is killed")
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


async def second(store: limpet.AsyncStore, session: LimpetSession) -> None:
    async for each in list_sessions(store):
        print(f"found: {each.session_id}, {each.metadata['title']!r}")
    async with session.resume_run(AGENT) as state:
        for question in state.get_interruptions():
            print(f"approved: {question.name} {question.arguments}")
            state.approve(question)
        answer = await Runner.run(AGENT, state, session=session)
    print(f"turn 2: {answer.final_output}")

    other = await session.branch("by-boat", turn=2)
    asked = await Runner.run(AGENT, "Book a boat trip", session=other)
    state = asked.to_state()
    state.approve(asked.interruptions[0])
    answer = await Runner.run(AGENT, state, session=other)
    print(f"turn 2 on the branch: {answer.final_output}")
    for name in await session.branches():
        items = await LimpetSession(session.session_id, store, branch=name).get_items()
        print(f"  {name}: {len(items)} items")


async def main(url: str) -> None:
    set_tracing_disabled(True)
    async with limpet.open_async(url) as store:
        session = LimpetSession("tour-of-lisbon", store)
        if not await session.get_items():
            await first(session)
        elif await session.load_run(AGENT) is not None:
            await second(store, session)
        else:
            print(f"finished: look at it with limpet show tour-of-lisbon --url {url}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///openai_agents.db"))
