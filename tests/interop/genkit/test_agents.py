"""A real agent of Genkit in JavaScript, whose snapshots are ours as well."""

from pathlib import Path

from limpet import Store
from limpet.compat.genkit import export_sessions, import_sessions
from tests.interop.genkit.peer import Theirs
from tests.interop.genkit.rows import Ours, Wire, wire


def texts(found: Wire) -> list[str]:
    return [each["content"][0]["text"] for each in found["messages"]]


def test_an_agent_goes_on_from_our_turn(
    theirs: Theirs, ours: Ours, store: Store, folder: Path
) -> None:
    first = theirs.ask("converse", sessionId="chat", prompts=["one"])
    import_sessions(store, folder)
    assert ours.latest("chat") == first
    turn = ours.get(first)
    assert texts(turn["state"]) == ["one", "echo: one"]
    said = (
        {"role": "user", "content": [{"text": "two"}]},
        {"role": "model", "content": [{"text": "2"}]},
    )
    state = {**turn["state"], "messages": [*turn["state"]["messages"], *said]}
    ours.save(wire("ours-1", "chat", turn["snapshotId"], state=state))
    export_sessions(store, folder)
    last = theirs.ask("converse", sessionId="chat", prompts=["three"])
    branch = theirs.ask("converse", snapshotId=first, prompts=["other"])
    import_sessions(store, folder)
    told = ["one", "echo: one", "two", "2", "three", "echo: three"]
    assert texts(ours.get(last)["state"]) == told
    assert ours.get(last)["parentId"] == "ours-1"
    assert texts(ours.get(branch)["state"]) == ["one", "echo: one", "other", "echo: other"]
    assert ours.latest("chat") == branch


def test_a_detached_turn_is_the_latest(
    theirs: Theirs, ours: Ours, store: Store, folder: Path
) -> None:
    theirs.ask("converse", sessionId="chat", prompts=["one"])
    task = theirs.ask("detach", sessionId="chat", prompt="two")
    assert task["parentId"] == task["snapshotId"]
    import_sessions(store, folder)
    assert "parentId" not in ours.get(task["snapshotId"])
    assert ours.latest("chat") == task["snapshotId"]
