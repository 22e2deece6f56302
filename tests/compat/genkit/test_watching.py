"""Callbacks: who is called, where, until when."""

import asyncio
import threading
from typing import Any

import pytest

import limpet
from limpet.compat.genkit import SessionStore
from limpet.errors import InvalidInput
from tests.compat.genkit.kit import Desk, Heard, Row, always, eventually, row, watchers


async def test_a_callback_may_be_async_and_is_not_called_twice_at_once(desk: Desk) -> None:
    heard: list[Any] = []
    busy = 0

    async def callback(row: Row) -> None:
        nonlocal busy
        busy += 1
        assert busy == 1
        await asyncio.sleep(0.02)
        heard.append(row.state)
        busy -= 1

    end = desk.sessions.on_snapshot_state_change("a", callback)
    for turn in range(10):
        await desk.sessions.save_snapshot("a", always(row(state=turn)))
    await eventually(lambda: heard[-1:] == [9])
    assert heard == sorted(set(heard))
    end()


async def test_a_callback_that_ends_itself_comes_to_its_own_end(memory: Desk) -> None:
    ends: list[Any] = []
    done: list[Any] = []

    async def callback(row: Row) -> None:
        ends[0]()
        await asyncio.sleep(0.02)
        done.append(row.state)

    ends.append(memory.sessions.on_snapshot_state_change("a", callback))
    await memory.put("a", state=1)
    await eventually(lambda: done == [1])
    await memory.sessions.save_snapshot("a", always(row(state=2)))
    await eventually(lambda: watchers() == 0)
    assert done == [1]


async def test_a_callback_is_cancelled_inside(
    memory: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    states: list[Any] = []

    async def callback(row: Row) -> None:
        states.append(row.state)
        raise asyncio.CancelledError

    end = memory.sessions.on_snapshot_state_change("a", callback)
    for turn in range(2):
        await memory.sessions.save_snapshot("a", always(row(state=turn)))
        await eventually(lambda: len(states) == len(caplog.records) > 0)
    await eventually(lambda: states[-1] == 1)
    end()
    await eventually(lambda: watchers() == 0)


async def test_another_thread_may_end_it(memory: Desk) -> None:
    heard = Heard()
    end = memory.sessions.on_snapshot_state_change("a", heard)
    thread = threading.Thread(target=end)
    thread.start()
    thread.join()
    await memory.put("a")
    await eventually(lambda: watchers() == 0)
    assert heard.rows == []


def test_it_may_be_ended_when_its_loop_is_gone(memory: Desk) -> None:
    async def subscribe() -> Any:
        return memory.sessions.on_snapshot_state_change("a", print)

    end = asyncio.run(subscribe())
    end()


async def test_a_row_that_is_deleted_and_created_again_is_noticed(desk: Desk) -> None:
    heard = Heard()
    end = desk.sessions.on_snapshot_state_change("a", heard)
    for turn in range(3):
        await desk.put("a", f"session-{turn}", state=turn)
        await heard.until_last(turn)
        await desk.sessions.scope(f"session-{turn}").delete_snapshot("a")
    assert [each.session_id for each in heard.rows] == [f"session-{turn}" for turn in range(3)]
    end()


@pytest.mark.parametrize("exists", [True, False])
async def test_it_ends_with_the_store(exists: bool, caplog: pytest.LogCaptureFixture) -> None:
    async with limpet.open_async("memory:") as store:
        sessions = SessionStore[Any](store)
        heard = Heard()
        if exists:
            await sessions.save_snapshot("a", always(row()))
        sessions.on_snapshot_state_change("a", heard)
        await eventually(lambda: len(heard.rows) == exists)
    await eventually(lambda: watchers() == 0)
    with pytest.raises(InvalidInput, match="closed"):
        sessions.on_snapshot_state_change("a", heard)
    assert caplog.records == []


async def test_an_unreadable_row_is_logged(memory: Desk, caplog: pytest.LogCaptureFixture) -> None:
    scope = memory.sessions.scope("s")
    await scope.save(1, id="a", metadata={"genkit": {"updatedAt": 3}})
    end = memory.sessions.on_snapshot_state_change("a", print)
    await eventually(lambda: bool(caplog.records))
    end()
