"""A run that waits for a person: saved, found by another process, and resumed once."""

import asyncio

import pytest
from agents import Runner

import limpet
from limpet.compat.openai import LimpetSession
from limpet.views import overview
from tests.frameworks.openai.approval import janitor
from tests.present import present

ASKED = "Clean up"


async def paused(session: LimpetSession, done: list[str]) -> None:
    """Run the agent until it asks."""
    result = await Runner.run(janitor(done.append), ASKED, session=session)
    assert result.interruptions
    await session.save_run(result.to_state())


def needs(store: limpet.Store) -> list[str]:
    """Return what the lists and the inspector say about the sessions of a store."""
    heads = [overview.ScopeHead(each.key, each.head) for each in store.scopes()]
    return overview.reasons(store, heads)


def status(store: limpet.Store) -> str:
    head = store.scope("chat", "run", "run").info()
    return "" if head is None else head.status


async def test_a_run_is_resumed_after_it_was_approved(store: limpet.Store) -> None:
    session, done = LimpetSession("chat", store), []  # type: tuple[LimpetSession, list[str]]
    agent = janitor(done.append)
    assert await session.load_run(agent) is None
    await paused(session, done)
    assert needs(store) == ["interrupted"]

    shown = present(await session.load_run(agent))
    assert [each.name for each in shown.get_interruptions()] == ["delete"]
    async with session.resume_run(agent) as state:
        assert needs(store) == []
        assert status(store) == "running"
        for question in state.get_interruptions():
            state.approve(question)
        result = await Runner.run(agent, state, session=session)
    assert result.final_output == "deleted: old.txt"
    assert done == ["old.txt"]
    assert (needs(store), status(store)) == ([], "completed")
    kinds = [each.get("type", each.get("role")) for each in await session.get_items()]
    assert kinds == ["user", "function_call", "function_call_output", "message"]

    assert await session.load_run(agent) is None
    with pytest.raises(limpet.NotFound, match="no run waits"):
        async with session.resume_run(agent):
            raise AssertionError


async def test_the_answer_can_be_saved_for_a_worker(memory: limpet.Store) -> None:
    session, done = LimpetSession("chat", memory), []  # type: tuple[LimpetSession, list[str]]
    await paused(session, done)
    agent = janitor(done.append)
    state = present(await session.load_run(agent))
    (question,) = state.get_interruptions()
    state.approve(question)
    await session.save_run(state)
    async with session.resume_run(agent) as approved:
        await Runner.run(agent, approved, session=session)
    assert done == ["old.txt"]


async def test_only_one_of_two_resumes_it(store: limpet.Store) -> None:
    done: list[str] = []
    sessions = [LimpetSession("chat", store) for _ in range(4)]
    await paused(sessions[0], done)

    async def resume(session: LimpetSession) -> str:
        agent = janitor(done.append)
        try:
            async with session.resume_run(agent) as state:
                for question in state.get_interruptions():
                    state.approve(question)
                await asyncio.sleep(0.05)
                await Runner.run(agent, state, session=session)
        except (limpet.Conflict, limpet.NotFound) as error:
            return type(error).__name__
        return "resumed"

    found = await asyncio.gather(*map(resume, sessions))
    assert found.count("resumed") == 1
    assert done == ["old.txt"]


async def test_one_that_asks_again(memory: limpet.Store) -> None:
    session, done = LimpetSession("chat", memory), []  # type: tuple[LimpetSession, list[str]]
    agent = janitor(done.append, files=("a", "b"))
    result = await Runner.run(agent, ASKED, session=session)
    await session.save_run(result.to_state())
    for _ in range(2):
        async with session.resume_run(agent) as state:
            (question,) = state.get_interruptions()
            state.approve(question)
            result = await Runner.run(agent, state, session=session)
            if result.interruptions:
                await session.save_run(result.to_state())
    assert done == ["a", "b"]
    assert result.final_output == "deleted: a, b"
    statuses = [each.status for each in memory.scope("chat", "run", "run").history()]
    assert statuses == ["completed", "completed"]


@pytest.mark.parametrize("dies", [False, True])
async def test_one_that_fails_can_be_resumed_again(memory: limpet.Store, dies: bool) -> None:
    session, done = LimpetSession("chat", memory), []  # type: tuple[LimpetSession, list[str]]
    await paused(session, done)
    agent = janitor(done.append)
    if dies:  # this is what its process has left
        scope = memory.scope("chat", "run", "run")
        scope.update(next(scope.ids()), lambda run: run.with_(status="running"))
        assert needs(memory) == [overview.NO_WORKER]
    else:
        with pytest.raises(OSError, match="no network"):
            async with session.resume_run(agent):
                raise OSError("no network")
        assert needs(memory) == ["failed: OSError: no network"]
    async with session.resume_run(agent) as state:
        (question,) = state.get_interruptions()
        state.reject(question)
        result = await Runner.run(agent, state, session=session)
    assert done == []
    assert result.final_output.startswith("deleted: ")
    assert needs(memory) == []


async def test_each_branch_has_its_own_run_and_the_context_is_kept(memory: limpet.Store) -> None:
    session, done = LimpetSession("chat", memory), []  # type: tuple[LimpetSession, list[str]]
    await session.add_items([{"role": "user", "content": "hi"}])
    other = await session.branch("main/x")
    agent = janitor(done.append)
    result = await Runner.run(agent, ASKED, session=other, context={"user": "alice"})
    await other.save_run(result.to_state())
    assert await session.load_run(agent) is None
    found = present(await other.load_run(agent))
    assert found.to_json()["context"]["context"] == {"user": "alice"}
    replaced = present(await other.load_run(agent, context_override={"user": "bob"}))
    assert replaced.to_json()["context"]["context"] == {"user": "bob"}
