"""Agents of Genkit that keep their sessions on a server of ours."""

import asyncio
from functools import partial
from typing import Any

import pytest

from limpet import Store
from limpet.compat.genkit import SessionSnapshot, SessionStore
from limpet.errors import Conflict, InvalidInput
from tests.interop.genkit.peer import GenkitError, Peer, Theirs
from tests.interop.genkit.rows import Ours, wire
from tests.interop.genkit.test_agents import texts
from tests.interop.genkit.test_both_ways import rows
from tests.js.serving import Processes, Served

pytestmark = [
    pytest.mark.slow,
]  # the first test may have to install Genkit


@pytest.fixture
def ours(store: Store) -> Ours:
    return Ours(SessionStore(store))


@pytest.fixture
def theirs(peer: Peer, shared: Served) -> Theirs:
    return Theirs(peer, shared.url)


def test_a_killed_agent_goes_on(peers: Processes[Peer], shared: Served, ours: Ours) -> None:
    theirs = Theirs(peers.start(), shared.url)
    first = theirs.ask("converse", sessionId="killed", prompts=["one", "two"])
    assert ours.latest("killed") == first
    ours.save(wire("k0", "other"))
    theirs.ask("startStorm", name="s", ids=["k0"], fill="x" * 1000)
    theirs.ask("watchStorm", name="s", saves=5)
    theirs.peer.kill()
    found = ours.get("k0")
    assert found["state"]["custom"]["n"] >= 4  # the last one was under way
    assert found["by"] == "node"

    theirs = Theirs(peers.start(), shared.url)
    last = theirs.ask("converse", sessionId="killed", prompts=["three"])
    told = ["one", "echo: one", "two", "echo: two", "three", "echo: three"]
    assert texts(ours.get(last)["state"]) == told
    assert ours.get(last)["parentId"] == first
    branch = theirs.ask("converse", snapshotId=first, prompts=["other"])
    assert texts(ours.get(branch)["state"]) == [*told[:4], "other", "echo: other"]
    assert ours.latest("killed") == branch


def test_each_side_reads_what_the_other_wrote(theirs: Theirs, ours: Ours, store: Store) -> None:
    sides: list[tuple[Ours | Theirs, Ours | Theirs]] = [(theirs, ours), (ours, theirs)]
    for number, (writer, reader) in enumerate(sides):
        tenant = f"tenant {number}/%"
        for row in rows():
            writer.save(row, tenant=tenant)
        for row in rows():
            assert reader.get(row["snapshotId"], tenant=tenant) == row
            assert reader.get(row["snapshotId"]) is None
        assert [reader.latest(each, tenant=tenant) for each in ("chat", "sólo 🎉")] == ["a3", "b1"]
        assert reader.latest("chat") is None
        sessions = list(store.sessions(prefix=f"tenant {number}%2F%25/"))
        assert sessions == [f"tenant {number}%2F%25/{each}" for each in ("chat", "sólo 🎉")]
    bare = {"snapshotId": "c1", "sessionId": "bare", "createdAt": "2026-01-01T00:00:00.000Z"}
    theirs.save(bare)
    assert theirs.get("c1") == ours.get("c1") == {**bare, "status": "completed"}


def test_a_native_state_is_a_row_with_defaults(theirs: Theirs, ours: Ours, store: Store) -> None:
    store.scope("native").save({"custom": 1}, id="n1")
    store.scope("native").save({"custom": 2}, id="n2", keep=False)
    assert theirs.get("n1") == ours.get("n1")
    assert theirs.latest("native") == ours.latest("native") == "n2"
    store.scope("native", "elsewhere").save({"custom": 3}, id="n3")
    assert theirs.get("n3") == ours.get("n3")


def patched(fields: dict[str, str], row: SessionSnapshot[Any]) -> dict[str, Any]:
    return {**row.to_json(), **fields}


def test_the_same_rules_hold_on_both_sides(theirs: Theirs, ours: Ours) -> None:
    ours.save(wire("r1", "rules", status="pending"))
    theirs.ask("patch", snapshotId="r1", fields={"parentId": "r1", "status": "completed"})
    assert "parentId" not in ours.get("r1")
    refused = [
        ("Conflict", {"status": "pending"}),
        ("InvalidInput", {"sessionId": "another"}),
        ("InvalidInput", {"parentId": "r0"}),
        ("InvalidInput", {"status": "odd"}),
    ]
    for name, fields in refused:
        with pytest.raises(GenkitError) as refusal:
            theirs.ask("patch", snapshotId="r1", fields=fields)
        assert refusal.value.name == name
        with pytest.raises((Conflict, InvalidInput)) as ours_too:
            ours.change("r1", partial(patched, fields))
        assert type(ours_too.value).__name__ == name
    with pytest.raises(GenkitError, match="a snapshot must have a session"):
        theirs.ask("save", snapshotId="r2", snapshot={"createdAt": "2026-01-01T00:00:00Z"})
    with pytest.raises(GenkitError, match="the snapshot exists"):
        theirs.ask("save", snapshot=wire("r1", "rules"))
    for both_or_none in ({}, {"snapshotId": "a", "sessionId": "b"}):
        with pytest.raises(GenkitError, match="give either"):
            theirs.ask("get", **both_or_none)
    kept = ours.get("r1")["createdAt"]
    theirs.ask("patch", snapshotId="r1", fields={"createdAt": "2020-01-01T00:00:00Z"})
    assert theirs.get("r1")["createdAt"] == kept


def test_the_latest_is_chosen_alike(peer: Peer, shared: Served, store: Store) -> None:
    made = "2026-01-01T00:00:0{}Z"
    chosen: list[dict[str, Any]] = [
        {"policy": {}, "latest": "l3"},
        {"policy": {"latest": "newest"}, "latest": "l1"},
    ]
    ours = Ours(SessionStore(store))
    ours.save({**wire("l1", "leaves"), "createdAt": made.format(9)})
    ours.save({**wire("l2", "leaves", "l1"), "createdAt": "2026-01-01T01:00:05+01:00"})
    ours.save({**wire("l3", "leaves", "l1"), "createdAt": made.format("5.000001")})
    for each in chosen:
        assert Theirs(peer, shared.url, **each["policy"]).latest("leaves") == each["latest"]
        assert Ours(SessionStore(store, **each["policy"])).latest("leaves") == each["latest"]
    with pytest.raises(GenkitError, match="branching"):
        Theirs(peer, shared.url, rejectBranchingSessions=True).latest("leaves")


def test_a_snapshot_expires_as_it_is_read(theirs: Theirs, ours: Ours) -> None:
    ours.save(wire("e1", "expiry", status="pending", heartbeatAt="2026-01-01T00:00:00.000Z"))
    assert theirs.get("e1")["status"] == ours.get("e1")["status"] == "expired"


def test_concurrent_changes_of_both_sides_all_count(theirs: Theirs, store: Store) -> None:
    sessions = SessionStore[Any](store)
    Ours(sessions).save(wire("i0", "increments"))

    async def increment() -> None:
        def more(row: Any) -> Any:
            return {**row.to_json(), "state": {"custom": {"n": row.state["custom"]["n"] + 1}}}

        for _ in range(10):
            await sessions.save_snapshot("i0", more)

    spec = theirs.spec
    theirs.peer.send("increment", spec, {"snapshotId": "i0", "times": 10})
    asyncio.run(increment())
    theirs.peer.hear()
    assert theirs.get("i0")["state"]["custom"] == {"n": 20}


def test_either_side_aborts_and_the_other_is_told(theirs: Theirs, ours: Ours) -> None:
    for name in ("w0", "w1"):
        theirs.ask("watch", snapshotId=name, name=name)
    ours.save(wire("w0", "watched", status="pending"))
    assert theirs.ask("abort", snapshotId="w0") == "pending"
    ours.save(wire("w1", "watched", status="pending"))
    assert [each["status"] for each in theirs.ask("seen", name="w1", count=1)] == ["pending"]
    ours.change("w1", lambda row: {**row.to_json(), "status": "aborted"})
    assert [each["status"] for each in theirs.ask("seen", name="w1", count=2)][1:] == ["aborted"]
    assert theirs.ask("seen", name="w0", count=1)[-1]["snapshotId"] == "w0"
    for name in ("w0", "w1"):
        theirs.ask("unwatch", name=name)
    assert theirs.ask("abort", snapshotId="w1") == "aborted"
    with pytest.raises(Conflict, match="aborted and stays so"):
        ours.change("w0", lambda row: {**row.to_json(), "status": "completed"})


def test_a_detached_turn_is_the_latest(theirs: Theirs, ours: Ours) -> None:
    theirs.ask("converse", sessionId="detached", prompts=["one"])
    task = theirs.ask("detach", sessionId="detached", prompt="two")
    assert ours.latest("detached") == task["snapshotId"]
    assert texts(ours.get(task["snapshotId"])["state"])[-1] == "echo: two"
