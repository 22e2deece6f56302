"""One address for everything: what others saved is seen, and what is saved here is seen by them."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from limpet import Corrupt
from limpet.compat.genkit import ABSENT, SessionStore
from limpet.compat.strands import Snapshot, SnapshotLocation, StoreStorage
from tests.compat.genkit.kit import Desk, always, at, row, stored_rows
from tests.present import present


async def test_the_rows_of_the_real_package_are_read_back_verbatim(desk: Desk) -> None:
    """But for a session and a status that are not said, which then are."""
    sessions = desk.sessions
    kept = [each for each in stored_rows() if each["snapshotId"] != "minimal"]  # of no session
    for each in kept:
        await sessions.save_snapshot(None, always(each))
    for each in kept:
        found = await desk.get(each["snapshotId"])
        said = {"sessionId": each.get("state", {}).get("sessionId"), "status": "completed"}
        assert found.to_json() == {**said, **each}


async def test_the_core_sees_a_row_as_a_snapshot(desk: Desk) -> None:
    await desk.put("a", "x/y", second=1, state={"n": 1})
    await desk.put("b", "x/y", second=2, parent_id="a", status="pending", state={"n": 2})
    scope = desk.store.scope(f"{desk.tenant}/x%2Fy")
    head = present(scope.load())
    assert (head.id, head.parent_id, head.status, head.state) == ("b", "a", "pending", {"n": 2})
    assert head.metadata["genkit"] == {"createdAt": at(2)}
    assert head.created_at == datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert [each.id for each in scope.ancestors("b")] == ["b", "a"]


async def test_what_the_core_saved_is_a_row(desk: Desk) -> None:
    scope = desk.sessions.scope("s")
    first = await scope.save({"n": 1}, labels={"user": "ann"}, metadata={"cost": 3})
    second = await scope.save({"n": 2}, status="running")
    found = await desk.get(first.id)
    assert (found.session_id, found.status, found.state) == ("s", "completed", {"n": 1})
    assert found.created_at is not None
    assert found.created_at == found.updated_at
    assert await desk.latest() == second.id
    await desk.sessions.save_snapshot(first.id, always(replace(found, state={"n": 3})))
    info = present(await scope.load(first.id))
    assert (info.state, info.labels) == ({"n": 3}, {"user": "ann"})
    assert info.metadata["cost"] == 3


async def test_the_state_of_a_fork_names_its_own_session(desk: Desk) -> None:
    """Agents save the next turn in the session that the state names."""
    await desk.put("a", state={"sessionId": "s", "messages": []})
    to = desk.sessions.scope("branch").session_id
    await desk.sessions.scope("s").fork("a", to=to)
    found = present(await desk.sessions.get_snapshot(session_id="branch"))
    assert found.state == {"sessionId": "branch", "messages": []}
    assert (await desk.get("a")).state == {"sessionId": "s", "messages": []}


async def test_what_strands_saved_last_is_the_latest(desk: Desk) -> None:
    """It is a draft, and has no id by which it could be asked for."""
    sessions = SessionStore[Any](desk.store)
    session_id = desk.tenant
    location = SnapshotLocation(session_id, "agent", "main")
    storage = StoreStorage(desk.store)
    for number in range(2):
        made = f"2026-01-0{number + 1}T00:00:00.000Z"
        snapshot = Snapshot("agent", "1.0", made, {"messages": [number]})
        await storage.save_snapshot(location, "latest", True, snapshot)
        found = present(await sessions.get_snapshot(session_id=session_id))
        assert (found.state, found.created_at) == ({"messages": [number]}, made)
    await sessions.save_snapshot(None, always(row(session_id, state={"messages": []})))
    assert await storage.load_snapshot(location) is not None


async def test_a_draft_may_be_changed_in_place(memory: Desk) -> None:
    draft = await memory.sessions.scope("s").save({"n": 1}, keep=False)

    def mutator(current: Any) -> Any:
        return row(state={"n": 0 if current is None else current.state["n"] + 1})

    assert await memory.sessions.save_snapshot(draft.id, mutator) == draft.id
    loaded = present(await memory.sessions.scope("s").load())
    assert (loaded.id, loaded.state, loaded.kept) == (draft.id, {"n": 2}, False)


async def test_other_kinds_are_not_rows(memory: Desk) -> None:
    session_id = memory.sessions.scope("s").session_id
    memory.store.scope(session_id, kind="thread").save(1, id="a")
    assert await memory.sessions.get_snapshot(snapshot_id="a") is None
    assert await memory.latest() is None


async def test_a_state_that_others_gave_a_row_without_one_is_seen(memory: Desk) -> None:
    await memory.put("a")
    assert (await memory.get("a")).state is ABSENT
    await memory.sessions.scope("s").update("a", lambda found: found.with_(state={"n": 1}))
    assert (await memory.get("a")).state == {"n": 1}


async def test_metadata_that_is_not_ours_breaks_no_other_row(memory: Desk) -> None:
    scope = memory.sessions.scope("s")
    await scope.save(1, id="bad", metadata={"genkit": {"updatedAt": 3}})
    await scope.save(2, id="odd", metadata={"genkit": "text", "other": 1})
    await memory.put("good", second=1, parent_id="odd")
    assert (await memory.get("odd")).state == 2
    assert (await memory.get("good")).session_id == "s"
    with pytest.raises(Corrupt, match="snapshot_id=`bad`"):
        await memory.get("bad")
    assert await memory.latest("s", latest="newest") in ("odd", "bad")
