"""Both sides write at the same time: no file is torn, no save is refused, and what can be lost."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from limpet.compat.genkit.node_files.store import JsonFileSessionStore
from limpet.compat.genkit.records import SessionSnapshot
from tests.interop.genkit.peer import Theirs
from tests.interop.genkit.rows import Ours, Wire, wire
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)  # the first test may have to install Genkit

SAVES = 50
FILL = "x" * 20_000  # so that a file takes more than one write


def counted(row: SessionSnapshot[Any]) -> Wire:
    found = row.to_json()
    return {**found, "state": {**found["state"], "custom": {"n": number(found) + 1}}}


def number(found: Wire) -> int:
    n: int = found["state"]["custom"]["n"]
    return n


def test_different_snapshots_never_meet(theirs: Theirs, ours: Ours) -> None:
    """Exact on both sides, though all stand in one folder and in one session."""
    ours.save(wire("o", "chat", fill=FILL))
    for id in ("n1", "n2"):
        theirs.save(wire(id, "chat", "o"))
    theirs.ask("startStorm", name="storm", ids=["n1", "n2"], fill=FILL)
    for _ in range(SAVES):
        ours.change("o", counted)
        assert ours.get("n1")["createdAt"] == wire("n1", "chat")["createdAt"]
    theirs.ask("watchStorm", name="storm", saves=SAVES)
    saves = theirs.ask("stopStorm", name="storm")["saves"]
    assert number(ours.get("o")) == SAVES
    assert [number(ours.get(id)) for id in ("n1", "n2")] == [saves // 2, saves // 2]


def test_one_snapshot_is_whole_and_no_caller_is_refused(
    theirs: Theirs, ours: Ours, folder: Path
) -> None:
    """Of all that was acknowledged on both sides some may be lost, and nothing counts twice."""
    ours.save(wire("both", "chat", fill=FILL))
    theirs.ask("startStorm", name="storm", ids=["both"], fill=FILL)
    for _ in range(SAVES):
        assert ours.change("both", counted) == "both"
        assert ours.get("both")["fill"] == FILL
    theirs.ask("watchStorm", name="storm", saves=SAVES)
    storm = theirs.ask("stopStorm", name="storm")
    assert storm["reads"] == storm["saves"] >= SAVES
    found = ours.get("both")
    assert found == theirs.get("both")
    assert 1 <= number(found) <= SAVES + storm["saves"]
    assert [each.name for each in (folder / "global").iterdir() if each.suffix != ".json"] == [
        ".pointers"
    ]


def test_what_node_makes_of_an_older_one_takes_the_place_of_ours(
    theirs: Theirs, ours: Ours, tmp_path: Path
) -> None:
    """The documented loss: Node has no lock, and does not look again before it writes."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    ours.save(wire("both", "chat"))
    parameters = {"snapshotId": "both", "begun": str(begun), "go": str(go)}
    theirs.peer.send("incrementSlowly", theirs.spec, parameters)
    until(begun.exists)  # Node has read it
    for _ in range(3):
        ours.change("both", counted)
    assert number(ours.get("both")) == 3
    go.touch()
    assert theirs.peer.hear() == "both"
    assert number(ours.get("both")) == 1


async def test_what_node_writes_while_we_decide_is_decided_on_again(
    theirs: Theirs, folder: Path
) -> None:
    store: JsonFileSessionStore[Any] = JsonFileSessionStore(folder)
    theirs.save(wire("both", "chat"))
    seen: list[int] = []

    async def slowly(row: SessionSnapshot[Any] | None) -> Wire:
        assert row is not None
        seen.append(number(row.to_json()))
        if len(seen) <= 3:
            await asyncio.to_thread(theirs.ask, "increment", snapshotId="both", times=1)
        return counted(row)

    assert await store.save_snapshot("both", slowly) == "both"
    assert seen == [0, 1, 2, 3]
    assert number(theirs.get("both")) == 4
