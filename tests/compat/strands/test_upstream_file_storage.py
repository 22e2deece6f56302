"""What the SDK's own tests ask of `FileStorage`, by their number in its suite.

Left out is what `tests/seeds` and test_defects.py show already.
"""

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


async def test_03_folders_are_created_recursively(
    tmp_path: Path, location: SnapshotLocation
) -> None:
    async with FileStorage(tmp_path / "a" / "b" / "c") as storage:
        assert not (tmp_path / "a").exists()  # by the first save, and not before
        await storage.save_snapshot(location, "x", True, make_snapshot())
    assert (tmp_path / "a" / "b" / "c" / documents(location) / "snapshot_latest.json").is_file()


async def test_04_a_write_that_fails_is_a_session_error(
    storage: FileStorage, base: Path, location: SnapshotLocation
) -> None:
    put(base / location.session_id, b"a file where a folder should be")
    for is_latest in (True, False):
        with pytest.raises(SessionError) as caught:
            await storage.save_snapshot(location, "x", is_latest, make_snapshot())
        assert isinstance(caught.value, LimpetError)
        assert isinstance(caught.value.__cause__, Unavailable)


# loadSnapshot


async def test_09_invalid_json_is_a_session_error(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    for data in (b"{not json", b"", b'{"scope":', b"\xef\xbb\xbf", b"\xff"):
        put(snapshots / "snapshot_latest.json", data)
        put(snapshots / "immutable_history" / "snapshot_x.json", data)
        for id in (None, "x"):
            with pytest.raises(SessionError) as caught:
                await storage.load_snapshot(location, id)
            assert isinstance(caught.value.__cause__, Corrupt), data


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


async def test_22_a_manifest_that_cannot_be_written_is_a_session_error(
    storage: FileStorage, base: Path, location: SnapshotLocation
) -> None:
    put(base / location.session_id, b"a file where a folder should be")
    with pytest.raises(SessionError) as caught:
        await storage.save_manifest(location, MANIFEST)
    assert isinstance(caught.value.__cause__, Unavailable)


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
