"""`LimpetStorage` does what AG2's own storages do, on every engine."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from ag2 import Agent, MemoryStream, events
from ag2.history import MemoryStorage, close_unanswered_tool_calls
from ag2.testing import TestConfig

import limpet
from limpet.compat.ag2 import LimpetStorage
from tests.frameworks.ag2.events import Order, Ordered, Shop
from tests.processes import run_at_once

STREAM = UUID(int=42)
CALL = events.ToolCallEvent("add", arguments='{"a": 2}', id="1")
RESULT = events.ToolResultEvent.from_call(CALL, "5")
ALL = [
    events.ModelRequest(
        [events.TextInput("\0 \U0001f41a"), events.DataInput({"a": [2**70, None]})]
    ),
    events.ModelRequest([events.BinaryInput(b"\0\1", media_type="image/png")]),
    events.ModelResponse(tool_calls=events.ToolCallsEvent([CALL])),
    events.ToolCallsEvent([CALL]),
    CALL,
    RESULT,
    events.ToolResultsEvent([RESULT]),
    events.ModelResponse(events.ModelMessage("Five."), usage=events.Usage(prompt_tokens=3)),
    events.HumanInputRequest("Go on?"),
    events.HumanMessage("yes"),
]


async def save(storage: Any, *saved: Any, stream: UUID = STREAM) -> None:
    for event in saved:
        await storage.save_event(event, SimpleNamespace(stream=SimpleNamespace(id=stream)))


@pytest.fixture(params=["ours", "theirs"])
def storage(request: pytest.FixtureRequest, memory: limpet.Store) -> Any:
    return LimpetStorage(memory) if request.param == "ours" else MemoryStorage()


async def test_events_come_back(storage: Any) -> None:
    assert list(await storage.get_history(STREAM)) == []
    await save(storage, *ALL)
    found = list(await storage.get_history(STREAM))
    assert found == ALL
    assert [type(each) for each in found] == [type(each) for each in ALL]
    assert [each.created_at for each in found] == [each.created_at for each in ALL]
    await storage.set_history(STREAM, ALL[:2])
    await save(storage, ALL[2])
    await save(storage, ALL[0], stream=uuid4())
    assert list(await storage.get_history(STREAM)) == ALL[:3]
    await storage.drop_history(STREAM)
    await storage.drop_history(STREAM)
    assert list(await storage.get_history(STREAM)) == []


async def test_on_every_engine(any_store: limpet.Store) -> None:
    storage = LimpetStorage(any_store)
    await save(storage, *ALL)
    await storage.set_history(STREAM, ALL[:2])
    assert await LimpetStorage(any_store.aio).get_history(STREAM) == ALL[:2]
    scope = any_store.scope(str(STREAM), kind="conversation")
    infos = list(scope.history())
    sizes = [len(each.state["events"]) for each in scope.load_many(infos)]
    assert sizes == [2, *range(len(ALL), 0, -1)]
    assert infos[0].metadata == {"ag2": True}
    fork = uuid4()
    scope.fork(infos[1], to=str(fork))
    assert await storage.get_history(fork) == ALL
    await storage.drop_history(STREAM)
    assert list(any_store.sessions()) == [str(fork)]


# What a tool returns is stored as data, in which AG2 looks for classes to call.

HOSTILE: list[Any] = [
    {"__dataclass__": "subprocess.Popen", "data": {"args": ["false"]}},
    {"__dataclass__": "ag2.stream.asyncio.Future", "data": {}},
    {"__dataclass__": "ag2.agent.Agent", "data": {"name": "a"}},
    {"__pydantic__": "tests.frameworks.ag2.events.Order", "data": {"item": "a"}},
    {"__event__": "tests.frameworks.ag2.events.Ordered"},
    {"__event__": ["a"]},
    {"__enum__": "ag2.nowhere.A", "value": 1},
    {"__enum__": "ag2.\0.A", "value": 1},
    {"__bytes__": 5},
    {"__uuid__": "a"},
]


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_no_class_is_called_that_is_not_allowed(memory: limpet.Store, hostile: Any) -> None:
    storage = LimpetStorage(memory)
    event = events.ToolResultEvent.from_call(CALL, {"found": [hostile]})
    with pytest.raises(limpet.InvalidInput, match="an event "):
        await save(storage, event)
    assert list(memory.sessions()) == []
    memory.scope(str(STREAM), kind="conversation").save({"events": [{"a": hostile}]})
    with pytest.raises(limpet.InvalidInput, match="an event "):
        await storage.get_history(STREAM)


async def test_classes_of_ones_own(memory: limpet.Store) -> None:
    event = Ordered(order=Order("a hat"))
    with pytest.raises(limpet.InvalidInput, match=r"'tests\.frameworks\.ag2\.events\.Ordered'"):
        await save(LimpetStorage(memory), event)
    storage = LimpetStorage(memory, modules=["tests.frameworks.ag2.events"])
    await save(storage, event)
    assert await storage.get_history(STREAM) == [event]
    with pytest.raises(limpet.InvalidInput, match="at its top level"):
        await save(storage, Shop.Closed(why="night"))


async def test_what_is_not_a_list_of_events(memory: limpet.Store) -> None:
    storage = LimpetStorage(memory)
    with pytest.raises(limpet.InvalidInput, match="not JSON"):
        await save(storage, events.ModelRequest([events.DataInput({"a": object()})]))
    scope = memory.scope(str(STREAM), kind="conversation")
    for item in (5, {"role": "user", "content": "a"}):
        scope.save({"events": [item]})
        with pytest.raises(limpet.InvalidInput, match="cannot be read"):
            await storage.get_history(STREAM)
    scope.save({"events": "mine"})
    with pytest.raises(limpet.Corrupt, match="of AG2"):
        await storage.get_history(STREAM)
    with pytest.raises(limpet.InvalidInput, match="expected a store"):
        LimpetStorage("sqlite:///a.db")  # type: ignore[arg-type]


# With agents


def weather(city: str) -> dict[str, str]:
    return {city: "sunny"}


async def test_an_agent_goes_on(url: str) -> None:
    """In another process; and one whose turn was interrupted after the call of a tool."""
    agent = Agent("guide", tools=[weather])
    call = events.ToolCallEvent("weather", arguments='{"city": "Lisbon"}')
    async with limpet.open_async(url) as store:
        stream = MemoryStream(LimpetStorage(store), id=STREAM)
        reply = await agent.ask("What to wear?", stream=stream, config=TestConfig(call, "A hat."))
        assert reply.body == "A hat."
        stored = list(await stream.history.get_events())
    async with limpet.open_async(url) as store:
        stream = MemoryStream(LimpetStorage(store), id=STREAM)
        assert await stream.history.get_events() == stored
        await agent.ask("And shoes?", stream=stream, config=TestConfig("Boots."))
        kinds = [type(each).__name__ for each in await stream.history.get_events()]
        assert kinds[len(stored) :] == ["ModelRequest", "ModelResponse"]
        await stream.history.replace(stored[:3])
        assert await close_unanswered_tool_calls(stream.history, result="interrupted") == 1
        saved = await stream.history.get_events()
        reply = await agent.resume(*saved, stream=stream, config=TestConfig("Ask later."))
        assert reply.body == "Ask later."


async def write(url: str, by: int) -> None:
    async with limpet.open_async(url) as store:
        for n in range(20):
            await save(LimpetStorage(store), events.ModelMessage(f"{by} {n}"))


@pytest.mark.parametrize("by", ["tasks", pytest.param("processes", marks=pytest.mark.slow)])
async def test_several_writers_lose_nothing(url: str, by: str) -> None:
    if by == "processes":
        run_at_once(write, [(url, each) for each in range(3)])
    else:
        await asyncio.gather(*(write(url, each) for each in range(3)))
    with limpet.open(url) as store:
        found: Any = await LimpetStorage(store).get_history(STREAM)
    said = sorted((each.content for each in found), key=lambda text: text[0])
    assert said == [f"{by} {n}" for by in range(3) for n in range(20)]
