"""What this store promises beyond the package's own: see `docs/guides/genkit_python.md`."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from genkit import GenkitError
from genkit.exp.agent import SnapshotStatus
from pydantic import BaseModel

import limpet
from limpet.compat.genkit import SessionStore
from limpet.compat.genkit.python import LimpetGenkitStore
from tests.frameworks.genkit.rows import (
    ABORTED,
    COMPLETED,
    PENDING,
    abort,
    all_of,
    at,
    changing,
    counting,
    custom_of,
    get,
    latest,
    put,
    refused,
    row,
    soon,
    text_of,
)
from tests.frameworks.kit import Places
from tests.present import present

INVALID, REFUSED = "INVALID_ARGUMENT", "FAILED_PRECONDITION"


# What is stored


class Trip(BaseModel):
    city: str
    hotel: str | None  # must be given, and may be None


async def test_none_in_the_model_of_a_state(memory: limpet.Store) -> None:
    sessions = LimpetGenkitStore(memory)
    await put(sessions, row("a", custom=Trip(city="Lisbon", hotel=None)))
    found = custom_of(await get(sessions, "a"))
    assert Trip.model_validate(found) == Trip(city="Lisbon", hotel=None)


@pytest.mark.parametrize("value", [object(), b"\xff", "\ud800"])
async def test_what_is_not_json_is_refused(memory: limpet.Store, value: Any) -> None:
    sessions = LimpetGenkitStore(memory)
    assert await refused(put(sessions, row("a", custom={"value": value}))) == INVALID
    assert list(memory.sessions()) == []


async def test_every_field(memory: limpet.Store) -> None:
    given = row(
        "a",
        session_id="s",
        parent_id="p",
        updated_at=at(1),
        heartbeat_at=at(2),
        status=SnapshotStatus.FAILED,
        finish_reason="failed",
        error={"status": "INTERNAL", "message": "broken", "details": {"x": [None]}},
    )
    saved = await put(LimpetGenkitStore(memory), given)
    found = await get(LimpetGenkitStore(memory), "a")
    assert found == saved == given.model_copy(update={"session_id": "s"})


async def test_what_cannot_change(memory: limpet.Store) -> None:
    sessions = LimpetGenkitStore(memory)
    await put(sessions, row("a", parent_id="p", status=PENDING))
    inside = row("a", session_id="other", parent_id="p", status=PENDING)
    assert await refused(put(sessions, inside)) == REFUSED
    assert await refused(put(sessions, row("a", parent_id="q", status=PENDING))) == INVALID
    assert await refused(put(sessions, row("b", session_id=None))) == INVALID
    assert await refused(put(sessions, row("b", status=SnapshotStatus.EXPIRED))) == INVALID
    assert await refused(put(sessions, row(""))) == INVALID
    returns_a_dict: Any = lambda _: {"snapshotId": "b"}  # noqa: E731
    assert await refused(sessions.save_snapshot("b", returns_a_dict)) == INVALID
    assert [info.id for info in memory.scope("s").history()] == ["a"]


async def test_a_rewrite_of_an_older_snapshot(memory: limpet.Store) -> None:
    """A heartbeat, or the end of its run, does not make it the latest."""
    sessions = LimpetGenkitStore(memory)
    await put(sessions, row("p"))
    await put(sessions, row("a", parent_id="p", second=1, status=PENDING, heartbeat_at=at(1)))
    await put(sessions, row("later", parent_id="p", second=2))
    before = await get(sessions, "a")
    assert before.status == SnapshotStatus.EXPIRED
    now = datetime.now(UTC).isoformat()
    await sessions.save_snapshot("a", changing(status=PENDING, heartbeat_at=now))
    expected = before.model_copy(update={"status": PENDING, "heartbeat_at": now})
    assert await get(sessions, "a") == expected
    assert await latest(sessions) == "later"

    saved = await put(sessions, row("a", "done", parent_id="", second=9))
    assert (saved.parent_id, saved.created_at, saved.heartbeat_at) == ("p", at(1), None)
    assert await get(sessions, "a") == saved
    assert await latest(sessions) == "later"


# Several writers


async def test_two_stores_at_one_place(url: str) -> None:
    with limpet.open(url) as one, limpet.open(url) as two:
        here, there = LimpetGenkitStore(one), LimpetGenkitStore(two)
        await asyncio.gather(*(each.save_snapshot("n", counting) for each in (here, there) * 5))
        assert custom_of(await get(here, "n")) == {"n": 10}

        stream = await here.on_snapshot_status_change("n")
        assert await soon(anext(stream)) == PENDING
        assert await abort(there, "n") == PENDING
        assert await all_of(stream) == [ABORTED]
        assert await refused(here.save_snapshot("n", counting)) == REFUSED


# Streams


async def test_only_statuses_are_told(memory: limpet.Store) -> None:
    sessions = LimpetGenkitStore(memory)
    await put(sessions, row("a", status=PENDING, heartbeat_at=at(0)))  # it is expired
    stream = await sessions.on_snapshot_status_change("a")
    assert await soon(anext(stream)) == PENDING
    for second in range(3):
        await sessions.save_snapshot("a", changing(heartbeat_at=at(second)))
    await sessions.save_snapshot("a", changing(status=SnapshotStatus.ABORTING))
    assert await soon(anext(stream)) == SnapshotStatus.ABORTING
    await sessions.save_snapshot("a", changing(status=ABORTED))
    assert await all_of(stream) == [ABORTED]


async def test_one_who_waits_is_told_of_the_end(memory: limpet.Store) -> None:
    sessions = LimpetGenkitStore(memory)
    stream = await sessions.on_snapshot_status_change("a")
    waiting = asyncio.create_task(all_of(stream))
    await asyncio.sleep(0.01)
    await stream.aclose()
    assert await waiting == []


async def test_a_store_that_is_closed(places: Places) -> None:
    with limpet.open(places.url("sqlite")) as store:
        sessions = LimpetGenkitStore(store)
        await put(sessions, row("a", status=PENDING))
        stream = await sessions.on_snapshot_status_change("a")
        assert await soon(anext(stream)) == PENDING
    assert await all_of(stream) == []
    with pytest.raises(GenkitError, match="closed") as caught:
        await sessions.on_snapshot_status_change("a")
    assert isinstance(caught.value.__cause__, limpet.InvalidInput)


# Others in the same store


async def test_tenants(memory: limpet.Store) -> None:
    sessions = LimpetGenkitStore(memory, prefix_of=lambda context: (context or {}).get("tenant"))
    alice = {"tenant": "alice"}
    await put(sessions, row("a", "hers", status=PENDING), context=alice)
    assert await sessions.get_snapshot(snapshot_id="a") is None
    assert await sessions.get_snapshot(session_id="s", context={"tenant": "bob"}) is None
    await put(sessions, row("a", "ours"))
    stream = await sessions.on_snapshot_status_change("a")
    assert await abort(sessions, "a", context=alice) == PENDING
    assert await all_of(stream) == [COMPLETED]
    assert text_of(await get(sessions, "a", context=alice)) == "hers"


async def test_one_store_for_both_languages(memory: limpet.Store) -> None:
    python, others = LimpetGenkitStore(memory), SessionStore[Any](memory)
    await put(python, row("a", custom={"n": 1}, status=PENDING))
    seen = present(await others.get_snapshot(session_id="s"))
    assert (seen.snapshot_id, seen.status, seen.state["custom"]) == ("a", "pending", {"n": 1})
    stream = await python.on_snapshot_status_change("a")
    assert await soon(anext(stream)) == PENDING
    await others.save_snapshot("a", lambda current: {**current.to_json(), "status": "completed"})  # type: ignore[union-attr]
    assert await all_of(stream) == [COMPLETED]
    state = {"sessionId": "s", "messages": [{"role": "model", "content": [{"text": "yes"}]}]}
    await others.save_snapshot("b", lambda _: {"sessionId": "s", "parentId": "a", "state": state})
    assert text_of(await python.get_snapshot(session_id="s")) == "yes"


@pytest.mark.parametrize(
    ("wire", "field"),
    [
        ({"sessionId": "s", "state": {"usage": {"tokens": "secret"}}}, "state.usage"),
        ({"sessionId": "s", "color": "secret"}, "color"),
        ({"sessionId": "s", "state": "secret"}, "state"),
    ],
)
async def test_what_the_package_cannot_read(memory: limpet.Store, wire: Any, field: str) -> None:
    await SessionStore[Any](memory).save_snapshot("a", lambda _: wire)
    sessions = LimpetGenkitStore(memory)
    with pytest.raises(GenkitError, match=f"snapshot_id=`a` field=`{field}`") as caught:
        await sessions.get_snapshot(session_id="s")
    assert caught.value.status == REFUSED
    assert "secret" not in str(caught.value)
    assert await refused(sessions.save_snapshot("a", changing(status=ABORTED))) == REFUSED


async def test_what_another_program_saved(memory: limpet.Store) -> None:
    memory.scope("s").save({"messages": []}, id="a", status="thinking")
    sessions = LimpetGenkitStore(memory)
    assert await refused(sessions.get_snapshot(session_id="s")) == REFUSED
    stream = await sessions.on_snapshot_status_change("a")
    memory.scope("s").update("a", lambda found: found.with_(status="completed"))
    assert await all_of(stream) == [COMPLETED]


def test_the_package_is_imported_by_its_own_module_only() -> None:
    code = "import sys, limpet.compat.genkit; print('genkit' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
