"""What the SDK's own tests ask of `FileStorage` and `S3Storage`.

Those of `S3Storage` look at the calls of a client that answers what it is told. Ours ask a service:
SeaweedFS, and where it has to fail, a stub. `tests/seeds` and test_defects.py show the rest.
"""

import json
import secrets
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest

from limpet import Corrupt, InvalidInput, LimpetError, Unavailable
from limpet.compat.strands import (
    FileStorage,
    S3Storage,
    SessionError,
    SnapshotLocation,
    SnapshotManifest,
)
from tests.compat.strands.kit import (
    close,
    documents,
    make_snapshot,
    uuid7,
)
from tests.compat.strands.watched import client_of
from tests.servers.service import Service

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


async def refused(call: Awaitable[Any], cause: type[LimpetError], note: object = "") -> None:
    with pytest.raises(SessionError) as caught:
        await call
    assert isinstance(caught.value.__cause__, cause), note


def wire(data: bytes) -> object:
    """Return a document that is written as the SDK writes it: in lines of two blanks."""
    found: object = json.loads(data)
    assert data.decode() == json.dumps(found, indent=2, ensure_ascii=False)
    return found


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


# FileStorage


async def test_a_save_makes_folders_and_a_file(
    base: Path, storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    assert await storage.list_snapshot_ids(location) == []
    assert (await storage.load_manifest(location)).schema_version == "1.0"
    assert not base.exists()  # it is made by the first save, and not before
    await storage.save_snapshot(location, uuid7(1), False, make_snapshot())
    (path,) = (each for each in snapshots.rglob("*") if each.is_file())
    assert path == snapshots / "immutable_history" / f"snapshot_{uuid7(1)}.json"
    assert wire(path.read_bytes()) == make_snapshot().to_json()


async def test_a_failing_write(
    storage: FileStorage, base: Path, location: SnapshotLocation
) -> None:
    put(base / location.session_id, b"a file where a folder should be")
    for is_latest in (True, False):
        save = storage.save_snapshot(location, "x", is_latest, make_snapshot())
        await refused(save, Unavailable)
    await refused(storage.save_manifest(location, MANIFEST), Unavailable)


async def test_bad_documents(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    bad = [b"{not json", b"", b'{"scope":', b"\xef\xbb\xbf", b"\xff", b'"text"', b"[]"]
    for data in (*bad, b'{"data": {"x": NaN}}', b'{"data": {"x": "\\ud83d"}}'):
        put(snapshots / "snapshot_latest.json", data)
        put(snapshots / "immutable_history" / "snapshot_x.json", data)
        put(snapshots / "manifest.json", data)
        for id in (None, "x"):
            await refused(storage.load_snapshot(location, id), Corrupt, data)
        await refused(storage.load_manifest(location), Corrupt, data)


async def test_a_folder_in_the_place_of_a_file_is_none(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    """There a read fails with EISDIR. Here only files are documents; a write says what is wrong."""
    (snapshots / "snapshot_latest.json").mkdir(parents=True)
    assert await storage.load_snapshot(location) is None
    await refused(storage.save_snapshot(location, "x", True, make_snapshot()), Unavailable)


# S3Storage


async def test_a_client_of_yours_is_used(seaweedfs: Service, location: SnapshotLocation) -> None:
    """It knows its bucket itself."""
    prefix, client = secrets.token_hex(6), client_of(seaweedfs)
    async with S3Storage(prefix=prefix, client=client) as storage:
        await storage.save_snapshot(location, uuid7(1), False, make_snapshot())
        await storage.save_snapshot(location, uuid7(1), True, make_snapshot())
        await storage.save_manifest(location, MANIFEST)
    below = f"{prefix}/{documents(location)}"
    for name in (f"immutable_history/snapshot_{uuid7(1)}", "snapshot_latest", "manifest"):
        reply = client.get(f"{below}/{name}.json")
        assert reply.attributes["Content-Type"] == "application/json"
        stored = (MANIFEST if name == "manifest" else make_snapshot()).to_json()
        assert wire(bytes(reply.bytes())) == stored
    for name in ("region", "endpoint_url", "access_key_id"):
        with pytest.raises(InvalidInput, match=name):
            S3Storage(bucket="b", client=client, **{name: "http://x"})
