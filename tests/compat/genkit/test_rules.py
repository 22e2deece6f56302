"""What may become of a row, which one is the latest, and what a record is."""

import copy
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from limpet import Conflict, InvalidInput
from limpet.compat.genkit import ABSENT, SessionSnapshot, rules
from tests.compat.genkit.kit import Desk, Row, always, at, fixture, row

NOW = 1_767_225_600_000_000  # the beginning of 2026

# The latest: 18 sessions, and what the real InMemorySessionStore says.

REFUSED = "refused"
OURS: dict[str, dict[str, Any]] = {
    # Of two made at one moment theirs is the first inserted in memory and the last written among
    # files. Ours is the greater id everywhere, as in Go and Python.
    "tie": {"default": "y"},
    # A row that is its own parent (what they make of every detached run) has no leaf there, or is
    # passed over, and with it the result of the run. We take its parent as unknown: it is a leaf.
    "self_parent": {"default": "a", "reject": "a"},
    "self_parent_tail": {"default": "b", "reject": REFUSED},
    # They compare times as text; 05:00+05:00 is before 00:30Z.
    "offset_timestamps": {"default": "y"},
}


def theirs(answer: dict[str, Any]) -> str | None:
    return REFUSED if "error" in answer else answer["value"]


@pytest.mark.parametrize("mode", ["default", "reject"])
async def test_the_latest_of_a_session(memory: Desk, mode: str) -> None:
    for vector in fixture("leaf_vectors.json"):
        try:
            await check_latest(Desk(memory.store, memory.place), vector, mode)
        except Exception as error:
            error.add_note(vector["name"])
            raise


async def check_latest(memory: Desk, vector: dict[str, Any], mode: str) -> None:
    expected = OURS.get(vector["name"], {}).get(mode, theirs(vector[mode]))
    rows = [SessionSnapshot[Any].from_json(each) for each in vector["snapshots"]]
    rejects = mode == "reject"

    def decide() -> str | None:
        found = rules.latest(rows, vector["sessionId"], reject_branching=rejects)
        return None if found is None else found.snapshot_id

    async def ask() -> str | None:
        return await memory.latest(vector["sessionId"], reject_branching_sessions=rejects)

    for each in vector["snapshots"]:
        await memory.sessions.save_snapshot(each["snapshotId"], always(each))
    if expected == REFUSED:
        with pytest.raises(Conflict) as caught:
            decide()
        with pytest.raises(Conflict, match="|".join(["several branches", "form a circle"])):
            await ask()
        assert "snapshot_id" in str(caught.value)
    else:
        assert decide() == await ask() == expected


# What may become of a row.

ALL = ["pending", "aborting", "completed", "failed", "aborted"]
GOES_ON = (
    {("pending", after) for after in ALL}
    | {("aborting", after) for after in ALL[1:]}
    | {(each, each) for each in ALL}
)


def test_ended_rows_keep_their_status() -> None:
    for before, after in product(ALL, ALL):
        stored = row(snapshot_id="a", status=before)
        if (before, after) in GOES_ON:
            assert rules.next_row("a", stored, row(status=after), NOW).status == after
        else:
            with pytest.raises(Conflict, match=f"the snapshot is {before} and stays so"):
                rules.next_row("a", stored, row(status=after), NOW)


def test_what_is_no_status_is_not_stored() -> None:
    for status in ("expired", "done", "x" * 300):
        for before in (None, row(snapshot_id="a", status="pending")):
            with pytest.raises(InvalidInput, match="status cannot be stored"):
                rules.next_row("a", before, row(status=status), NOW)
    others = row(snapshot_id="a", status="running")  # saved by others, and not ours to judge
    assert rules.next_row("a", others, row(status="running"), NOW).status == "running"


def test_session_and_parent_stay() -> None:
    stored = row(snapshot_id="a", parent_id="p", status="pending")
    for after in (row("another"), row(state={"sessionId": "s"}, parent_id="q")):
        with pytest.raises(
            InvalidInput, match=r"cannot move to another session|parent of a snapshot cannot change"
        ):
            rules.next_row("a", stored, after, NOW)
    with pytest.raises(InvalidInput, match="parent of a snapshot cannot change"):
        rules.next_row("a", row(snapshot_id="a", status="pending"), row(parent_id="q"), NOW)
    kept = rules.next_row("a", stored, SessionSnapshot(created_at=at(9), state=1), NOW)
    assert kept == replace(stored, state=1)


def test_a_row_is_never_its_own_parent() -> None:
    assert rules.next_row("a", None, row(parent_id="a"), NOW).parent_id is None
    for parent in ("a", "", None):
        stored = row(snapshot_id="a", parent_id="p", status="pending")
        after = row(parent_id=parent, status="completed")
        assert rules.next_row("a", stored, after, NOW).parent_id == "p"
    foreign = row(snapshot_id="a", parent_id="a", status="pending")
    assert rules.as_read(foreign, NOW).parent_id is None
    assert rules.next_row("a", foreign, row(parent_id="a"), NOW).parent_id is None


def test_a_new_row_is_completed_and_made_now() -> None:
    new = rules.next_row("a", None, SessionSnapshot(state={"sessionId": "s"}), NOW)
    assert (new.session_id, new.status, new.created_at) == ("s", "completed", at(0))
    with pytest.raises(InvalidInput, match="ISO 8601"):
        rules.next_row("a", None, SessionSnapshot(session_id="s", created_at="now"), NOW)


def test_a_run_without_a_heartbeat_has_expired() -> None:
    for status, heard, expired in (
        ("pending", at(0), True),
        ("pending", "2026-01-01T05:00:00+05:00", True),
        ("pending", at(1), False),
        ("pending", None, False),
        ("pending", "soon", False),
        ("aborting", at(0), False),
        ("completed", at(0), False),
        (None, at(0), False),
    ):
        found = row(status=status, heartbeat_at=heard)
        later = NOW + 60_000_001
        assert rules.expired(found, later) == expired, (status, heard)
        assert rules.as_read(found, later).status == ("expired" if expired else status)
        assert not rules.expired(found, later - 2)


# Records.


def test_a_record_is_sent_as_it_was() -> None:
    wire = {
        "snapshotId": "a",
        "state": None,
        "error": {"message": "x"},
        "newer": [1],
        "older": None,
    }
    record = SessionSnapshot[Any].from_json(wire)
    assert record.to_json() == wire
    assert record.extra == {"newer": [1], "older": None}
    assert SessionSnapshot[Any].from_json({"parentId": None}).to_json() == {}
    assert SessionSnapshot().state is ABSENT
    assert copy.deepcopy(record) == record


def test_a_record_takes_times_as_such() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    given: Any = {"created_at": moment, "updated_at": moment, "heartbeat_at": moment}
    record: Row = SessionSnapshot(**given)
    assert {record.created_at, record.updated_at, record.heartbeat_at} == {at(0)}


def test_what_is_no_record_is_refused() -> None:
    wires: list[Any] = [{"snapshotId": 1}, {"status": []}, {"error": "text"}, {"createdAt": 5}]
    for wire in (*wires, [], 3, "text"):
        with pytest.raises(InvalidInput):
            SessionSnapshot[Any].of(wire)
