"""A Google ADK agent that is killed in the middle of a turn, finishes it, and tries another way.

python examples/google_adk.py                       a SQLite file, google_adk.db, in this folder
python examples/google_adk.py sqlite:///trip.db     your file, or any other store

Run it twice. The first process is killed while the agent books a hotel. The second finds the
conversation, finishes that turn, and continues from an earlier moment in a fork. The model is a
fake: no network is needed.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import Session
from google.genai import types

import limpet
from limpet.compat.adk import LimpetSessionService

ALICE: dict[str, Any] = {"app_name": "trips", "user_id": "alice"}
LISBON: dict[str, Any] = {**ALICE, "session_id": "lisbon"}
is_first_run = False


class Model(BaseLlm):
    """Asks for a tool if a hotel is wanted; else repeats what it was told last."""

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        last = llm_request.contents[-1].parts[-1]
        if last.function_response:
            part = types.Part(text=f"Done: {last.function_response.response['result']}.")
        elif "hotel" in last.text:
            part = types.Part.from_function_call(name="book_hotel", args={"place": "Alfama"})
        else:
            part = types.Part(text=f"{last.text} Good idea!")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def book_hotel(place: str) -> str:
    """Book a hotel."""
    if is_first_run:
        print(f"  booking a hotel in {place} ... and the process is killed", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)  # it cannot clean up
    return f"a hotel in {place}"


def runner_of(service: LimpetSessionService) -> Runner:
    agent = LlmAgent(name="guide", model=Model(model="fake"), tools=[book_hotel])
    resumable = ResumabilityConfig(is_resumable=True)
    app = App(name="trips", root_agent=agent, resumability_config=resumable)
    return Runner(app=app, session_service=service)


async def ask(runner: Runner, session_id: str, text: str) -> None:
    print(f"  user: {text}")
    message = types.Content(role="user", parts=[types.Part(text=text)])
    await run(runner, user_id="alice", session_id=session_id, new_message=message)


async def run(runner: Runner, **what: Any) -> None:
    async for event in runner.run_async(**what):
        if event.is_final_response() and event.content:
            print(f"  guide: {event.content.parts[0].text}")


def told(session: Session) -> str:
    texts = [part.text for each in session.events if each.content for part in each.content.parts]
    return " / ".join(text for text in texts if text)


async def first_run(service: LimpetSessionService) -> None:
    global is_first_run
    is_first_run = True
    print("A new conversation")
    await service.create_session(**LISBON)
    runner = runner_of(service)
    await ask(runner, "lisbon", "Two days in Lisbon?")
    await ask(runner, "lisbon", "And a hotel, please.")


async def second_run(service: LimpetSessionService, session: Session) -> None:
    print(f"{len(session.events)} events were saved")
    runner = runner_of(service)
    print("The turn that was cut off is finished")
    interrupted = session.events[-1].invocation_id
    await run(runner, user_id="alice", session_id="lisbon", invocation_id=interrupted)

    print("A fork, after the first turn")
    first_turn = session.events[0].invocation_id
    await service.fork_session(**LISBON, at=first_turn, new_session_id="lisbon-by-train")
    await ask(runner, "lisbon-by-train", "By train instead?")


async def main(url: str) -> None:
    async with limpet.open_async(url) as store:
        service = LimpetSessionService(store)
        session = await service.get_session(**LISBON)
        if session is None:
            await first_run(service)
        elif len((await service.list_sessions(**ALICE)).sessions) == 1:
            await second_run(service, session)
        else:
            print(f"Both trips are planned. Try: limpet show trips/alice/lisbon --url {url}")
        for each in (await service.list_sessions(**ALICE)).sessions:
            found = await service.get_session(**ALICE, session_id=each.id)
            print(f"{each.id}: {told(found)}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["sqlite:///google_adk.db"]))
