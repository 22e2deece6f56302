"""An agent with a model that does what it is told: "weather Rome", "book Rome", "note tea"."""

import asyncio
from functools import cache
from typing import Any, cast

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
from genkit.exp.agent import Agent, Artifact, SessionSnapshot, SnapshotStatusStream
from pydantic import BaseModel

from tests.frameworks.genkit.rows import Watched
from tests.present import present

QUICK_S = 0.01
TOOLS = ("weather", "book", "note", "work")


class Notes(BaseModel):
    notes: list[str]
    last: str | None  # must be given, and may be None


class Current:
    """The store that the agent uses now: to define an agent for each test would take a second."""

    def __init__(self) -> None:
        self.store: Any = None
        self.done = asyncio.Event()

    async def get_snapshot(self, **options: Any) -> SessionSnapshot | None:
        return cast(SessionSnapshot | None, await self.store.get_snapshot(**options))

    async def save_snapshot(
        self, snapshot_id: str, fn: Any, **options: Any
    ) -> SessionSnapshot | None:
        saved = await self.store.save_snapshot(snapshot_id, fn, **options)
        return cast(SessionSnapshot | None, saved)

    async def on_snapshot_status_change(
        self, snapshot_id: str, **options: Any
    ) -> SnapshotStatusStream:
        stream = await self.store.on_snapshot_status_change(snapshot_id, **options)
        return cast(SnapshotStatusStream, stream)


def guide(store: Watched, done: asyncio.Event | None = None) -> Agent[Notes]:
    """Return the agent, on a store. Its tool `work` takes until `done`, or until it is aborted."""
    agent, current = _defined()
    current.store, current.done = store, done or asyncio.Event()
    return agent


@cache
def _defined() -> tuple[Agent[Notes], Current]:
    ai, current = Genkit(), Current()
    ai.define_model("parrot", _parrot)

    @ai.tool()
    async def weather(city: str) -> str:
        return f"sunny in {city}"

    @ai.tool()
    async def book(city: str, ctx: ToolRunContext) -> str:
        if not ctx.is_resumed():
            raise Interrupt({"question": f"{city}?"})
        return f"booked {city}"

    @ai.tool()
    async def note(text: str) -> str:
        session = present(ai.current_session())
        await session.update_custom(
            lambda before: {"notes": [*(before or {"notes": []})["notes"], text], "last": None}
        )
        await session.add_artifacts([Artifact(name="notes.md", parts=[Part.from_text(text)])])
        return f"noted {text}"

    @ai.tool()
    async def work(kind: str, ctx: ToolRunContext) -> str:
        done = current.done
        while not ctx.abort_signal.is_set():
            if done.is_set():
                return f"{kind} work is done"
            await asyncio.sleep(QUICK_S)
        raise RuntimeError("aborted")

    tools = list(TOOLS)
    agent = ai.define_agent("guide", model="parrot", tools=tools, store=current, state_schema=Notes)
    return agent, current


async def ended() -> None:
    """Wait until the tasks of detached turns have ended, but for one that sends heartbeats."""
    while [each for each in asyncio.all_tasks() if "finalize_detach" in str(each.get_coro())]:
        await asyncio.sleep(QUICK_S)


async def _parrot(request: ModelRequest[Any], _: ActionRunContext) -> ModelResponse:
    last = request.messages[-1]
    answers = [each.tool_response for each in last.content if each.tool_response]
    if answers:
        parts = [Part.from_text(", ".join(str(each.output) for each in answers))]
    elif last.text.split()[0] in TOOLS:
        # "weather Rome and book Bern" are two calls
        calls = [each.split() for each in last.text.split(" and ")]
        parts = [
            Part.from_tool_request(name=name, ref=str(number), input=word)
            for number, (name, word) in enumerate(calls)
        ]
    elif last.text == "fail":
        raise RuntimeError("out of order")
    else:
        parts = [Part.from_text(f"{len(request.messages)} messages")]
    return ModelResponse(message=Message(role="model", content=parts))
