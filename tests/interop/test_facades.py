"""`SnapshotStorage` on both sides: what one saves through it, the other loads through it."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from limpet.compat.strands import (
    FileStorage,
    Snapshot,
    SnapshotLocation,
    SnapshotManifest,
    SnapshotStorage,
)
from limpet.model import JSON
from tests.interop.ground import LAYOUTS, Ground
from tests.interop.places import Below, Place
from tests.interop.sdk import Sdk, snapshot, uuid7

T = TypeVar("T")

LOCATION = SnapshotLocation("chat-1", "agent", "planner")
TOLD: JSON = {
    **snapshot({"messages": [{"role": "user", "content": [{"text": "é😀\u2028"}]}], "n": 1.5}),
    "appData": {"tenant": "acme", "nested": {"a": [1, None]}},
    "later": {"field": True},
}


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        return tmp_path / "store"
    return Below(request.getfixturevalue("seaweedfs"), f"team/{uuid4().hex}")


@pytest.fixture
def ours(ground: Ground) -> SnapshotStorage:
    return ground.storage


def test_what_we_save_they_load(ground: Ground, ours: SnapshotStorage) -> None:
    theirs = ground.theirs(LOCATION.session_id, LOCATION.scope_id)
    run(ours.save_snapshot(LOCATION, uuid7(1), False, TOLD))
    assert theirs.load() is None
    assert theirs.load(uuid7(1)) == TOLD
    run(ours.save_snapshot(LOCATION, "latest", True, TOLD))
    assert theirs.load() == TOLD
    other = {**TOLD, "createdAt": "2026-03-01T13:00:00.001Z"}
    run(ours.save_snapshot(LOCATION, uuid7(1), False, other))  # replaced, its time too
    assert theirs.load(uuid7(1)) == other
    run(ours.save_manifest(LOCATION, SnapshotManifest("1.0", "2026-01-01T00:00:00.000Z")))
    assert theirs.manifest() == {"schemaVersion": "1.0", "updatedAt": "2026-01-01T00:00:00.000Z"}


def test_what_they_save_we_load(ground: Ground, ours: SnapshotStorage) -> None:
    theirs = ground.theirs(LOCATION.session_id, LOCATION.scope_id)
    theirs.put(None, TOLD)
    assert run(ours.load_snapshot(LOCATION)) == Snapshot.from_json(TOLD)
    assert run(ours.list_snapshot_ids(LOCATION)) == []
    theirs.put(uuid7(1), TOLD)
    found = run(ours.load_snapshot(LOCATION, uuid7(1)))
    assert found is not None
    assert found.to_json() == TOLD
    theirs.save_manifest({"schemaVersion": "1.0", "updatedAt": "then", "more": 1})
    assert run(ours.load_manifest(LOCATION)).extra == {"more": 1}


def test_both_list_the_same(ground: Ground, ours: SnapshotStorage) -> None:
    theirs = ground.theirs(LOCATION.session_id, LOCATION.scope_id)
    for number in (3, 1, 4, 2, 5):
        if number % 2:
            theirs.save(uuid7(number), {"n": number})
        else:
            run(ours.save_snapshot(LOCATION, uuid7(number), False, TOLD))
    for limit, after in ((None, None), (2, None), (2, uuid7(2)), (None, uuid7(5)), (9, uuid7(0))):
        listed = run(ours.list_snapshot_ids(LOCATION, limit, after))
        assert listed == theirs.ids(limit=limit, after=after)
    assert run(ours.list_snapshots(LOCATION, 2)).next_token == uuid7(2)


def test_either_deletes_what_both_saved(ground: Ground, ours: SnapshotStorage) -> None:
    theirs = ground.theirs(LOCATION.session_id, LOCATION.scope_id)
    for delete in (theirs.delete_session, lambda: run(ours.delete_session(LOCATION.session_id))):
        theirs.save(uuid7(1), {})
        run(ours.save_snapshot(LOCATION, uuid7(2), False, TOLD))
        run(ours.save_snapshot(LOCATION, "latest", True, TOLD))
        theirs.save_manifest({"schemaVersion": "1.0", "updatedAt": "then"})
        delete()
        assert run(ours.load_snapshot(LOCATION)) is None
        assert run(ours.list_snapshot_ids(LOCATION)) == theirs.ids() == []
        assert theirs.load() is None
        assert ground.documents(LOCATION.session_id) == []


def test_only_the_documented_keys_are_written(ground: Ground, ours: SnapshotStorage) -> None:
    run(ours.save_snapshot(LOCATION, "1", False, TOLD))
    run(ours.save_snapshot(LOCATION, "latest", True, TOLD))
    run(ours.save_manifest(LOCATION, SnapshotManifest("1.0", "then")))
    below = f"{ground.layout.root}chat-1/scopes/agent/planner/snapshots"
    assert ground.files.list_keys() == [
        f"{below}/immutable_history/snapshot_1.json",
        f"{below}/manifest.json",
        f"{below}/snapshot_latest.json",
    ]


def test_a_conversation_goes_back_and_forth(ground: Ground, ours: SnapshotStorage) -> None:
    """A TypeScript agent speaks, a Python program edits what it knows, the agent goes on."""
    theirs = ground.theirs(LOCATION.session_id, LOCATION.scope_id)
    theirs.converse("hello", app_state={"mood": "calm"})
    found = run(ours.load_snapshot(LOCATION))
    assert found is not None
    data: Any = found.data
    data["state"]["mood"] = "bold"
    run(ours.save_snapshot(LOCATION, "latest", True, found))
    known: Any = theirs.converse("and again")
    assert "bold" in str(known)
    again = run(ours.load_snapshot(LOCATION))
    assert again is not None
    later: Any = again.data
    assert len(later["messages"]) == 2 * len(data["messages"])


@pytest.mark.parametrize("root", ["./rel", "a/../rel"])
def test_a_relative_folder(
    root: str, sdk: Sdk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's own storage fails on these; ours writes where the SDK finds it by its real path."""
    monkeypatch.chdir(tmp_path)

    async def save() -> None:
        async with FileStorage(root) as ours:
            await ours.save_snapshot(LOCATION, uuid7(1), False, TOLD)

    run(save())
    ground = Ground(sdk, LAYOUTS["classic"], tmp_path / "rel")
    theirs = ground.theirs(LOCATION.session_id, LOCATION.scope_id)
    assert theirs.ids() == [uuid7(1)]
    assert theirs.load(uuid7(1)) == TOLD
