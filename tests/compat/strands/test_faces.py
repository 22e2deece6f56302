"""What is saved through the facade is seen natively, and the other way round, in both faces."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import InvalidInput, Store
from limpet.compat.strands import (
    FileStorage,
    Snapshot,
    SnapshotLocation,
    SnapshotManifest,
    StoreStorage,
)
from tests.compat.strands.kit import (
    SLOW,
    Grounds,
    make_location,
    make_snapshot,
    store_of,
    uuid7,
)
from tests.present import present


# Behind the facade both faces are one, so the other one is shown on one engine only.
@pytest.fixture(params=["memory", "sqlite", "sqlite-async", *SLOW])
def storage(request: pytest.FixtureRequest, grounds: Grounds) -> StoreStorage:
    """A facade over either face of a store."""
    engine, _, face = request.param.partition("-")
    store = store_of(grounds[engine].storage)
    return StoreStorage(store.aio if face == "async" else store.sync)


@pytest.fixture
def store(storage: StoreStorage) -> Store:
    """The store itself, without the facade."""
    return storage._store.sync


async def test_the_latest_is_a_head_that_is_not_kept(
    storage: StoreStorage, store: Store, location: SnapshotLocation
) -> None:
    snapshot = make_snapshot(7, extra={"stash": 1})
    await storage.save_snapshot(location, "latest", True, snapshot)
    found = present(store.scope(location.session_id, location.scope_id, location.scope).load())
    assert found.state == snapshot.data
    assert not found.kept
    assert found.created_at == datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC)
    envelope = snapshot.to_json()
    del envelope["data"]
    assert found.metadata == {"strands": envelope}


async def test_the_manifest_is_a_note(
    storage: StoreStorage, store: Store, location: SnapshotLocation
) -> None:
    await storage.save_manifest(location, SnapshotManifest("1.0", "then", {"x": 1}))
    scope = store.scope(location.session_id, location.scope_id, location.scope)
    note = present(scope.note("manifest"))
    assert note.value == {"schemaVersion": "1.0", "updatedAt": "then", "x": 1}
    scope.set_note("manifest", {"schemaVersion": "2.0"})
    found = await storage.load_manifest(location)
    assert found.schema_version == "2.0"
    assert datetime.fromisoformat(found.updated_at).tzinfo is not None


async def test_a_native_save_is_the_latest_and_in_history(
    storage: StoreStorage, store: Store, location: SnapshotLocation
) -> None:
    """The fields that it lacks take their defaults."""
    scope = store.scope(location.session_id, location.scope_id, location.scope)
    state: Any = {"messages": [{"role": "user"}]}
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    info = scope.save(state, metadata={"tokens": 5}, created_at=moment)
    expected = Snapshot("agent", "1.0", "2026-01-02T03:04:05.678Z", state, {})
    assert await storage.load_snapshot(location) == expected
    assert await storage.load_snapshot(location, info.id) == expected
    assert await storage.list_snapshot_ids(location) == [info.id]
    await storage.save_snapshot(location, "latest", True, make_snapshot())
    assert await storage.load_snapshot(location) == make_snapshot()
    assert await storage.load_snapshot(location, info.id) == expected


async def test_a_native_draft_is_the_latest_and_not_in_history(
    storage: StoreStorage, store: Store, location: SnapshotLocation
) -> None:
    """Though it has an id, which the facade would accept."""
    scope = store.scope(location.session_id, location.scope_id, location.scope)
    info = scope.save({"n": 1}, keep=False, id="draft")
    found = present(await storage.load_snapshot(location))
    assert found.data == {"n": 1}
    assert await storage.load_snapshot(location, info.id) is None
    assert await storage.list_snapshot_ids(location) == []


async def test_native_ids_that_cannot_be_loaded_are_not_listed(
    storage: StoreStorage, store: Store, location: SnapshotLocation
) -> None:
    """And they do not push others out of a page."""
    scope = store.scope(location.session_id, location.scope_id, location.scope)
    for id in ("0/first", "00.x", "0Up", uuid7(1), "0190b/é", uuid7(2), "Z"):
        scope.save({"id": id}, id=id)
    assert await storage.list_snapshot_ids(location) == [uuid7(1), uuid7(2)]
    assert await storage.list_snapshot_ids(location, limit=1) == [uuid7(1)]
    page = await storage.list_snapshots(location, limit=1)
    assert page.next_token == uuid7(1)
    page = await storage.list_snapshots(location, limit=1, start_after=page.next_token)
    assert page.to_json() == {"snapshotIds": [uuid7(2)]}


@pytest.mark.parametrize("given", [None, "memory:", object()])
def test_a_storage_needs_a_store(given: object) -> None:
    with pytest.raises(InvalidInput, match="store"):
        StoreStorage(given)  # type: ignore[arg-type]


async def test_a_store_that_first_use_opens(tmp_path: Path, location: SnapshotLocation) -> None:
    storage = StoreStorage(limpet.open_async(f"sqlite:///{tmp_path}/agents.db"))
    await storage.save_snapshot(location, "latest", True, make_snapshot())
    assert await storage.load_snapshot(location) == make_snapshot()
    await storage._store.close()


async def test_a_storage_that_is_closed(tmp_path: Path) -> None:
    """Closing may be repeated; what comes after says so, as with every store."""
    storage = FileStorage(tmp_path)
    await storage.close()
    await storage.close()
    with pytest.raises(limpet.LimpetError, match="closed"):
        await storage.load_snapshot(make_location())
