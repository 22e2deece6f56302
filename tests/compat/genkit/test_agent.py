"""The cases of Genkit's agents and of its shared specification that are about the store."""

import asyncio
from typing import Any

import pytest

from limpet import InvalidInput, NotFound
from tests.compat.genkit.agent import Agent, Turn
from tests.compat.genkit.kit import Desk, always, eventually


class Model:
    """Answers at once, fails if told so, and works for ever if told that."""

    def __init__(self) -> None:
        self.at_work = asyncio.Event()
        self.may_end = asyncio.Event()

    async def __call__(self, state: dict[str, Any], text: str) -> str:
        if text == "fail":
            raise RuntimeError("the model is away")
        if text == "work":
            self.at_work.set()
            await self.may_end.wait()
        return text.upper()


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def agent(desk: Desk, model: Model) -> Agent:
    return Agent(desk.sessions, model)


async def messages(agent: Agent, turn: Turn) -> Any:
    found = await agent.get(snapshot_id=turn.snapshot_id or "")
    assert found is not None
    return found.state["messages"]


async def ended(agent: Agent) -> None:
    await asyncio.gather(*agent.runs)


async def test_snapshots_are_chained_and_resumed_by_session_id(agent: Agent) -> None:
    first = await agent.send("one", session_id="not a uuid")
    second = await agent.send("two", session_id="not a uuid")
    assert await messages(agent, second) == ["one", "ONE", "two", "TWO"]
    found = await agent.get(session_id="not a uuid")
    assert found is not None
    assert (found.snapshot_id, found.parent_id) == (second.snapshot_id, first.snapshot_id)


async def test_snapshots_branch_when_resumed_by_an_older_id(agent: Agent) -> None:
    first = await agent.send("one")
    others = [await agent.send(text, snapshot_id=first.snapshot_id) for text in ("two", "three")]
    assert [(await messages(agent, each))[2] for each in others] == ["two", "three"]
    assert {each.session_id for each in others} == {first.session_id}


async def test_both_ids_match_or_are_refused(agent: Agent) -> None:
    first = await agent.send("one")
    await agent.send("two", session_id=first.session_id, snapshot_id=first.snapshot_id)
    with pytest.raises(InvalidInput):
        await agent.send("three", session_id="another", snapshot_id=first.snapshot_id)
    with pytest.raises(NotFound):
        await agent.send("three", snapshot_id="unknown")


async def test_a_failed_turn_is_kept_and_the_last_good_one_resumed(
    agent: Agent, desk: Desk
) -> None:
    first = await agent.send("one")
    failed = await agent.send("fail", session_id=first.session_id)
    assert (failed.snapshot_id, failed.finish_reason) == (first.snapshot_id, "failed")
    found = await agent.get(session_id=first.session_id)
    assert found is not None
    assert (found.status, found.error) == ("failed", {"message": "the model is away"})
    with pytest.raises(InvalidInput):
        await agent.send("two", snapshot_id=found.snapshot_id)
    again = await agent.send("two", session_id=first.session_id)
    assert await messages(agent, again) == ["one", "ONE", "two", "TWO"]
    latest = await desk.latest(first.session_id, reject_branching_sessions=True)
    assert latest == again.snapshot_id


async def test_a_detached_turn_completes_and_is_resumed(agent: Agent, model: Model) -> None:
    first = await agent.send("one")
    run = await agent.detach("work", session_id=first.session_id)
    await model.at_work.wait()
    pending = await agent.get(session_id=first.session_id)
    assert pending is not None
    assert (pending.snapshot_id, pending.status) == (run.snapshot_id, "pending")
    model.may_end.set()
    await ended(agent)
    done = await agent.get(snapshot_id=run.snapshot_id or "")
    assert done is not None
    assert (done.status, done.parent_id) == ("completed", first.snapshot_id)
    assert done.created_at == pending.created_at
    after = await agent.send("two", session_id=first.session_id)
    assert (await messages(agent, after))[2:] == ["work", "WORK", "two", "TWO"]


async def test_a_first_turn_that_is_detached_is_resumed(agent: Agent, model: Model) -> None:
    run = await agent.detach("one")
    await ended(agent)
    after = await agent.send("two", session_id=run.session_id)
    assert await messages(agent, after) == ["one", "ONE", "two", "TWO"]


async def test_a_detached_turn_fails(agent: Agent) -> None:
    run = await agent.detach("fail")
    await ended(agent)
    found = await agent.get(snapshot_id=run.snapshot_id or "")
    assert found is not None
    assert (found.status, found.error) == ("failed", {"message": "the model is away"})


async def test_aborting_a_detached_turn_stops_it(agent: Agent, model: Model) -> None:
    run = await agent.detach("work")
    id = run.snapshot_id or ""
    await model.at_work.wait()
    assert await agent.abort(id) == "pending"
    await ended(agent)
    found = await agent.get(snapshot_id=id)
    assert found is not None
    assert found.status == "aborted"
    assert await agent.abort(id) == "aborted"


async def test_aborting_from_another_process_stops_it(shared: Desk, model: Model) -> None:
    agent = Agent(shared.sessions, model)
    run = await agent.detach("work")
    await model.at_work.wait()
    with shared.place.open() as store:
        other = Agent(shared.open(store), model)
        assert await other.abort(run.snapshot_id or "") == "pending"
    await ended(agent)


async def test_abort_does_not_override_what_has_ended(agent: Agent) -> None:
    first = await agent.send("one")
    assert await agent.abort(first.snapshot_id or "") == "completed"
    await agent.send("fail", session_id=first.session_id)
    found = await agent.get(session_id=first.session_id)
    assert found is not None
    assert await agent.abort(found.snapshot_id or "") == "failed"
    assert await agent.abort("unknown") is None


async def test_an_abort_that_comes_as_the_run_ends_is_kept_or_too_late(
    desk: Desk, model: Model
) -> None:
    agent = Agent(desk.sessions, model)
    model.may_end.set()
    for _ in range(8):
        run = await agent.detach("work")
        before = await agent.abort(run.snapshot_id or "")
        await ended(agent)
        found = await agent.get(snapshot_id=run.snapshot_id or "")
        assert found is not None
        assert found.status == {"pending": "aborted", "completed": "completed"}[before or ""]


async def test_a_worker_that_died_shows_as_expired(agent: Agent, desk: Desk, model: Model) -> None:
    run = await agent.detach("work")
    await model.at_work.wait()
    for task in agent.runs:
        task.cancel()
    long_ago = {"heartbeatAt": "2026-01-01T00:00:00.000Z"}
    await desk.sessions.save_snapshot(run.snapshot_id, always(long_ago))
    found = await agent.get(snapshot_id=run.snapshot_id or "")
    assert found is not None
    assert found.status == "expired"
    await eventually(lambda: all(task.done() for task in agent.runs))


async def test_agents_of_two_tenants_do_not_meet(desk: Desk, model: Model) -> None:
    alice, bob = (Agent(desk.sessions, model, context=who) for who in ("/alice", "/bob"))
    hers = await alice.send("one", session_id="s")
    his = await bob.send("two", session_id="s")
    assert await messages(bob, his) == ["two", "TWO"]
    assert await bob.abort(hers.snapshot_id or "") is None
    with pytest.raises(NotFound):
        await bob.send("three", snapshot_id=hers.snapshot_id)
