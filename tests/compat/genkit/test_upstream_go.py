"""The cases of Go's public suite `sessionstoretest`, by their names, on every engine.

Left out is what tests/seeds/test_003_session_store.py shows already. Go hands rows over by value,
its callers own all times, and it subscribes to statuses by a channel.
"""

import asyncio
import re
from dataclasses import replace
from itertools import product
from typing import Any, TypeGuard

import pytest

from limpet import AlreadyExists, Conflict, InvalidInput, NotFound, Unavailable
from limpet.compat.genkit import ABSENT
from tests.compat.genkit.kit import Desk, Heard, Row, always, at, row

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
AT_WORK: dict[str, Any] = {"status": "pending", "heartbeat_at": at(30), "parent_id": "before"}


def heartbeat(current: Row | None) -> Row | None:
    """Say that the run is alive, as a detached run does."""
    return replace(current, heartbeat_at=at(60)) if is_open(current) else None


def abort(current: Row | None) -> Row | None:
    return replace(current, status="aborting") if is_open(current) else None


def finalize(current: Row | None) -> Row | None:
    if not is_open(current):
        return None
    return replace(current, status="completed", heartbeat_at=None, state={"done": True})


def is_open(current: Row | None) -> TypeGuard[Row]:
    return current is not None and current.status == "pending"


# Save


async def test_save_generates_id_when_empty(desk: Desk) -> None:
    for empty in (None, ""):
        seen: list[Row | None] = []

        def mutator(current: Row | None, seen: list[Row | None] = seen) -> Row:
            seen.append(current)
            return row()

        id = await desk.sessions.save_snapshot(empty, mutator)
        assert id is not None
        assert UUID.fullmatch(id)
        assert seen == [None]
        assert (await desk.get(id)).snapshot_id == id


async def test_save_skips_the_write_when_fn_returns_nil(desk: Desk) -> None:
    assert await desk.sessions.save_snapshot("a", always(None)) is None
    assert await desk.sessions.get_snapshot(snapshot_id="a") is None
    await desk.put("a", state=1)
    before = await desk.get("a")
    assert await desk.sessions.save_snapshot("a", always(None)) is None
    assert await desk.get("a") == before


async def test_save_returns_the_fn_error(desk: Desk) -> None:
    await desk.put("a", state=1)
    for kind, id in product(
        (RuntimeError, NotFound, AlreadyExists, Conflict, Unavailable), ("a", "new", None)
    ):
        error = kind("enough")

        def mutator(current: Row | None, error: Exception = error) -> None:
            raise error

        with pytest.raises(kind) as caught:
            await desk.sessions.save_snapshot(id, mutator)
        assert caught.value is error
    assert (await desk.get("a")).state == 1
    assert await desk.latest() == "a"


async def test_save_defaults_empty_status_to_completed(desk: Desk) -> None:
    await desk.put("a")
    await desk.put("b", status="")
    assert [(await desk.get(id)).status for id in "ab"] == ["completed"] * 2


async def test_save_persists_fields_verbatim(desk: Desk) -> None:
    wire = {
        "sessionId": "s",
        "parentId": "never-saved",
        "createdAt": "2026-01-01T02:00:00.123456+02:00",
        "updatedAt": "then",
        "heartbeatAt": "2026-01-01T00:00:01Z",
        "status": "failed",
        "finishReason": "failed",
        "error": {"status": "UNAVAILABLE", "message": "away", "details": {"retryAfter": 3}},
        "state": {"custom": None, "z": 1, "a": 1.0},
        "usage": {"inputTokens": 3},
        "later": None,
    }
    await desk.sessions.save_snapshot("a", always(wire))
    assert (await desk.get("a")).to_json() == {"snapshotId": "a", **wire}


async def test_save_rejects_row_without_session_id(desk: Desk) -> None:
    for state in (ABSENT, {}, {"sessionId": ""}, {"sessionId": 3}):
        with pytest.raises(InvalidInput, match="must have a session"):
            await desk.sessions.save_snapshot("a", always(row("", state=state)))
    assert await desk.sessions.get_snapshot(snapshot_id="a") is None


async def test_save_keeps_nil_and_empty_state_apart(desk: Desk) -> None:
    states: list[Any] = [ABSENT, None, {}, [], 0, ""]
    for number, state in enumerate(states):
        await desk.put(str(number), state=state)
    found = [await desk.get(str(number)) for number in range(len(states))]
    assert [each.state for each in found] == states
    assert ["state" in each.to_json() for each in found] == [False] + [True] * 5
    await desk.sessions.save_snapshot("0", always({"state": None}))
    await desk.sessions.save_snapshot("1", always({}))
    assert [(await desk.get(id)).state for id in "01"] == [None, ABSENT]


async def test_save_round_trips_rich_state(desk: Desk) -> None:
    state = {
        "messages": [{"role": "user", "content": [{"text": "nul \0, astral 🎉, bom \ufeff"}]}],
        "custom": {"base64": "AAECAw==", "deep": {"null": None, "list": [[], {}, [None]]}},
        "": {"2**70": 2**70, "1.0": 1.0},
    }
    await desk.put("a", state=state)
    assert repr((await desk.get("a")).state) == repr(state)


# Lifecycle


async def test_lifecycle_heartbeat_advances_only_heartbeat_at(desk: Desk) -> None:
    await desk.put("a", **AT_WORK, state={"n": 1}, updated_at=at(5))
    before = await desk.sessions.get_metadata(snapshot_id="a")
    assert await desk.sessions.save_snapshot("a", heartbeat) == "a"
    after = await desk.get("a")
    assert before is not None
    assert after == replace(before, heartbeat_at=at(60), state={"n": 1})


async def test_lifecycle_verbs_skip_settled_rows(memory: Desk) -> None:
    """HeartbeatSkipsSettledRow, AbortLeavesSettledRowAlone, FinalizeSkipsSettledRow."""
    for status in ("completed", "failed", "aborted", "aborting"):
        await memory.put(status, status=status, state=1)
        before = await memory.get(status)
        for verb in (heartbeat, abort, finalize):
            assert await memory.sessions.save_snapshot(status, verb) is None
        assert await memory.get(status) == before


async def test_lifecycle_heartbeat_keeps_recency(desk: Desk) -> None:
    await desk.put("a", second=1, status="pending")
    await desk.put("b", second=2)
    await desk.sessions.save_snapshot("a", heartbeat)
    assert await desk.latest() == await desk.latest(latest="newest") == "b"


async def test_lifecycle_finalize_lands_state_and_clears_heartbeat(desk: Desk) -> None:
    await desk.put("a", second=7, **AT_WORK)
    assert await desk.sessions.save_snapshot("a", finalize) == "a"
    assert (await desk.get("a")).to_json() == {
        "snapshotId": "a",
        "sessionId": "s",
        "parentId": "before",
        "createdAt": at(7),
        "status": "completed",
        "state": {"done": True},
    }


# Chains


async def test_chains_linear_chain_reads_back_every_row(desk: Desk) -> None:
    states = [{"messages": [f"turn {n}" for n in range(turn + 1)]} for turn in range(60)]
    for turn, state in enumerate(states):
        before = str(turn - 1) if turn else None
        await desk.put(str(turn), second=turn, parent_id=before, state=state)
    assert [(await desk.get(str(turn))).state for turn in range(60)] == states
    assert await desk.latest() == await desk.latest(reject_branching_sessions=True) == "59"


async def test_chains_leaf_rewrite_keeps_ancestors(desk: Desk) -> None:
    for turn in range(4):
        before = str(turn - 1) if turn else None
        await desk.put(str(turn), parent_id=before, state={"turn": turn, "all": list(range(turn))})
    for id in ("3", "1"):  # and one inside the chain, which is as safe
        await desk.sessions.save_snapshot(id, always({"state": "rewritten"}))
    states = [(await desk.get(str(turn))).state for turn in range(4)]
    assert states[1] == states[3] == "rewritten"
    assert states[2] == {"turn": 2, "all": [0, 1]}


# Latest, by the rule of Go: the one made last


async def test_latest_ignores_rewrites_of_older_rows(desk: Desk) -> None:
    await desk.put("old", second=1)
    await desk.put("new", second=9)
    await desk.sessions.save_snapshot("old", always({"state": 1, "updatedAt": at(99)}))
    assert await desk.latest(latest="newest") == await desk.latest() == "new"


async def test_latest_breaks_created_at_ties_by_snapshot_id(desk: Desk) -> None:
    for id in ("m", "z", "a"):
        await desk.put(id, second=1)
    assert await desk.latest(latest="newest") == await desk.latest() == "z"


async def test_latest_keeps_sessions_apart(desk: Desk) -> None:
    for id, session_id in (("a", "s"), ("b", "s1"), ("c", "s/x"), ("d", "S")):
        await desk.put(id, session_id)
    assert [await desk.latest(each) for each in ("s", "s1", "s/x", "S")] == ["a", "b", "c", "d"]


async def test_latest_empty_session_id_fails(memory: Desk) -> None:
    for empty in ("", " ", "\t\n"):
        for read in (memory.sessions.get_snapshot, memory.sessions.get_metadata):
            with pytest.raises(InvalidInput):
                await read(session_id=empty)


# Metadata


async def test_metadata_matches_full_read_without_state(desk: Desk) -> None:
    for unknown in ({"snapshot_id": "a"}, {"session_id": "s"}):
        assert await desk.sessions.get_metadata(**unknown) is None
    await desk.put("a", **AT_WORK, state={"n": 1}, error={"message": "x"}, extra={"y": 1})
    found = await desk.sessions.get_metadata(snapshot_id="a")
    assert found == replace(await desk.get("a"), state=ABSENT)
    assert found is not None
    assert found.status == "expired"  # the day is over
    await desk.put("b", second=9, parent_id="a")
    latest = await desk.sessions.get_metadata(session_id="s")
    assert latest is not None
    assert latest.snapshot_id == await desk.latest() == "b"


# Subscriber


async def test_subscriber_missing_snapshot_closes_the_channel(desk: Desk) -> None:
    """Go refuses to wait for what is not there yet. We wait, as the JavaScript stores do."""
    heard = Heard()
    end = desk.sessions.on_snapshot_state_change("a", heard)
    await desk.put("b", second=1)
    await desk.put("a", status="pending")
    await heard.until(lambda it: it.statuses == ["pending"])
    end()


async def test_subscriber_closes_on_context_cancel(desk: Desk) -> None:
    await desk.put("a", status="pending")
    heard, others = Heard(), Heard()
    end = desk.sessions.on_snapshot_state_change("a", heard)
    await heard.until(lambda it: bool(it.rows))
    before = asyncio.all_tasks()
    end()
    end()
    end_other = desk.sessions.on_snapshot_state_change("a", others)
    await desk.sessions.save_snapshot("a", abort)
    await others.until(lambda it: it.statuses[-1:] == ["aborting"])
    assert heard.statuses == ["pending"]
    assert len(before - asyncio.all_tasks()) == 1
    end_other()


# A second instance


async def test_second_instance_delivers_status_changes_from_the_other(shared: Desk) -> None:
    await shared.put("a", status="pending")
    heard = Heard()
    end = shared.sessions.on_snapshot_state_change("a", heard)
    await heard.until(lambda it: bool(it.rows))
    with shared.place.open() as store:
        await shared.open(store).save_snapshot("a", abort)
    await heard.until(lambda it: it.statuses == ["pending", "aborting"])
    end()


# Scopes: what a tenant is in Go


async def test_scopes_isolates_writes(desk: Desk) -> None:
    await desk.put("a", state="mine")
    saw: list[Row | None] = []

    def mutator(current: Row | None) -> Row:
        saw.append(current)
        return row("another", state="theirs")

    assert await desk.sessions.save_snapshot("a", mutator, context="x") == "a"
    assert saw == [None]
    assert (await desk.get("a")).state == "mine"
    assert await desk.latest("another") is None
