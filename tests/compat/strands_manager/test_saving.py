"""When a manager saves, what it saves, and what becomes of a save that fails."""

import asyncio
import logging
import threading
from typing import Any

import pytest

import limpet
from limpet import JSON, InvalidInput, SnapshotInfo, Unavailable
from limpet.compat.strands import SessionError, StoreStorage
from limpet.compat.strands.manager import SessionManager
from limpet.opening import open_backend, store_over
from limpet.protocol import Backend, Commit
from limpet.testing.kit import Layer
from tests.cases import for_each
from tests.compat.strands_manager.hands import (
    PLACE,
    SESSION,
    Observed,
    Plain,
    latest_of,
    turn_of,
)
from tests.present import present

Data = dict[str, JSON]


# When


def always(data: Data) -> bool:
    return data == {"messages": ["a"]}  # it gets the state


async def never(data: Data) -> bool:
    await asyncio.sleep(0)
    return False


def broken(data: Data) -> bool:
    raise ZeroDivisionError


@for_each(
    ("strategy", "trigger", "taken", "error"),
    [
        ("invocation", None, ["latest"], type(None)),
        ("message", None, ["latest", "latest"], type(None)),
        ("trigger", None, [], type(None)),
        ("invocation", never, ["latest"], type(None)),
        ("invocation", always, ["history", "latest"], type(None)),
        ("message", always, ["latest", "history", "latest"], type(None)),
        ("trigger", always, ["history", "latest"], type(None)),
        # One that raises is contained, and the latest is saved.
        ("invocation", broken, ["latest"], ZeroDivisionError),
        ("message", broken, ["latest", "latest"], ZeroDivisionError),
        ("trigger", broken, ["latest"], ZeroDivisionError),
    ],
)
async def test_what_a_turn_saves(
    strategy: Any, trigger: Any, taken: list[str], error: type[object]
) -> None:
    with limpet.open("memory:") as store:
        observed, agent = Observed(store), Plain()
        manager = SessionManager(
            observed, SESSION, save_latest_on=strategy, snapshot_trigger=trigger
        )
        turn = await turn_of(manager, agent, "a")
        assert observed.taken() == taken
        assert (turn.saved, type(turn.error)) == ("latest" in taken, error)
        assert (turn.snapshot_id is not None) == ("history" in taken)
        if turn.snapshot_id is not None:
            kept = await observed.load_snapshot(PLACE, turn.snapshot_id)
            assert kept == await latest_of(observed)
        await manager.save_latest(agent)
        assert observed.taken() == ["latest"]


async def test_message_strategy_saves_every_message_and_the_end(observed: Observed) -> None:
    manager, agent = SessionManager(observed, SESSION, save_latest_on="message"), Plain()
    async with manager.invocation(agent) as turn:
        agent.hear("a")
        await turn.message_added()
        found = await latest_of(observed)
        assert found.data == {"messages": ["a"]}
        assert found.app_data == {"status": "running"}  # who is killed now leaves this
        agent.hear("b")

    assert observed.taken() == ["latest", "latest"]
    assert (await latest_of(observed)).data == {"messages": ["a", "b"]}


async def test_a_trigger_may_save_by_itself(observed: Observed) -> None:
    agent, ids = Plain(), list[str]()

    async def saves(data: Data) -> bool:
        ids.append(await manager.save(agent))
        return False

    manager = SessionManager(observed, snapshot_trigger=saves)
    await turn_of(manager, agent, "a")
    assert await manager.list_snapshot_ids(agent) == ids


# What


async def test_a_model_error_is_saved_with_its_status(observed: Observed) -> None:
    manager, agent = SessionManager(observed, SESSION), Plain()

    async def fail() -> None:
        async with manager.invocation(agent) as turn:
            turn.app_data["user"] = "ann"
            agent.hear("a question that nobody answers")
            raise TimeoutError("the model is away; key=secret")

    with pytest.raises(TimeoutError, match="the model"):
        await fail()
    found = await latest_of(observed)
    assert found.data == {"messages": ["a question that nobody answers"]}
    assert found.app_data == {"user": "ann", "status": "failed", "error": "TimeoutError"}
    restored = present(await SessionManager(observed, SESSION).restore(Plain()))
    assert restored.status == "failed"


async def test_a_cancelled_turn_is_saved(observed: Observed) -> None:
    manager, agent, begun = SessionManager(observed, SESSION), Plain(), asyncio.Event()

    async def work() -> None:
        async with manager.invocation(agent):
            agent.hear("a")
            begun.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await latest_of(observed)).app_data == {"status": "failed", "error": "CancelledError"}
    await turn_of(manager, agent, "b")  # and the agent is free again


async def test_methods_of_an_agent_may_be_async(observed: Observed) -> None:
    class Waiting:
        agent_id = "waiting"

        def __init__(self) -> None:
            self.state: Data = {}

        async def take_snapshot(self) -> Data:
            await asyncio.sleep(0)
            return self.state

        async def load_snapshot(self, data: Data) -> None:
            await asyncio.sleep(0)
            self.state = data

    first, second = Waiting(), Waiting()
    async with SessionManager(observed).invocation(first):
        first.state = {"n": 1}
    async with SessionManager(observed).invocation(second):
        assert second.state == {"n": 1}


async def test_ids_are_uuids_that_grow_within_a_millisecond(observed: Observed) -> None:
    managers = [SessionManager(observed, name) for name in ("one", "two")]
    agents = [Plain(), Plain()]
    ids = [await managers[n % 2].save(agents[n % 2]) for n in range(60)]
    assert ids == sorted(set(ids))
    assert {id[14] for id in ids} == {"7"}


async def test_no_earlier_state_takes_the_place_of_a_later_one() -> None:
    class Slow(Observed):
        delay_s = 0.02  # of the first save

        async def save_snapshot(self, *given: Any, **named: Any) -> None:
            delay_s, self.delay_s = self.delay_s, 0.0
            await asyncio.sleep(delay_s)
            await super().save_snapshot(*given, **named)

    with limpet.open("memory:") as store:
        storage, agent = Slow(store), Plain()
        manager = SessionManager(storage, SESSION)

        async def say(number: int) -> None:
            agent.hear(str(number))
            await manager.save_latest(agent)

        await asyncio.gather(*(say(number) for number in range(5)))
        assert (await latest_of(storage)).data == {"messages": agent.messages}


# Saves that fail


@pytest.mark.parametrize("strategy", ["invocation", "message"])
async def test_a_save_that_fails_does_not_lose_the_answer(
    observed: Observed, strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = list[Exception]()
    manager = SessionManager(
        observed,
        SESSION,
        save_latest_on=strategy,  # type: ignore[arg-type]
        on_error=told.append,
    )
    agent = Plain()
    observed.fails_to = frozenset({"latest"})
    async with manager.invocation(agent) as turn:
        answer = agent.hear("a")
        await turn.message_added()

    assert (answer, turn.saved) == (1, False)
    assert isinstance(turn.error, SessionError)
    assert isinstance(turn.error.__cause__, Unavailable)
    assert told[0] is turn.error
    assert {each.levelno for each in caplog.records} == {logging.WARNING}
    assert "session_id=`chat-42` scope_id=`planner`" in caplog.text

    observed.fails_to = frozenset()
    assert (await turn_of(manager, agent, "b")).saved  # the next one has it all
    assert (await latest_of(observed)).data == {"messages": ["a", "b"]}


async def test_a_failing_save_does_not_hide_the_error_of_the_turn(observed: Observed) -> None:
    observed.fails_to = frozenset({"latest"})
    with pytest.raises(KeyError):
        async with SessionManager(observed).invocation(Plain()) as turn:
            raise KeyError
    assert isinstance(turn.error, SessionError)


async def test_an_agent_that_cannot_be_saved_keeps_its_answer(observed: Observed) -> None:
    class Broken(Plain):
        def take_snapshot(self) -> Data:
            return {"socket": object()}

    manager, agent = SessionManager(observed), Broken()
    turn = await turn_of(manager, agent, "a")
    assert isinstance(turn.error, InvalidInput)
    with pytest.raises(InvalidInput):
        await manager.save(agent)


async def test_an_on_error_may_save_when_history_fails(observed: Observed) -> None:
    """It is called after the lock of the agent is released."""
    agent = Plain()

    async def save(error: Exception) -> None:
        observed.fails_to = frozenset()
        await manager.save_latest(agent)

    manager = SessionManager(observed, snapshot_trigger=lambda state: True, on_error=save)
    observed.fails_to = frozenset({"history"})
    turn = await asyncio.wait_for(turn_of(manager, agent, "a"), 10)
    assert (turn.saved, turn.snapshot_id) == (True, None)
    assert observed.taken() == ["latest", "latest"]


async def test_a_failing_on_error_is_logged(
    observed: Observed, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(error: Exception) -> None:
        raise ZeroDivisionError

    observed.fails_to = frozenset({"latest"})
    await turn_of(SessionManager(observed, on_error=broken), Plain(), "a")
    assert "on_error failed" in caplog.text


async def test_saves_by_hand_raise(observed: Observed) -> None:
    manager, agent = SessionManager(observed), Plain()
    observed.fails_to = frozenset({"latest"})
    with pytest.raises(SessionError, match="the storage is away"):
        await manager.save_latest(agent)
    with pytest.raises(SessionError, match="in history, but not the latest") as raised:
        await manager.save(agent)
    (id,) = await manager.list_snapshot_ids(agent)
    assert id in str(raised.value)
    assert isinstance(raised.value.__cause__, Unavailable)


class Slow(Layer):
    """An engine whose first commit waits in its thread until it may go on."""

    blocking = True

    def __init__(self, below: Backend) -> None:
        super().__init__(below)
        self.began, self.may_go_on, self.ended = (threading.Event() for _ in range(3))
        self._first = True

    def commit(self, commit: Commit) -> SnapshotInfo:
        if self._first:
            self._first = False
            self.began.set()
            assert self.may_go_on.wait(300)
            try:
                return self._below.commit(commit)
            finally:
                self.ended.set()
        return self._below.commit(commit)


async def test_a_cancelled_save_is_not_overtaken() -> None:
    """A write that has begun goes on, so that whatever is saved next has to wait for it."""
    slow = Slow(open_backend("memory:"))
    with store_over(slow.backend) as store:
        agent = Plain()
        manager = SessionManager(store, SESSION, save_latest_on="message")
        task = asyncio.ensure_future(turn_of(manager, agent, "question"))
        await asyncio.to_thread(slow.began.wait)
        agent.hear("rolled up")
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # even twice
        # Whoever does not wait ends here: the last save is stored, and the first comes after it.
        await asyncio.wait([task], timeout=0.2)
        slow.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(slow.ended.wait)
        found = await latest_of(StoreStorage(store))
        assert found.data == {"messages": ["question", "rolled up"]}


async def test_a_turn_that_is_cancelled_while_history_is_saved_is_the_latest() -> None:
    """Its cancellation is raised when both are stored, so that no later turn is overtaken."""
    slow = Slow(open_backend("memory:"))
    with store_over(slow.backend) as store:
        manager, agent = SessionManager(store, SESSION, snapshot_trigger=always), Plain()
        task = asyncio.ensure_future(turn_of(manager, agent, "a"))
        await asyncio.to_thread(slow.began.wait)
        task.cancel()
        await asyncio.sleep(0)
        slow.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(await manager.list_snapshot_ids(agent)) == 1
        assert (await latest_of(StoreStorage(store))).data == {"messages": ["a"]}
        assert (await turn_of(manager, agent, "b")).saved  # and the agent is free again
