"""What the SDK's own tests ask of `FileStorage`, by their number in its suite."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet import Corrupt, LimpetError, Unavailable
from limpet.compat.strands import FileStorage, SessionError, SnapshotLocation, SnapshotManifest
from tests.compat.strands.kit import (
    close,
    documents,
    locked,
    make_location,
    make_snapshot,
    uuid7,
)

MANIFEST = SnapshotManifest("1.0", "2026-01-01T00:00:00.000Z")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "base"


@pytest.fixture
def storage(base: Path) -> Iterator[FileStorage]:
    storage = FileStorage(base)
    yield storage
    close(storage)


@pytest.fixture
def snapshots(base: Path, location: SnapshotLocation) -> Path:
    """The folder of the location."""
    return base / documents(location)


def wire(path: Path) -> object:
    """Return a document that is written as the SDK writes it."""
    found: object = json.loads(path.read_bytes())
    assert path.read_text() == json.dumps(found, indent=2, ensure_ascii=False)
    return found


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


# saveSnapshot


async def test_01_a_save_goes_to_a_file_in_history(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    await storage.save_snapshot(location, uuid7(1), False, make_snapshot())
    (path,) = (each for each in snapshots.rglob("*") if each.is_file())
    assert path == snapshots / "immutable_history" / f"snapshot_{uuid7(1)}.json"
    assert wire(path) == make_snapshot().to_json()


async def test_02_is_latest_goes_to_snapshot_latest_json(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    await storage.save_snapshot(location, uuid7(1), True, make_snapshot())
    (path,) = (each for each in snapshots.rglob("*") if each.is_file())
    assert path == snapshots / "snapshot_latest.json"
    assert wire(path) == make_snapshot().to_json()


async def test_03_folders_are_created_recursively(
    tmp_path: Path, location: SnapshotLocation
) -> None:
    async with FileStorage(tmp_path / "a" / "b" / "c") as storage:
        assert not (tmp_path / "a").exists()  # by the first save, and not before
        await storage.save_snapshot(location, "x", True, make_snapshot())
    assert (tmp_path / "a" / "b" / "c" / documents(location) / "snapshot_latest.json").is_file()


@pytest.mark.parametrize("is_latest", [True, False])
async def test_04_a_write_that_fails_is_a_session_error(
    storage: FileStorage, base: Path, location: SnapshotLocation, is_latest: bool
) -> None:
    put(base / location.session_id, b"a file where a folder should be")
    with pytest.raises(SessionError) as caught:
        await storage.save_snapshot(location, "x", is_latest, make_snapshot())
    assert isinstance(caught.value, LimpetError)
    assert isinstance(caught.value.__cause__, Unavailable)


async def test_05_the_path_of_multi_agent(
    storage: FileStorage, base: Path, location: SnapshotLocation
) -> None:
    place = make_location(location.session_id, scope="multiAgent", scope_id="graph-1")
    await storage.save_snapshot(place, "x", True, make_snapshot())
    folder = base / location.session_id / "scopes" / "multiAgent" / "graph-1" / "snapshots"
    assert (folder / "snapshot_latest.json").is_file()


# loadSnapshot


async def test_06_the_latest_is_loaded_without_an_id(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    put(snapshots / "snapshot_latest.json", json.dumps(make_snapshot(1).to_json()).encode())
    assert await storage.load_snapshot(location) == make_snapshot(1)


async def test_07_a_snapshot_is_loaded_by_its_id(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    path = snapshots / "immutable_history" / f"snapshot_{uuid7(1)}.json"
    put(path, json.dumps(make_snapshot(1).to_json(), indent=2).encode())
    assert await storage.load_snapshot(location, uuid7(1)) == make_snapshot(1)


async def test_08_what_is_missing_is_none(storage: FileStorage, location: SnapshotLocation) -> None:
    assert await storage.load_snapshot(location) is None
    assert await storage.load_snapshot(location, uuid7(1)) is None


@pytest.mark.parametrize("data", [b"{not json", b"", b'{"scope":', b"\xef\xbb\xbf", b"\xff"])
async def test_09_invalid_json_is_a_session_error(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation, data: bytes
) -> None:
    put(snapshots / "snapshot_latest.json", data)
    put(snapshots / "immutable_history" / "snapshot_x.json", data)
    for id in (None, "x"):
        with pytest.raises(SessionError) as caught:
            await storage.load_snapshot(location, id)
        assert isinstance(caught.value.__cause__, Corrupt)


async def test_10_a_read_that_fails_is_a_session_error(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    await storage.save_snapshot(location, "x", True, make_snapshot())
    with locked(snapshots):
        for id in (None, "x"):
            with pytest.raises(SessionError) as caught:
                await storage.load_snapshot(location, id)
            assert isinstance(caught.value.__cause__, Unavailable)


async def test_10_a_folder_in_the_place_of_a_file_is_none(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    """There a read fails with EISDIR. Here only files are documents; a write says what is wrong."""
    (snapshots / "snapshot_latest.json").mkdir(parents=True)
    assert await storage.load_snapshot(location) is None
    with pytest.raises(SessionError) as caught:
        await storage.save_snapshot(location, "x", True, make_snapshot())
    assert isinstance(caught.value.__cause__, Unavailable)


# listSnapshotIds


async def test_11_ids_are_sorted_whatever_the_order_of_saves(
    storage: FileStorage, location: SnapshotLocation
) -> None:
    for number in (3, 1, 2):
        await storage.save_snapshot(location, uuid7(number), False, make_snapshot())
    assert await storage.list_snapshot_ids(location) == [uuid7(1), uuid7(2), uuid7(3)]


async def test_12_other_files_are_ignored(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    await storage.save_snapshot(location, uuid7(1), False, make_snapshot())
    put(snapshots / "immutable_history" / "other-file.txt", b"other")
    assert await storage.list_snapshot_ids(location) == [uuid7(1)]


async def test_13_start_after_is_exclusive(
    storage: FileStorage, location: SnapshotLocation
) -> None:
    for number in range(3):
        await storage.save_snapshot(location, uuid7(number), False, make_snapshot())
    found = await storage.list_snapshot_ids(location, start_after=uuid7(0))
    assert found == [uuid7(1), uuid7(2)]


async def test_14_limit(storage: FileStorage, location: SnapshotLocation) -> None:
    for number in range(3):
        await storage.save_snapshot(location, uuid7(number), False, make_snapshot())
    assert await storage.list_snapshot_ids(location, limit=2) == [uuid7(0), uuid7(1)]


async def test_15_start_after_and_limit(storage: FileStorage, location: SnapshotLocation) -> None:
    for number in range(4):
        await storage.save_snapshot(location, uuid7(number), False, make_snapshot())
    found = await storage.list_snapshot_ids(location, limit=2, start_after=uuid7(0))
    assert found == [uuid7(1), uuid7(2)]


async def test_16_without_the_folder_there_are_none(
    storage: FileStorage, base: Path, location: SnapshotLocation
) -> None:
    assert await storage.list_snapshot_ids(location) == []
    assert not base.exists()


async def test_17_a_list_that_fails_is_a_session_error(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    await storage.save_snapshot(location, "x", False, make_snapshot())
    with locked(snapshots / "immutable_history"):
        with pytest.raises(SessionError) as caught:
            await storage.list_snapshot_ids(location)
        assert isinstance(caught.value.__cause__, Unavailable)


# deleteSession


async def test_18_delete_session_removes_its_folder(
    storage: FileStorage, base: Path, location: SnapshotLocation
) -> None:
    await storage.save_snapshot(location, "x", True, make_snapshot())
    await storage.save_snapshot(location, "x", False, make_snapshot())
    await storage.save_manifest(location, MANIFEST)
    await storage.delete_session(location.session_id)
    assert not (base / location.session_id).exists()


async def test_19_to_delete_what_is_missing_does_nothing(
    storage: FileStorage, base: Path, location: SnapshotLocation
) -> None:
    await storage.delete_session(location.session_id)
    await storage.save_snapshot(location, "x", True, make_snapshot())
    await storage.delete_session("another")
    assert await storage.load_snapshot(location) == make_snapshot()


async def test_20_a_delete_that_fails_is_a_session_error(
    storage: FileStorage, base: Path, location: SnapshotLocation
) -> None:
    await storage.save_snapshot(location, "x", True, make_snapshot())
    with locked(base / location.session_id):
        with pytest.raises(SessionError) as caught:
            await storage.delete_session(location.session_id)
        assert isinstance(caught.value.__cause__, Unavailable)
    assert await storage.load_snapshot(location) == make_snapshot()


# Manifests


async def test_21_the_path_of_the_manifest(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    await storage.save_manifest(location, MANIFEST)
    (path,) = (each for each in snapshots.rglob("*") if each.is_file())
    assert path == snapshots / "manifest.json"
    assert json.loads(path.read_bytes()) == MANIFEST.to_json()


async def test_22_a_manifest_that_cannot_be_written_is_a_session_error(
    storage: FileStorage, base: Path, location: SnapshotLocation
) -> None:
    put(base / location.session_id, b"a file where a folder should be")
    with pytest.raises(SessionError) as caught:
        await storage.save_manifest(location, MANIFEST)
    assert isinstance(caught.value.__cause__, Unavailable)


async def test_23_a_manifest_comes_back(storage: FileStorage, location: SnapshotLocation) -> None:
    await storage.save_manifest(location, MANIFEST)
    assert await storage.load_manifest(location) == MANIFEST


async def test_24_a_missing_manifest_is_the_default(
    storage: FileStorage, base: Path, location: SnapshotLocation
) -> None:
    """It is computed, and not stored."""
    found = await storage.load_manifest(location)
    assert found.schema_version == "1.0"
    assert isinstance(found.updated_at, str)
    assert not base.exists()


async def test_25_an_invalid_manifest_is_a_session_error(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    for data in (b"{not json", b"", b'"text"', b"[]"):
        put(snapshots / "manifest.json", data)
        with pytest.raises(SessionError) as caught:
            await storage.load_manifest(location)
        assert isinstance(caught.value.__cause__, Corrupt)
