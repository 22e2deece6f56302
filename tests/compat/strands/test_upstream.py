"""What the SDK's own tests ask of `FileStorage` and `S3Storage`.

Those of `S3Storage` look at the calls of a client that answers what it is told. Ours ask a service:
SeaweedFS, and where it has to fail, a stub. `tests/seeds` and test_defects.py show the rest.
"""

import json
import secrets
from collections.abc import Awaitable, Callable, Iterator
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
from tests.cases import for_each
from tests.compat.strands.kit import (
    Grounds,
    all_calls,
    close,
    documents,
    locked,
    make_snapshot,
    uuid7,
)
from tests.compat.strands.watched import Failing, Watched, client_of
from tests.servers.proxy import Proxy
from tests.servers.service import Service
from tests.servers.stub import Stub

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


async def test_a_write_that_fails(
    storage: FileStorage, base: Path, location: SnapshotLocation
) -> None:
    put(base / location.session_id, b"a file where a folder should be")
    for is_latest in (True, False):
        save = storage.save_snapshot(location, "x", is_latest, make_snapshot())
        await refused(save, Unavailable)
    await refused(storage.save_manifest(location, MANIFEST), Unavailable)


async def test_what_is_no_document(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    for data in (b"{not json", b"", b'{"scope":', b"\xef\xbb\xbf", b"\xff", b'"text"', b"[]"):
        put(snapshots / "snapshot_latest.json", data)
        put(snapshots / "immutable_history" / "snapshot_x.json", data)
        put(snapshots / "manifest.json", data)
        for id in (None, "x"):
            await refused(storage.load_snapshot(location, id), Corrupt, data)
        await refused(storage.load_manifest(location), Corrupt, data)


Call = Callable[[FileStorage, SnapshotLocation], Awaitable[object]]


@for_each(
    ("folder", "call"),
    [
        ("scopes/agent/a1/snapshots", lambda it, at: it.load_snapshot(at)),
        ("scopes/agent/a1/snapshots/immutable_history", lambda it, at: it.load_snapshot(at, "x")),
        ("scopes/agent/a1/snapshots/immutable_history", lambda it, at: it.list_snapshot_ids(at)),
        ("", lambda it, at: it.delete_session(at.session_id)),
    ],
)
async def test_a_folder_that_cannot_be_entered(
    storage: FileStorage, base: Path, location: SnapshotLocation, folder: str, call: Call
) -> None:
    for is_latest in (True, False):
        await storage.save_snapshot(location, "x", is_latest, make_snapshot())
    with locked(base / location.session_id / folder):
        await refused(call(storage, location), Unavailable)
    for id in (None, "x"):
        assert await storage.load_snapshot(location, id) == make_snapshot()


async def test_a_folder_in_the_place_of_a_file_is_none(
    storage: FileStorage, snapshots: Path, location: SnapshotLocation
) -> None:
    """There a read fails with EISDIR. Here only files are documents; a write says what is wrong."""
    (snapshots / "snapshot_latest.json").mkdir(parents=True)
    assert await storage.load_snapshot(location) is None
    await refused(storage.save_snapshot(location, "x", True, make_snapshot()), Unavailable)


# S3Storage


@pytest.fixture
def watched(seaweedfs: Service) -> Iterator[Watched]:
    with Proxy(seaweedfs.port) as proxy:
        watched = Watched(seaweedfs, proxy)
        yield watched
        close(watched.storage)


@pytest.fixture
def failing() -> Iterator[Failing]:
    with Stub(ignores=()) as stub:
        failing = Failing(stub)
        yield failing
        close(failing.storage)


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


async def test_a_service_that_refuses(failing: Failing, location: SnapshotLocation) -> None:
    await failing.refuses(failing.storage.load_snapshot(location))
    assert failing.stub.requests == ["GET"]  # it is not asked again
    for call in all_calls(failing.storage, location).values():
        await failing.refuses(call())
    assert failing.stub.objects == {}


async def test_a_service_that_is_out_of_order_is_asked_again(
    failing: Failing, location: SnapshotLocation
) -> None:
    call = failing.storage.load_snapshot(location, "x")
    await failing.refuses(call, status=500, code="InternalError")
    assert len(failing.stub.requests) > 1


async def test_deleting_an_empty_session_is_five_requests(
    watched: Watched, location: SnapshotLocation
) -> None:
    """What is put is listed and deleted; then nothing is listed, and that is verified."""
    for _ in range(2):
        watched.proxy.forget()
        await watched.storage.delete_session(location.session_id)
    assert watched.proxy.counts() == {"PUT": 1, "LIST": 2, "DELETE": 1, "GET": 1}


async def test_a_delete_stays_below_the_prefix(
    seaweedfs: Service, grounds: Grounds, location: SnapshotLocation
) -> None:
    storage = grounds["S3Storage"].storage
    await storage.save_snapshot(location, "x", True, make_snapshot())
    async with S3Storage(seaweedfs.name, secrets.token_hex(6), **seaweedfs.options) as other:
        await other.save_snapshot(location, "x", True, make_snapshot())
        await other.delete_session(location.session_id)
        assert await other.load_snapshot(location) is None
    assert await storage.load_snapshot(location) == make_snapshot()
