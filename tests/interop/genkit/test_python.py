"""Genkit for Python, whose store has no tenants: its folder is `global` of an export."""

from functools import partial
from pathlib import Path

import pytest
from genkit.exp.agent import FileSessionStore, SessionSnapshot

from limpet import Store
from limpet.compat.genkit import export_sessions, import_sessions
from tests.interop.genkit.rows import Ours, Wire, run, wire


@pytest.fixture
def theirs(folder: Path) -> FileSessionStore:
    return FileSessionStore(str(folder / "global"))


def said(text: str) -> Wire:
    return {"messages": [{"role": "user", "content": [{"text": text}]}], "custom": {"n": [1, None]}}


def told(row: SessionSnapshot, current: SessionSnapshot | None) -> SessionSnapshot:
    return row


def test_they_read_what_we_export(
    theirs: FileSessionStore, ours: Ours, store: Store, folder: Path
) -> None:
    ours.save(wire("a1", "chat", state=said("one")))
    ours.save(wire("a2", "chat", "a1", state=said("two 🎉")))
    export_sessions(store, folder)
    assert run(theirs.get_snapshot(snapshot_id="a1")).created_at == wire("a1", "chat")["createdAt"]
    latest = run(theirs.get_snapshot(session_id="chat"))
    assert (latest.snapshot_id, latest.parent_id) == ("a2", "a1")
    assert latest.state.messages[0].content[0].text == "two 🎉"
    assert latest.state.custom == {"n": [1, None]}


def test_we_import_what_they_write(
    theirs: FileSessionStore, ours: Ours, store: Store, folder: Path
) -> None:
    for row in (wire("a1", "chat", state=said("one")), wire("a2", "chat", "a1")):
        parsed = SessionSnapshot.model_validate(row)
        assert run(theirs.save_snapshot(row["snapshotId"], partial(told, parsed)))
    for where, count in ((folder, 2), (folder / "global", 0)):  # it is the same
        assert import_sessions(store, where).count == count
    assert ours.latest("chat") == "a2"
    found = ours.get("a1")
    assert found["state"]["messages"] == said("one")["messages"]
    assert found["createdAt"] == wire("a1", "chat")["createdAt"]
