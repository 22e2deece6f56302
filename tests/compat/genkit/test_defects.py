"""What the real package does wrong, and we do not: the numbers are those of our package's table.

Of 12 see test_upstream.py.
"""

import sqlite3
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import AlreadyExists, Conflict, Corrupt, InvalidInput
from limpet.compat.genkit import SessionStore
from tests.compat.genkit.kit import Desk, Heard, Row, always, row
from tests.present import present


async def test_d7_watching_does_not_reach_another_tenant(memory: Desk) -> None:
    await memory.sessions.save_snapshot("secret", always(row(state="s")), context="/alice")
    heard, own = Heard(), Heard()
    ends = [
        memory.sessions.on_snapshot_state_change(id, heard, context="/bob")
        for id in ("../alice/secret", "/alice/secret", "secret")
    ]
    ends.append(memory.sessions.on_snapshot_state_change("secret", own, context="/alice"))
    await own.until(lambda it: bool(it.rows))
    assert heard.rows == []
    for end in ends:
        end()


async def test_d8_a_tenant_of_any_name_stays_where_it_is(memory: Desk) -> None:
    for id, tenant in enumerate(["../x", "..", "/", "a/b", "%2F", "a%2Fb", "\\", "x" * 100]):
        given = always(row(state=tenant))
        await memory.sessions.save_snapshot(str(id), given, context=tenant)
        found = await memory.sessions.get_snapshot(session_id="s", context=tenant)
        assert found is not None
        assert found.state == tenant
        for other in ("", "x", "a", f"{tenant}/", f"/{tenant}", tenant.replace("/", "%2F") + "%"):
            assert await memory.sessions.get_snapshot(snapshot_id=str(id), context=other) is None


async def test_d9_what_is_refused_leaves_nothing(desk: Desk) -> None:
    for bad in (row("x" * 600), row(" "), row(status="expired"), row(state={"x": float("inf")})):
        with pytest.raises(InvalidInput):
            await desk.sessions.save_snapshot("a", always(bad))
        assert await desk.sessions.get_snapshot(snapshot_id="a") is None


async def test_d10_one_bad_row_breaks_no_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    async with limpet.open_async(url) as store:
        sessions = SessionStore[Any](store)
        for id, second in (("a", 1), ("b", 2), ("c", 3)):
            await sessions.save_snapshot(id, always(row(second=second)))
    with closing(sqlite3.connect(tmp_path / "a.db")) as conn, conn:
        conn.execute("UPDATE snapshots SET status = 'torn' WHERE id = 'b'")
    async with limpet.open_async(url) as store:
        sessions = SessionStore[Any](store)
        found = present(await sessions.get_snapshot(session_id="s"))
        assert found.snapshot_id == "c"
        assert await sessions.get_snapshot(snapshot_id="a") is not None
        assert await sessions.get_snapshot(session_id="unknown") is None
        assert [each.code async for each in store.check()]
        with pytest.raises(Corrupt):
            await sessions.save_snapshot("b", always(row(state="over it")))


async def test_d11_a_callback_raises(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[Row] = []

    def fails(row: Row) -> None:
        calls.append(row)
        raise RuntimeError("enough")

    heard = Heard()
    ends = [desk.sessions.on_snapshot_state_change("a", each) for each in (fails, heard)]
    await desk.put("a", status="pending")
    await heard.until(lambda it: len(it.rows) == len(calls) == 1)
    assert await desk.sessions.save_snapshot("a", always({"status": "completed"})) == "a"
    await heard.until(lambda it: len(it.rows) == len(calls) == 2)
    assert {each.message for each in caplog.records} == {"a callback has failed. snapshot_id=`a`"}
    for end in ends:
        end()


async def test_d14_a_turn_that_failed_is_no_branch(desk: Desk) -> None:
    await desk.put("good", second=1)
    for second, status in ((2, "failed"), (3, "aborted")):
        await desk.put(status, second=second, parent_id="good", status=status)
    assert await desk.latest(reject_branching_sessions=True) == "aborted"
    await desk.put("again", second=4, parent_id="good")
    assert await desk.latest(reject_branching_sessions=True) == "again"
    await desk.put("other", second=5, parent_id="good")
    with pytest.raises(Conflict, match="leaves=`2`"):
        await desk.latest(reject_branching_sessions=True)


async def test_d17_what_is_no_row_destroys_none(memory: Desk) -> None:
    await memory.put("a", state=1)
    answers: list[Any] = [..., 3, "text", [], True, {"snapshotId": 3}]
    for answer, id in product(answers, ("a", "b", None)):
        with pytest.raises(InvalidInput):
            await memory.sessions.save_snapshot(id, always(answer))
    assert (await memory.get("a")).state == 1


async def test_d17_an_id_that_is_taken_is_not_overwritten(desk: Desk) -> None:
    """Without an id the function has not seen what is there."""
    await desk.put("a", state=1)
    for session_id in ("s", "another"):
        with pytest.raises(AlreadyExists, match="snapshot_id=`a`"):
            await desk.sessions.save_snapshot(None, always(row(session_id, snapshot_id="a")))
    assert (await desk.get("a")).state == 1


async def test_d19_no_context_is_not_every_tenant(memory: Desk) -> None:
    """A call whose context was lost on the way finds nothing of a tenant's."""
    sessions = SessionStore[Any](memory.store)
    id = memory.tenant
    await sessions.save_snapshot(id, always(row(id)), context={"auth": {"uid": "alice"}})
    without: list[Any] = [None, {}]
    for lost in without:
        assert await sessions.get_snapshot(snapshot_id=id, context=lost) is None
        assert await sessions.get_snapshot(session_id=id, context=lost) is None
    with pytest.raises(InvalidInput, match=r"no auth\.uid"):
        await sessions.get_snapshot(snapshot_id=id, context={"other": 1})
