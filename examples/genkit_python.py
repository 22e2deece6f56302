"""A Genkit agent that books a trip, is killed in the middle of a turn, and is asked again.

python examples/genkit_python.py                    a SQLite file in this directory
python examples/genkit_python.py sqlite:///trip.db  your file, or any other store

Run it twice. The first run is killed while it books, after you have said yes. The second run finds
the conversation up to the question, answers it again, and then goes back to an earlier turn and
takes another way from there. The model is a fake: no network is needed.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from genkit import (
    ActionRunContext,
    Interrupt,
    Message,
    ModelRequest,
    ModelResponse,
    Part,
    ToolRunContext,
)
from genkit.exp import Genkit
from genkit.exp.agent import Agent, AgentChat, AgentInterrupt

import limpet
from limpet.compat.genkit.python import LimpetGenkitStore

SESSION = "may-in-lisbon"
ai = Genkit()


# The agent


async def fake_model(request: ModelRequest[Any], _: ActionRunContext) -> ModelResponse:
    """Book what the last message asks for; say what the tool answered; else make a proposal."""
    last = request.messages[-1]
    answers = [str(part.tool_response.output) for part in last.content if part.tool_response]
    if answers:
        parts = [Part.from_text(f"Done: {answers[0]}. Have a good trip!")]
    elif last.text.startswith("Book"):
        parts = [Part.from_tool_request(name="book", ref="1", input=last.text.split()[-1])]
    else:
        parts = [Part.from_text("Two days in Lisbon, by train or by plane.")]
    return ModelResponse(message=Message(role="model", content=parts))


@ai.tool()
async def book(what: str, ctx: ToolRunContext) -> str:
    """Book something, if a person agrees."""
    if not ctx.is_resumed():
        raise Interrupt({"question": f"May I book the {what}?"})
    if (ctx.resumed_metadata or {}).get("power_cut"):
        print("  the process is killed while it books", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return f"the {what} is booked"


ai.define_model("fake", fake_model)


def define(store: limpet.Store) -> Agent:
    return ai.define_agent("guide", model="fake", tools=["book"], store=LimpetGenkitStore(store))


# The conversation


async def say(chat: AgentChat, text: str) -> None:
    answer = await chat.send(text)
    print(f"  user:  {text}\n  agent: {answer.text or open_question(chat)}")


def open_question(chat: AgentChat) -> str:
    """Return what the agent asks before it goes on, if it does."""
    for request in chat.messages[-1].tool_requests if chat.messages else []:
        return str((request.metadata or {})["interrupt"]["question"])
    return ""


async def say_yes(chat: AgentChat, **metadata: bool) -> None:
    (request,) = (part.tool_request for part in chat.messages[-1].tool_requests)
    assert request is not None
    asked = AgentInterrupt[Any, Any](request.name, request.ref, request.input)
    print("  user:  yes", flush=True)
    answer = await chat.resume(restart=[asked.restart(resumed_metadata={"yes": True, **metadata})])
    print(f"  agent: {answer.text}")


async def main(url: str) -> None:
    with limpet.open(url) as store:
        agent = define(store)
        if await agent.get_snapshot(session_id=SESSION) is None:
            print("A new conversation")
            chat = agent.chat(session_id=SESSION)
            await say(chat, "A short trip in May?")
            await say(chat, "Book the flight")
            await say_yes(chat, power_cut=True)  # does not return

        chat = await agent.load_chat(session_id=SESSION)
        print(f"Found a conversation of {len(chat.messages)} messages")
        if not open_question(chat):
            print("It is finished. To see it: limpet show", SESSION, "--url", url)
            return
        print(f"  agent: {open_question(chat)}")
        await say_yes(chat)

        print("Back to the first turn, and another way from there")
        first = list(store.scope(SESSION).history())[-1]
        branch = agent.chat(snapshot_id=first.id)
        await say(branch, "Book the train")
        await say_yes(branch)
        print("Both ways are stored:")
        for turn in reversed(list(store.scope(SESSION).history())):
            print(f"  {turn.id[:8]} after {(turn.parent_id or 'nothing')[:8]}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["sqlite:///genkit_trip.db"]))
