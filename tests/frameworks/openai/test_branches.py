"""Branches of a session, its metadata, and lists of sessions."""

from typing import Any

import pytest
from agents import Runner
from agents.extensions.memory import AdvancedSQLiteSession

import limpet
from limpet.compat.openai import LimpetSession, list_sessions
from tests.frameworks.openai.models import agent, look_up, with_tool


async def talked(session: Any, *questions: str) -> Any:
    for question in questions:
        await Runner.run(agent(with_tool, look_up), question, session=session)
    return session


def contents(items: list[Any]) -> list[Any]:
    return [each["content"] for each in items if each.get("role") == "user"]


async def test_a_branch_before_a_question(store: limpet.Store) -> None:
    session = await talked(LimpetSession("chat", store), "shell", "rock", "tide")
    bold = await session.branch("bold", turn=2)
    assert (bold.session_id, bold.scope.key) == ("chat", ("chat", "bold", "conversation"))
    assert contents(await bold.get_items()) == ["shell"]
    await talked(bold, "sand")
    assert contents(await bold.get_items()) == ["shell", "sand"]
    assert contents(await session.get_items()) == ["shell", "rock", "tide"]

    again = LimpetSession("chat", store, branch="bold")
    assert await again.get_items() == await bold.get_items()
    assert await session.branches() == await bold.branches() == ["bold", "main"]
    infos = [info async for info in bold.scope.history()]
    head = await session.scope.info()
    assert infos[-1].forked_from == (session.scope.key, head.id)

    with pytest.raises(limpet.AlreadyExists):
        await session.branch("bold")
    with pytest.raises(limpet.AlreadyExists):
        await session.branch("main")
    await session.clear_session()
    assert contents(await bold.get_items()) == ["shell", "sand"]
    assert store.delete_session("chat")
    assert await bold.get_items() == []


async def test_where_a_branch_can_begin(memory: limpet.Store) -> None:
    session = LimpetSession("chat", memory)
    with pytest.raises(limpet.NotFound):
        await session.branch()
    items = [{"role": "user", "content": text} for text in "abcd"]
    await session.add_items(items[:2])
    before = await session.scope.info()
    await session.add_items(items[2:])
    assert before is not None
    assert await (await session.branch()).get_items() == items
    for at in (0, 1, 4, -1, -4):
        assert await (await session.branch(at=at)).get_items() == items[:at]
    for then in (before, before.id):
        assert await (await session.branch(at=then)).get_items() == items[:2]
    for turn in (1, 4):
        assert await (await session.branch(turn=turn)).get_items() == items[: turn - 1]
    wrong: list[Any] = [{"at": 5}, {"at": -5}, {"turn": 0}, {"turn": 5}, {"turn": 1, "at": 1}]
    for each in wrong:
        with pytest.raises(limpet.InvalidInput):
            await session.branch("wrong", **each)
    with pytest.raises(limpet.NotFound):
        await session.branch("wrong", at="no-such-snapshot")
    assert "wrong" not in await session.branches()
    assert len(set(await session.branches())) == 11


async def test_what_was_popped_can_be_branched_from(memory: limpet.Store) -> None:
    session = await talked(LimpetSession("chat", memory), "shell")
    whole = await session.get_items()
    before = await session.scope.info()
    await session.pop_item()
    assert await (await session.branch(at=before)).get_items() == whole


async def test_a_branch_keeps_the_settings(memory: limpet.Store) -> None:
    session = LimpetSession("chat", memory, session_settings={"limit": 1})
    await session.add_items([{"role": "user", "content": text} for text in "ab"])
    assert len(await (await session.branch()).get_items()) == 1


@pytest.mark.parametrize("turn", [1, 2, 3])
async def test_a_turn_is_that_of_an_advanced_session(memory: limpet.Store, turn: int) -> None:
    theirs = AdvancedSQLiteSession(session_id="chat", create_tables=True)
    for session in (theirs, LimpetSession("chat", memory)):
        await talked(session, "shell", "rock", "tide")
    await theirs.create_branch_from_turn(turn)
    ours = await LimpetSession("chat", memory).branch(turn=turn)
    assert await ours.get_items() == await theirs.get_items()
    theirs.close()


async def test_metadata(store: limpet.Store) -> None:
    session = LimpetSession("alice/1", store)
    assert await session.metadata() == {}
    assert await session.set_metadata(title="Shells", user="alice") == {
        "title": "Shells",
        "user": "alice",
    }
    assert await session.set_metadata(user=None, tags=["a"]) == {"title": "Shells", "tags": ["a"]}
    assert await session.get_items() == []
    await session.add_items([{"role": "user", "content": "a"}])
    other = await session.branch("other")
    await other.set_metadata(title="Rocks")
    await session.clear_session()
    assert await session.metadata() == {"title": "Rocks", "tags": ["a"]}
    with pytest.raises(limpet.InvalidInput):
        await session.set_metadata(bad=object())


async def test_a_list_of_sessions(store: limpet.Store) -> None:
    for name in ("alice/1", "alice/2", "bob/1"):
        session = LimpetSession(name, store)
        await session.add_items([{"role": "user", "content": name}])
        await session.branch("other")
    await LimpetSession("alice/2", store).set_metadata(title="Rocks")
    await LimpetSession("alice/3", store).set_metadata(title="nothing yet")
    store.scope("alice/4").save({"of": "another program"})
    found = [each async for each in list_sessions(store, prefix="alice/")]
    assert [(each.session_id, each.metadata) for each in found] == [
        ("alice/1", {}),
        ("alice/2", {"title": "Rocks"}),
        ("alice/3", {"title": "nothing yet"}),
    ]
    assert [each.updated_at is None for each in found] == [False, False, True]
    assert len([each async for each in list_sessions(store.aio)]) == 4


async def test_metadata_that_another_program_wrote(memory: limpet.Store) -> None:
    memory.scope("chat", kind="conversation").set_note("metadata", [1])
    session = LimpetSession("chat", memory)
    assert await session.metadata() == {}
    assert await session.set_metadata(a=1) == {"a": 1}
