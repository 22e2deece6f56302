"""What is true of the package's own stores is true of this one: their tests, by behaviour."""

import asyncio
from typing import Any

import pytest
from genkit.exp.agent import SessionSnapshot, SnapshotStatusStream, SnapshotSubscriber

import limpet
from limpet.compat.genkit.python import LimpetGenkitStore
from tests.frameworks.genkit.rows import (
    ABORTED,
    COMPLETED,
    FAILED,
    PENDING,
    Watched,
    abort,
    all_of,
    at,
    changing,
    custom_of,
    get,
    latest,
    put,
    refused,
    row,
    soon,
    text_of,
)
from tests.present import present

INVALID, REFUSED = "INVALID_ARGUMENT", "FAILED_PRECONDITION"


async def test_the_life_of_a_session(any_sessions: Watched) -> None:
    saved = await put(any_sessions, row("a", "one", status=PENDING))
    assert (saved.snapshot_id, saved.session_id, saved.status) == ("a", "s", PENDING)
    found = await get(any_sessions, "a")
    assert (found.session_id, found.status, text_of(found)) == ("s", PENDING, "one")
    assert await latest(any_sessions) == "a"

    await any_sessions.save_snapshot("a", lambda _: row("other", "two"))
    found = await get(any_sessions, "a")
    assert (found.snapshot_id, found.status, text_of(found)) == ("a", COMPLETED, "two")

    await put(any_sessions, row("b", "three", parent_id="a", second=1))
    assert await latest(any_sessions) == "b"
    assert (await get(any_sessions, "b")).parent_id == "a"
    assert text_of(await get(any_sessions, "a")) == "two"


async def test_what_is_not_there(any_sessions: Watched) -> None:
    assert await any_sessions.get_snapshot(snapshot_id="a") is None
    assert await any_sessions.get_snapshot(session_id="s") is None
    assert await any_sessions.save_snapshot("a", lambda current: current) is None
    assert await abort(any_sessions, "a") is None
    assert await any_sessions.get_snapshot(snapshot_id="a") is None


@pytest.mark.parametrize("ids", [{}, {"snapshot_id": "a", "session_id": "s"}])
async def test_exactly_one_id(any_sessions: Watched, ids: Any) -> None:
    assert await refused(any_sessions.get_snapshot(**ids)) == INVALID


async def test_blank_ids(any_sessions: Watched) -> None:
    assert await refused(any_sessions.get_snapshot(snapshot_id="  ")) == INVALID
    assert await refused(any_sessions.get_snapshot(session_id="\t")) == INVALID


async def test_what_is_left_out(any_sessions: Watched) -> None:
    saved = await put(any_sessions, row("a", status=None, created_at=""))
    assert saved.status == COMPLETED
    assert saved.created_at
    assert (await get(any_sessions, "a")).created_at == saved.created_at


async def test_an_abort_changes_a_pending_run_only(any_sessions: Watched) -> None:
    await put(any_sessions, row("a", status=PENDING))
    assert await abort(any_sessions, "a") == PENDING
    assert (await get(any_sessions, "a")).status == ABORTED
    assert await abort(any_sessions, "a") == ABORTED
    await put(any_sessions, row("b"))
    assert await abort(any_sessions, "b") == COMPLETED
    assert (await get(any_sessions, "b")).status == COMPLETED


@pytest.mark.parametrize("ended", [COMPLETED, ABORTED, FAILED])
async def test_a_final_status_stays(any_sessions: Watched, ended: Any) -> None:
    await put(any_sessions, row("a", status=ended))
    other = ABORTED if ended == COMPLETED else COMPLETED
    for status in (other, PENDING):
        assert await refused(any_sessions.save_snapshot("a", changing(status=status))) == REFUSED
    present(await any_sessions.save_snapshot("a", changing(updated_at=at(9))))
    found = await get(any_sessions, "a")
    assert (found.status, found.updated_at) == (ended, at(9))


async def test_a_snapshot_stays_in_its_session(any_sessions: Watched) -> None:
    await put(any_sessions, row("a", status=PENDING))
    assert await refused(any_sessions.save_snapshot("a", changing(session_id="other"))) == REFUSED
    assert await latest(any_sessions) == "a"


async def test_a_function_must_not_be_async(any_sessions: Watched) -> None:
    async def wrong(_: SessionSnapshot | None) -> SessionSnapshot:
        return row("a")

    mutator: Any = wrong
    assert await refused(any_sessions.save_snapshot("a", mutator)) == INVALID
    assert await any_sessions.get_snapshot(snapshot_id="a") is None


async def test_what_a_function_raises(any_sessions: Watched) -> None:
    def fails(_: SessionSnapshot | None) -> SessionSnapshot:
        raise LookupError("mine")

    await put(any_sessions, row("a"))
    for id in ("a", "b"):
        with pytest.raises(LookupError, match="mine"):
            await any_sessions.save_snapshot(id, fails)


async def test_values_are_copies(any_sessions: Watched) -> None:
    given = row("a", custom={"list": [1]})
    await put(any_sessions, given)
    custom_of(given)["list"].append(2)
    found = await get(any_sessions, "a")
    assert custom_of(found) == {"list": [1]}
    custom_of(found)["list"].append(3)
    assert custom_of(await get(any_sessions, "a")) == {"list": [1]}


async def test_the_newest_of_several_leaves(any_sessions: Watched) -> None:
    await put(any_sessions, row("root"))
    await put(any_sessions, row("new", parent_id="root", second=2))
    await put(any_sessions, row("old", parent_id="root", second=1))
    assert await latest(any_sessions) == "new"
    await put(any_sessions, row("dead", parent_id="new", second=3, status=FAILED))
    assert await latest(any_sessions) == "dead"


async def test_parents_in_a_circle(any_sessions: Watched) -> None:
    await put(any_sessions, row("a", parent_id="b"))
    await put(any_sessions, row("b", parent_id="a"))
    assert await refused(any_sessions.get_snapshot(session_id="s")) == REFUSED


async def test_a_stream_ends_after_a_final_status(any_sessions: Watched) -> None:
    await put(any_sessions, row("a", status=PENDING))
    stream = await any_sessions.on_snapshot_status_change("a")
    assert isinstance(stream, SnapshotStatusStream)
    assert await soon(anext(stream)) == PENDING
    await abort(any_sessions, "a")
    assert await all_of(stream) == [ABORTED]
    assert await all_of(stream) == []


async def test_a_stream_of_what_is_not_there_yet(any_sessions: Watched) -> None:
    stream = await any_sessions.on_snapshot_status_change("a")
    await put(any_sessions, row("a", status=PENDING))
    assert await soon(anext(stream)) == PENDING
    await stream.aclose()


async def test_a_stream_of_what_has_ended(any_sessions: Watched) -> None:
    await put(any_sessions, row("a"))
    assert await all_of(await any_sessions.on_snapshot_status_change("a")) == [COMPLETED]


async def test_a_stream_that_is_closed(any_sessions: Watched) -> None:
    await put(any_sessions, row("a", status=PENDING))
    stream = await any_sessions.on_snapshot_status_change("a")
    assert await soon(anext(stream)) == PENDING
    await stream.aclose()
    await stream.aclose()
    await abort(any_sessions, "a")
    assert await all_of(stream) == []


async def test_every_stream_is_told(any_sessions: Watched) -> None:
    await put(any_sessions, row("a", status=PENDING))
    streams = [await any_sessions.on_snapshot_status_change("a") for _ in range(3)]
    for each in streams:
        assert await soon(anext(each)) == PENDING
    await any_sessions.save_snapshot("a", changing(status=COMPLETED))
    assert await asyncio.gather(*map(all_of, streams)) == [[COMPLETED]] * 3


async def test_branches_can_be_refused(memory: limpet.Store) -> None:
    strict = LimpetGenkitStore(memory, reject_branching_sessions=True)
    await put(strict, row("root"))
    await put(strict, row("a", parent_id="root", second=1))
    assert await latest(strict) == "a"
    await put(strict, row("b", parent_id="root", second=2))
    assert await refused(strict.get_snapshot(session_id="s")) == REFUSED
    assert await get(strict, "a")


async def test_it_can_be_watched(memory: limpet.Store) -> None:
    assert isinstance(LimpetGenkitStore(memory), SnapshotSubscriber)
