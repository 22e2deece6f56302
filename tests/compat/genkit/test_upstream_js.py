"""What the JavaScript and Python tests of Genkit show of a store, by their names.

What the cases of Go in test_upstream_go.py show already is not repeated; how the real package lays
out its files is the matter of `JsonFileSessionStore`.
"""

import asyncio
from typing import Any

import pytest

from limpet import Conflict, InvalidInput
from limpet.compat.genkit import SessionStore
from tests.compat.genkit.kit import Desk, Heard, Row, all_of, always, row

# session-stores_test.ts


async def test_returns_deep_copies_on_save_and_get(memory: Desk) -> None:
    state: dict[str, Any] = {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    await memory.put("a", state=state)
    state["messages"][0]["content"][0]["text"] = "changed"
    found = await memory.get("a")
    found.state["messages"].clear()
    assert (await memory.get("a")).state["messages"][0]["content"] == [{"text": "hi"}]


async def test_resolves_the_latest_leaf_by_session_id(desk: Desk) -> None:
    await desk.put("1", second=1)
    await desk.put("2", second=2, parent_id="1")
    assert await desk.latest() == "2"


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


async def test_prunes_beyond_max_persisted_chain_length(desk: Desk) -> None:
    """A session is a scope, and is pruned as one; never its newest."""
    for turn in range(5):
        before = str(turn - 1) if turn else None
        await desk.put(str(turn), second=turn, parent_id=before, state={"turn": turn})
    pruned = await desk.sessions.scope("s").prune(keep_last=2)
    assert pruned.count == 3
    found = [await desk.sessions.get_snapshot(snapshot_id=str(turn)) for turn in range(5)]
    assert [each and each.state for each in found] == [None, None, None, {"turn": 3}, {"turn": 4}]
    assert await desk.latest() == "4"


async def test_the_current_state_is_surfaced_on_subscribe(desk: Desk) -> None:
    await desk.put("a", state={"n": 1})
    heard = Heard()
    end = desk.sessions.on_snapshot_state_change("a", heard)
    await heard.until(lambda it: it.states == [{"n": 1}])
    end()


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


async def test_an_abort_does_not_make_a_row_the_latest(desk: Desk) -> None:
    await desk.put("a", second=1, status="pending")
    await desk.put("b", second=2, parent_id="a")
    await desk.sessions.save_snapshot("a", always({"status": "aborted"}))
    assert await desk.latest() == "b"


async def test_a_row_whose_parent_is_not_there_is_whole(desk: Desk) -> None:
    await desk.put("child", parent_id="parent", second=2, state={"n": 2})
    assert await desk.latest() == "child"
    await desk.put("parent", second=1, state={"n": 1})
    assert await desk.latest() == "child"
    assert (await desk.get("child")).parent_id == "parent"


async def test_finish_reason_error_and_times_go_round(desk: Desk) -> None:
    facts: dict[str, Any] = {
        "finish_reason": "interrupted",
        "error": {"status": "ABORTED", "message": "ümläut", "details": [None]},
        "heartbeat_at": "never",
        "updated_at": "2026-01-01",
    }
    await desk.put("a", **facts)
    found = await desk.get("a")
    assert {name: getattr(found, name) for name in facts} == facts


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


# agent_session_stores_test.py


async def test_whitespace_sessions_are_rejected(memory: Desk) -> None:
    with pytest.raises(InvalidInput, match="must have a session"):
        await memory.sessions.save_snapshot("a", always(row("  ")))


async def test_a_terminal_flip_is_rejected(desk: Desk) -> None:
    await desk.put("a", status="completed", state=1)
    for status in ("pending", "aborting", "failed", "aborted"):
        with pytest.raises(Conflict, match="the snapshot is completed and stays so"):
            await desk.sessions.save_snapshot("a", always({"status": status, "state": 2}))
    assert (await desk.get("a")).state == 1


async def test_a_session_rewrite_is_rejected(desk: Desk) -> None:
    await desk.put("a", state=1)
    with pytest.raises(InvalidInput, match="cannot move to another session"):
        await desk.sessions.save_snapshot("a", always(row("another", state=2)))
    assert await desk.latest("another") is None


async def test_the_parent_is_immutable_on_upsert(desk: Desk) -> None:
    await desk.put("a", parent_id="p")
    with pytest.raises(InvalidInput, match="parent of a snapshot cannot change"):
        await desk.sessions.save_snapshot("a", always(row(parent_id="q")))
    assert (await desk.get("a")).parent_id == "p"


async def test_an_async_mutator_is_awaited(desk: Desk) -> None:
    """Theirs is refused, or destroys the row. It may run again, like any other."""

    async def mutator(current: Row | None) -> Row:
        await asyncio.sleep(0)
        return row(state=1 if current is None else current.state + 1)

    await all_of(*(desk.sessions.save_snapshot("a", mutator) for _ in range(6)))
    assert (await desk.get("a")).state == 6


async def test_an_unstorable_state_is_rejected(desk: Desk) -> None:
    await desk.put("a", state=1)
    for bad in ({"x": float("nan")}, {"x": "\ud800"}, {1: 2}, {"x": b""}, {"x": {1, 2}}):
        for id in ("a", "new"):
            with pytest.raises(InvalidInput):
                await desk.sessions.save_snapshot(id, always(row(state=bad)))
    assert (await desk.get("a")).state == 1
    assert await desk.sessions.get_snapshot(snapshot_id="new") is None


async def test_an_interior_row_may_be_rewritten(desk: Desk) -> None:
    """Python refuses that, and JavaScript then rewrites what follows."""
    await desk.put("a", second=1, state={"turns": [1]})
    await desk.put("b", second=2, parent_id="a", state={"turns": [1, 2]})
    await desk.sessions.save_snapshot("a", always({"state": "redacted"}))
    assert (await desk.get("b")).state == {"turns": [1, 2]}


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
