"""AG2: the history of a chat in a store. A turn that was killed goes on after its last event.

python ag2_history.py --crash      # is killed after the tool, before the answer
python ag2_history.py              # answers, without calling the tool again
"""

import asyncio
import sys
from signal import SIGKILL, raise_signal
from uuid import UUID

from ag2 import Agent, MemoryStream, events
from ag2.history import close_unanswered_tool_calls
from ag2.testing import TestConfig  # a fake model, which says what it is given

import limpet


class History:  # AG2's `Storage`: a stream is a session, and its events are appended to it
    def __init__(self, store):
        self.chat = lambda stream_id: store.scope(str(stream_id))

    async def save_event(self, event, context):
        saved = [type(event).__name__, event.to_dict()]
        await self.chat(context.stream.id).append("events", [saved])

    async def get_history(self, stream_id):
        last = await self.chat(stream_id).load()
        saved = last.state["events"] if last else []
        return [getattr(events, name).from_dict(fields) for name, fields in saved]

    async def set_history(self, stream_id, history):
        saved = [[type(event).__name__, event.to_dict()] for event in history]
        await self.chat(stream_id).save({"events": saved})

    async def drop_history(self, stream_id):
        await self.chat(stream_id).delete()


def weather() -> str:
    print("looking at the sky")
    return "sunny"


async def main():
    async with limpet.open_async() as store:  # $LIMPET_URL, or else limpet.db in this folder
        guide = Agent("guide", tools=[weather])
        stream = MemoryStream(History(store), id=UUID(int=42))
        if "--crash" in sys.argv:
            stream.where(events.ToolResultsEvent).subscribe(lambda: raise_signal(SIGKILL))
        if not await stream.history.get_events():
            look = events.ToolCallEvent("weather")
            await guide.ask("What to wear?", stream=stream, config=TestConfig(look, "A hat."))
        await close_unanswered_tool_calls(stream.history, result="interrupted, it may have run")
        saved = await stream.history.get_events()
        print((await guide.resume(*saved, stream=stream, config=TestConfig("A hat."))).body)


asyncio.run(main())
