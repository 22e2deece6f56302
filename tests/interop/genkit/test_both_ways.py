"""What one side writes, the other reads: Genkit in JavaScript and we, in one folder."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from limpet.compat.genkit.node_files.store import JsonFileSessionStore
from limpet.compat.genkit.records import SessionSnapshot
from limpet.errors import Conflict
from tests.interop.genkit.peer import GenkitError, Peer, Theirs
from tests.interop.genkit.rows import Ours, Wire, wire

pytestmark = pytest.mark.timeout(300)  # the first test may have to install Genkit

RICH: dict[str, Any] = {
    "text": 'NUL \0 astral 🎉 BOM \ufeff line \u2028 quote " back \\ tab \t del \x7f esc \x1b',
    "numbers": [0, -1, 1.5, 2**53 - 1, 1e300],
    "nested": {"null": None, "empty": [[], {}], "yes": True, "": "no name"},
}


def rows() -> list[Wire]:
    return [
        wire("a1", "chat"),
        wire("a2", "chat", "a1", state={"custom": RICH, "messages": []}),
        wire("a3", "chat", "a2", status="failed", error={"status": "INTERNAL", "message": "no"}),
        wire("b1", "sólo 🎉", extraField={"kept": [1]}),
    ]


def test_they_read_what_we_write(theirs: Theirs, ours: Ours) -> None:
    for row in rows():
        ours.save(row)
    for row in rows():
        assert theirs.get(row["snapshotId"]) == row
    assert [theirs.latest("chat"), theirs.latest("sólo 🎉")] == ["a3", "b1"]
    assert theirs.latest("nobody") is None


def test_we_read_what_they_write(theirs: Theirs, ours: Ours) -> None:
    for row in rows():
        theirs.save(row)
    for row in rows():
        assert ours.get(row["snapshotId"]) == row
    assert [ours.latest("chat"), ours.latest("sólo 🎉")] == ["a3", "b1"]
    assert ours.latest("nobody") is None


def test_both_write_the_same_bytes(peer: Peer, tmp_path: Path) -> None:
    theirs, ours = Theirs(peer, tmp_path / "a"), Ours(JsonFileSessionStore(tmp_path / "b"))
    row = wire("a1", "chat", "a0", state={"custom": {**RICH, "numbers": [0, -1, 1.5]}})
    theirs.save(row)
    ours.save(row)
    name = Path("global") / "a1.json"
    assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "a" / name).read_bytes()
    pointers = [tmp_path / each / "global/.pointers/chat.json" for each in "ab"]
    first, second = (each.read_text().splitlines() for each in pointers)
    assert first[:2] == second[:2]
    assert [len(line) for line in first] == [len(line) for line in second]


def test_each_side_goes_on_from_the_other(theirs: Theirs, ours: Ours) -> None:
    parent = None
    for number in range(1, 7):
        side: Theirs | Ours = ours if number % 2 else theirs
        side.save(wire(f"t{number}", "chat", parent))
        parent = f"t{number}"
        assert (ours.latest("chat"), theirs.latest("chat")) == (parent, parent)


@pytest.mark.parametrize("we_branch", [True, False])
def test_branches_are_seen_alike(
    peer: Peer, folder: Path, theirs: Theirs, ours: Ours, we_branch: bool
) -> None:
    first, second = (ours, theirs) if we_branch else (theirs, ours)
    first.save(wire("r1", "chat"))
    second.save(wire("x2", "chat", "r1"))
    first.save(wire("y3", "chat", "r1"))
    assert (ours.latest("chat"), theirs.latest("chat")) == ("y3", "y3")
    (folder / "global/.pointers/chat.json").unlink()  # so that all are looked at
    assert (ours.latest("chat"), theirs.latest("chat")) == ("y3", "y3")
    strict = Ours(JsonFileSessionStore(folder, reject_branching_sessions=True))
    with pytest.raises(Conflict, match="several branches"):
        strict.latest("chat")
    with pytest.raises(GenkitError, match="branching snapshots"):
        Theirs(peer, folder, rejectBranchingSessions=True).latest("chat")


def test_tenants_are_the_same_folders(theirs: Theirs, ours: Ours, folder: Path) -> None:
    ours.save(wire("a1", "chat"), tenant="alice")
    theirs.save(wire("a1", "chat", status="failed"), tenant="bob")
    for side in (ours, theirs):
        assert side.get("a1", tenant="alice")["status"] == "completed"
        assert side.get("a1", tenant="bob")["status"] == "failed"
        assert side.get("a1") is None
        assert side.latest("chat") is None
        assert side.latest("chat", tenant="alice") == "a1"


def test_a_missing_or_stale_pointer_of_theirs_is_put_right(
    theirs: Theirs, ours: Ours, folder: Path
) -> None:
    pointer = folder / "global/.pointers/chat.json"
    for row in rows():
        theirs.save(row)
    for wrong in (None, "{", '{"currentSnapshotId": "b1"}', '{"currentSnapshotId": "../b1"}'):
        pointer.unlink()
        if wrong is not None:
            pointer.write_text(wrong)
        assert ours.latest("chat") == "a3"
        assert '"currentSnapshotId": "a3"' in pointer.read_text()
        assert theirs.latest("chat") == "a3"


def test_they_see_what_we_change(theirs: Theirs, ours: Ours) -> None:
    ours.save(wire("a1", "chat", status="pending"))
    theirs.ask("watch", snapshotId="a1", name="w")
    assert theirs.ask("seen", name="w", count=1)[0]["status"] == "pending"
    ours.change("a1", lambda row: {**row.to_json(), "status": "aborted"})
    assert theirs.ask("seen", name="w", count=2)[1]["status"] == "aborted"
    theirs.ask("unwatch", name="w")


async def test_we_see_what_they_change(theirs: Theirs, folder: Path) -> None:
    store: JsonFileSessionStore[Any] = JsonFileSessionStore(folder, poll_s=0.02)
    seen: asyncio.Queue[SessionSnapshot[Any]] = asyncio.Queue()
    end = store.on_snapshot_state_change("a1", seen.put_nowait)
    theirs.save(wire("a1", "chat", status="pending"))
    assert (await asyncio.wait_for(seen.get(), 10)).status == "pending"
    theirs.ask("patch", snapshotId="a1", fields={"status": "aborted"})
    assert (await asyncio.wait_for(seen.get(), 10)).status == "aborted"
    end()
