"""An AG2 agent that is killed while a tool books, and branches.

python examples/ag2_agent.py                      a SQLite file in this folder
python examples/ag2_agent.py sqlite:///trip.db    your file, or any other store

Run it twice. The first run is killed in the middle of a booking. The second run finds the call,
says that it was interrupted, and books again; then it goes back and books something else. The model
is a fake: no network is needed.
"""

import asyncio
import os
import signal
import sys
from uuid import UUID

from ag2 import Agent, MemoryStream
from ag2.events import ToolCallEvent
from ag2.history import close_unanswered_tool_calls
from ag2.testing import TestConfig

import limpet
from limpet.compat.ag2 import LimpetStorage

TRIP, FORK = UUID(int=1), UUID(int=2)
KILLED_AT: set[str] = set()  # what this process does not survive booking


def book(way: str) -> str:
    if way in KILLED_AT:
        print(f"  booking a {way} ... and the process is killed", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    print(f"  booking a {way}")
    return f"the {way} is booked"


def model(way: str, *, calls: bool = True) -> TestConfig:
    """Return a fake model that books, and then says so."""
    call = ToolCallEvent("book", arguments=f'{{"way": "{way}"}}')
    return TestConfig(*([call] if calls else []), f"Done: {way}.")


async def main(url: str) -> None:
    async with limpet.open_async(url) as store:
        storage = LimpetStorage(store)
        guide = Agent("guide", tools=[book])
        stream = MemoryStream(storage, id=TRIP)
        found = await stream.history.get_events()
        if not found:
            print("A new trip", flush=True)
            KILLED_AT.add("flight")
            await guide.ask("How to Lisbon?", stream=stream, config=model("flight"))
        elif await close_unanswered_tool_calls(stream.history, result="interrupted"):
            print("Found a call without a result")
            saved = await stream.history.get_events()
            reply = await guide.resume(*saved, stream=stream, config=model("flight"))
            print(f"agent: {reply.body}")

            print("Back to the question, and another answer in another conversation")
            trip = store.scope(str(TRIP), kind="conversation")
            *_, question = [info async for info in trip.history()]
            await trip.fork(question, to=str(FORK))
            fork = MemoryStream(storage, id=FORK)
            asked = await fork.history.get_events()
            reply = await guide.resume(*asked, stream=fork, config=model("train"))
            print(f"agent: {reply.body}")
        else:
            print(f"The trip is booked. To see it: limpet show {TRIP} --url {url}")
            print(f"Delete it to begin again: limpet rm {TRIP} {FORK} --url {url}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["sqlite:///ag2_agent.db"]))
