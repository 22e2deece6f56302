"""`LimpetSession` does what the SDK's own `SQLiteSession` does, on every engine."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from agents import Runner, Session, SQLiteSession, set_tracing_disabled
from agents.memory import SessionSettings

import limpet
from limpet.compat.openai import LimpetSession
from tests.frameworks.openai.models import agent, echo, look_up, with_tool

set_tracing_disabled(True)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


async def history(session: LimpetSession) -> list[int]:
    """Return how many items each snapshot has, the newest first."""
    infos = [info async for info in session.scope.history()]
    found = [each async for each in session.scope.load_many(infos)]
    return [len(each.state["items"]) for each in found]


async def test_it_is_a_session(any_store: limpet.Store) -> None:
    session = LimpetSession("chat", any_store)
    assert isinstance(session, Session)
    assert session.session_id == "chat"
    assert await session.get_items() == []
    assert await session.pop_item() is None
    await session.clear_session()
    await session.add_items([])
    assert list(any_store.sessions()) == []

    await session.add_items([user("a"), user("b")])
    await session.add_items([user("c")])
    assert await session.get_items() == [user("a"), user("b"), user("c")]
    assert await session.pop_item() == user("c")
    assert await session.get_items(limit=1) == [user("b")]
    await session.clear_session()
    assert await session.get_items() == []
    assert await session.pop_item() is None
    await session.add_items([user("d")])
    assert await session.get_items() == [user("d")]
    assert await history(session) == [1, 0]


@pytest.fixture(params=["ours", "theirs"])
def either(request: pytest.FixtureRequest, memory: limpet.Store) -> Iterator[Any]:
    """A class of sessions, made with an id and settings: that of Limpet, or the SDK's own."""
    made: list[Any] = []

    def make(session_id: str, settings: Any = None) -> Any:
        if request.param == "ours":
            return LimpetSession(session_id, memory, session_settings=settings)
        made.append(SQLiteSession(session_id, session_settings=settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("settings", "limit", "count"),
    [
        (None, None, 4),
        (None, 0, 0),
        (None, 3, 3),
        (None, 9, 4),
        (None, -1, 4),
        (SessionSettings(limit=2), None, 2),
        (SessionSettings(limit=2), 3, 3),
        (SessionSettings(limit=0), None, 0),
        (SessionSettings(limit=-1), None, 4),
    ],
)
async def test_the_rules_of_limits(either: Any, settings: Any, limit: Any, count: int) -> None:
    session = either("chat", settings)
    items = [user(text) for text in "abcd"]
    await session.add_items(items)
    assert await session.get_items(limit) == items[4 - count :]
    assert await session.get_items(limit=limit) == items[4 - count :]


ODD = [
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}]},
    {"type": "function_call_output", "call_id": "c", "output": "\0 \U0001f41a é \n"},
    {"id": 2**70, "empty": {}, "none": None, "list": [], "number": 1.0, "nested": [[[1]]]},
    {"role": "user", "content": "same"},
    {"role": "user", "content": "same"},
]


async def test_items_come_back_exactly(either: Any) -> None:
    session = either("a/../b %2F")
    await session.add_items(ODD)
    found = await session.get_items()
    assert found == ODD
    assert repr(found) == repr(ODD)
    found[0]["role"] = "changed"
    assert await session.get_items() == ODD
    assert await session.pop_item() == ODD[-1]


async def test_an_item_that_is_not_json_is_refused(either: Any) -> None:
    session = either("chat")
    with pytest.raises((limpet.InvalidInput, TypeError)):
        await session.add_items([user("a"), {"role": object()}])
    assert await session.get_items() == []


async def test_session_ids_do_not_meet(memory: limpet.Store) -> None:
    names = ["a", "a/b", "a%2Fb", "a/b/", "A", "a~main", " "]
    for name in names:
        await LimpetSession(name, memory).add_items([user(name)])
    for name in names:
        assert await LimpetSession(name, memory).get_items() == [user(name)]
    for bad in ("", "x" * 600, "\0", 5):
        with pytest.raises(limpet.InvalidInput):
            LimpetSession(bad, memory)  # type: ignore[arg-type,unused-ignore]
    with pytest.raises(limpet.InvalidInput, match="expected a store"):
        LimpetSession("a", "sqlite:///a.db")  # type: ignore[arg-type,unused-ignore]


async def test_another_programs_state_is_not_overwritten(memory: limpet.Store) -> None:
    memory.scope("chat", kind="conversation").save({"items": "mine"})
    session = LimpetSession("chat", memory)
    added = session.add_items([user("a")])
    for call in (session.branch(turn=1), session.get_items(), session.pop_item(), added):
        with pytest.raises(limpet.Corrupt):
            await call


async def test_a_run_stores_what_it_stores_in_a_sqlite_session(either: Any) -> None:
    session = either("chat")
    helper = agent(with_tool, look_up)
    await Runner.run(helper, "shell", session=session)
    streamed = Runner.run_streamed(helper, "rock", session=session)
    async for _ in streamed.stream_events():
        pass
    assert streamed.final_output == "found: ROCK"
    theirs = SQLiteSession("chat")
    for word in ("shell", "rock"):
        await Runner.run(agent(with_tool, look_up), word, session=theirs)
    assert await session.get_items() == await theirs.get_items()
    theirs.close()


def test_without_async(memory: limpet.Store) -> None:
    session = LimpetSession("chat", memory)
    assert Runner.run_sync(agent(echo), "hello", session=session).final_output == "1: hello"
    assert Runner.run_sync(agent(echo), "again", session=session).final_output == "2: again"
    assert len(asyncio.run(session.get_items())) == 4
