"""What the public suites of Genkit in JavaScript, Python and Go show of a store.

Left out is what tests/seeds/test_003_session_store.py and test_rules.py show already.
"""

import asyncio
import re
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from limpet import AlreadyExists, Conflict, InvalidInput, NotFound, Unavailable
from limpet.compat.genkit import ABSENT, SessionStore
from tests.compat.genkit.kit import Desk, Heard, Row, always, at, row
from tests.present import present


async def test_what_a_function_raises_is_raised(desk: Desk) -> None:
    await desk.put("a", state=1)
    kinds = (RuntimeError, NotFound, AlreadyExists, Conflict, Unavailable)
    for kind, id in product(kinds, ("a", "new", None)):
        error = kind("enough")

        def mutator(current: Row | None, error: Exception = error) -> None:
            raise error

        with pytest.raises(kind) as caught:
            await desk.sessions.save_snapshot(id, mutator)
        assert caught.value is error
    assert (await desk.get("a")).state == 1
    assert await desk.latest() == "a"


async def test_nothing_null_and_empty_states_differ(desk: Desk) -> None:
    states: list[Any] = [ABSENT, None, {}, [], 0, ""]
    for number, state in enumerate(states):
        await desk.put(str(number), state=state)
    found = [await desk.get(str(number)) for number in range(len(states))]
    assert [each.state for each in found] == states
    assert ["state" in each.to_json() for each in found] == [False] + [True] * 5
    await desk.sessions.save_snapshot("0", always({"state": None}))
    await desk.sessions.save_snapshot("1", always({}))
    assert [(await desk.get(id)).state for id in "01"] == [None, ABSENT]


async def test_metadata_is_all_but_the_state(desk: Desk) -> None:
    for unknown in ({"snapshot_id": "a"}, {"session_id": "s"}):
        assert await desk.sessions.get_metadata(**unknown) is None
    at_work: dict[str, Any] = {"status": "pending", "heartbeat_at": at(30), "parent_id": "before"}
    await desk.put("a", **at_work, state={"n": 1}, error={"message": "x"}, extra={"y": 1})
    found = await desk.sessions.get_metadata(snapshot_id="a")
    assert found == replace(await desk.get("a"), state=ABSENT)
    assert found is not None
    assert found.status == "expired"  # the day is over
    await desk.put("b", second=9, parent_id="a")
    latest = present(await desk.sessions.get_metadata(session_id="s"))
    assert latest.snapshot_id == await desk.latest() == "b"


async def test_a_subscription_that_is_ended(desk: Desk) -> None:
    await desk.put("a", status="pending")
    heard, others = Heard(), Heard()
    end = desk.sessions.on_snapshot_state_change("a", heard)
    await heard.until(lambda it: bool(it.rows))
    before = asyncio.all_tasks()
    end()
    end()
    end_other = desk.sessions.on_snapshot_state_change("a", others)
    await desk.sessions.save_snapshot("a", always({"status": "aborting"}))
    await others.until(lambda it: it.statuses[-1:] == ["aborting"])
    assert heard.statuses == ["pending"]
    assert len(before - asyncio.all_tasks()) == 1
    end_other()


async def test_a_rewrite_of_an_older_row_does_not_make_it_the_latest(desk: Desk) -> None:
    """By either rule: neither a heartbeat does, nor the end of a run, nor another change."""
    await desk.put("old", second=1, status="pending")
    await desk.put("new", second=9)
    changes: list[dict[str, Any]] = [
        {"status": "pending", "heartbeatAt": at(60)},
        {"status": "completed", "state": {"done": True}},
        {"state": 1, "updatedAt": at(99)},
    ]
    for change in changes:
        assert await desk.sessions.save_snapshot("old", always(change)) == "old"
        assert await desk.latest() == await desk.latest(latest="newest") == "new"


async def test_the_newest_need_not_be_a_leaf(memory: Desk) -> None:
    """What `latest="newest"` is for. Of several made at one moment it is the greatest id."""
    await memory.put("parent", second=9)
    for id in ("m", "z", "a"):
        await memory.put(id, second=1, parent_id="parent")
    assert await memory.latest() == "z"
    assert await memory.latest(latest="newest") == "parent"
    for id in ("y", "zz", "b"):
        await memory.put(id, second=9, parent_id="z")
    assert await memory.latest(latest="newest") == "zz"


UNSAFE = ["../escape", "../../escape", "foo/bar", "foo\\bar", "..", ".", "%2F", "a%", "~x", "C:"]


async def test_ids_that_lead_elsewhere_are_ids_like_any_other(desk: Desk) -> None:
    """The file store of Genkit refuses them. No name leads anywhere here."""
    for number, id in enumerate(UNSAFE):
        await desk.put(id, id, state=number)
    for number, id in enumerate(UNSAFE):
        assert (await desk.get(id)).state == number
        assert await desk.latest(id) == id


async def test_a_missing_parent(desk: Desk) -> None:
    await desk.put("child", parent_id="parent", second=2, state={"n": 2})
    assert await desk.latest() == "child"
    await desk.put("parent", second=1, state={"n": 1})
    assert await desk.latest() == "child"
    assert (await desk.get("child")).parent_id == "parent"


async def test_what_is_left_out_of_a_row(memory: Desk) -> None:
    for empty in (None, ""):
        id = present(await memory.sessions.save_snapshot(empty, always(row(status=""))))
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", id)
        assert (await memory.get(id)).status == "completed"
    for state in (ABSENT, {}, {"sessionId": ""}, {"sessionId": 3}):
        with pytest.raises(InvalidInput, match="must have a session"):
            await memory.sessions.save_snapshot("a", always(row("", state=state)))
    assert await memory.sessions.get_snapshot(snapshot_id="a") is None


async def test_bad_arguments(memory: Desk) -> None:
    sessions = memory.sessions
    bad: list[Any] = ["", " ", "\n", 3, "x" * 513, "nul \0"]
    for id in bad:
        for read, name in product(
            (sessions.get_snapshot, sessions.get_metadata), ("snapshot_id", "session_id")
        ):
            with pytest.raises(InvalidInput):
                await read(**{name: id})
        if id:
            with pytest.raises(InvalidInput):
                await sessions.save_snapshot(id, always(row()))
            with pytest.raises(InvalidInput):
                sessions.on_snapshot_state_change(id, print)
    no_function: Any = {"sessionId": "s"}
    with pytest.raises(InvalidInput, match="the mutator must be a function"):
        await sessions.save_snapshot("a", no_function)
    with pytest.raises(InvalidInput, match="the callback must be a function"):
        sessions.on_snapshot_state_change("a", no_function)


def test_bad_options(memory: Desk) -> None:
    for store, options in ((3, {}), (memory.store, {"latest": "last"})):
        with pytest.raises(InvalidInput):
            SessionStore(store, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="no event loop"):
        memory.sessions.on_snapshot_state_change("a", print)
