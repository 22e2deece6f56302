"""A real agent of Genkit in JavaScript, whose snapshots are ours as well."""

from pathlib import Path

import pytest

from limpet.errors import Conflict
from tests.interop.genkit.peer import Theirs
from tests.interop.genkit.rows import Ours, Wire, wire

pytestmark = pytest.mark.timeout(300)  # the first test may have to install Genkit


def texts(found: Wire) -> list[str]:
    return [each["content"][0]["text"] for each in found["messages"]]


def test_an_agent_goes_on_from_a_turn_that_we_saved(theirs: Theirs, ours: Ours) -> None:
    first = theirs.ask("converse", sessionId="chat", prompts=["one"])
    assert ours.latest("chat") == first
    turn = ours.get(first)
    assert texts(turn["state"]) == ["one", "echo: one"]
    said = (
        {"role": "user", "content": [{"text": "two"}]},
        {"role": "model", "content": [{"text": "2"}]},
    )
    state = {**turn["state"], "messages": [*turn["state"]["messages"], *said]}
    ours.save(wire("ours-1", "chat", turn["snapshotId"], state=state))
    last = theirs.ask("converse", sessionId="chat", prompts=["three"])
    assert texts(ours.get(last)["state"]) == [
        "one",
        "echo: one",
        "two",
        "2",
        "three",
        "echo: three",
    ]
    assert ours.get(last)["parentId"] == "ours-1"
    branch = theirs.ask("converse", snapshotId=first, prompts=["other"])
    assert texts(ours.get(branch)["state"]) == ["one", "echo: one", "other", "echo: other"]
    assert ours.latest("chat") == branch


def test_a_detached_turn_is_the_latest_though_it_names_itself_as_its_parent(
    theirs: Theirs, ours: Ours, folder: Path
) -> None:
    theirs.ask("converse", sessionId="chat", prompts=["one"])
    task = theirs.ask("detach", sessionId="chat", prompt="two")
    assert task["parentId"] == task["snapshotId"]
    assert "parentId" not in ours.get(task["snapshotId"])
    (folder / "global/.pointers/chat.json").unlink()  # all are looked at
    assert ours.latest("chat") == task["snapshotId"]


def test_either_side_aborts_and_the_other_keeps_to_it(theirs: Theirs, ours: Ours) -> None:
    for id in ("p1", "p2"):
        ours.save(wire(id, "chat", status="pending"))
    assert theirs.ask("abort", snapshotId="p1") == "pending"
    with pytest.raises(Conflict, match="aborted and stays so"):
        ours.change("p1", lambda row: {**row.to_json(), "status": "completed"})
    ours.change("p2", lambda row: {**row.to_json(), "status": "aborted"})
    assert theirs.ask("abort", snapshotId="p2") == "aborted"
