"""What the JavaScript and Python tests of Genkit show of a store, by their names.

What test_upstream_go.py, test_rules.py and test_defects.py show already is not repeated; how the
real package lays out its files is the matter of test_transfer.py.
"""

from typing import Any

import pytest

from limpet import Conflict, InvalidInput
from limpet.compat.genkit import SessionStore
from tests.compat.genkit.kit import Desk, Heard, Row, always, row

# session-stores_test.ts


async def test_every_listener_is_notified_when_one_unsubscribes_mid_dispatch(desk: Desk) -> None:
    heard = Heard()
    ends: list[Any] = []
    first = Heard()

    def once(row: Row) -> None:
        first(row)
        ends[0]()

    ends.append(desk.sessions.on_snapshot_state_change("a", once))
    ends.append(desk.sessions.on_snapshot_state_change("a", heard))
    await desk.put("a", status="pending")
    await heard.until(lambda it: it.statuses == first.statuses == ["pending"])
    await desk.sessions.save_snapshot("a", always({"status": "completed"}))
    await heard.until(lambda it: it.statuses == ["pending", "completed"])
    assert first.statuses == ["pending"]
    ends[1]()


UNSAFE = ["../escape", "../../escape", "foo/bar", "foo\\bar", "..", ".", "%2F", "a%", "~x", "C:"]


async def test_ids_that_lead_elsewhere_are_ids_like_any_other(desk: Desk) -> None:
    """Their file store refuses them. No name leads anywhere here."""
    for number, id in enumerate(UNSAFE):
        await desk.put(id, id, state=number)
    for number, id in enumerate(UNSAFE):
        assert (await desk.get(id)).state == number
        assert await desk.latest(id) == id


# session_store_test.ts (Firestore)


async def test_rejects_both_and_neither_and_blank_ids(memory: Desk) -> None:
    both = {"snapshot_id": "a", "session_id": "s"}
    bad: list[Any] = [" ", "\n", 3, "x" * 513, "nul \0"]
    named = [{name: id} for name in both for id in bad]
    for ids in ({}, both, *named):
        with pytest.raises(InvalidInput):
            await memory.sessions.get_snapshot(**ids)
    for id in bad:
        with pytest.raises(InvalidInput):
            await memory.sessions.save_snapshot(id, always(row()))
        with pytest.raises(InvalidInput):
            memory.sessions.on_snapshot_state_change(id, print)


async def test_a_row_whose_parent_is_not_there_is_whole(desk: Desk) -> None:
    await desk.put("child", parent_id="parent", second=2, state={"n": 2})
    assert await desk.latest() == "child"
    await desk.put("parent", second=1, state={"n": 1})
    assert await desk.latest() == "child"
    assert (await desk.get("child")).parent_id == "parent"


# agent_session_stores_test.py


async def test_what_the_rules_refuse_changes_nothing(desk: Desk) -> None:
    """A terminal flip, a rewrite of the session, another parent."""
    await desk.put("a", status="completed", parent_id="p", state=1)
    for bad, error in (
        ({"status": "pending"}, Conflict),
        ({"sessionId": "another"}, InvalidInput),
        ({"parentId": "q"}, InvalidInput),
    ):
        with pytest.raises(error):
            await desk.sessions.save_snapshot("a", always({**bad, "state": 2}))
    found = await desk.get("a")
    assert (found.status, found.parent_id, found.state) == ("completed", "p", 1)
    assert await desk.latest("another") is None


async def test_an_unstorable_state_is_rejected(desk: Desk) -> None:
    await desk.put("a", state=1)
    for bad in ({"x": float("nan")}, {"x": "\ud800"}, {1: 2}, {"x": b""}, {"x": {1, 2}}):
        for id in ("a", "new"):
            with pytest.raises(InvalidInput):
                await desk.sessions.save_snapshot(id, always(row(state=bad)))
    assert (await desk.get("a")).state == 1
    assert await desk.sessions.get_snapshot(snapshot_id="new") is None


def test_what_is_no_option_is_refused(memory: Desk) -> None:
    for store, options in ((3, {}), (memory.store, {"latest": "last"})):
        with pytest.raises(InvalidInput):
            SessionStore(store, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="no event loop"):
        memory.sessions.on_snapshot_state_change("a", print)


async def test_what_is_no_function_is_refused(memory: Desk) -> None:
    bad: Any = {"sessionId": "s"}
    with pytest.raises(InvalidInput, match="the mutator must be a function"):
        await memory.sessions.save_snapshot("a", bad)
    with pytest.raises(InvalidInput, match="the callback must be a function"):
        memory.sessions.on_snapshot_state_change("a", bad)


async def test_the_history_of_a_session_costs_what_changes(stores: Any) -> None:
    """Checkpoints, diffs and shards, which Firestore needs for that, are the engine's matter."""
    desk = stores.desk("sqlite")
    words = "x" * 100_000
    for turn in range(20):
        state = {"messages": [words, *range(turn)], "artifacts": [{"name": str(turn)}]}
        await desk.put(str(turn), second=turn, parent_id=str(turn - 1), state=state)
    stats = await desk.sessions._store.stats(desk.sessions.scope("s").session_id)
    assert stats.logical_bytes > 20 * len(words)
    assert stats.stored_bytes < 2 * len(words)
