"""What the SDK's own tests ask of `S3Storage`, by their number in its suite.

Theirs look at the calls of a client that answers what it is told. Ours ask a service: SeaweedFS,
and where it has to fail, a stub. Left out is what `tests/seeds` and test_defects.py show already.
"""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from limpet import Corrupt, InvalidInput
from limpet.compat.strands import S3Storage, SessionError, SnapshotLocation, SnapshotManifest
from tests.compat.strands.kit import (
    Ground,
    Grounds,
    close,
    documents,
    make_snapshot,
    uuid7,
)
from tests.compat.strands.watched import Failing, Watched, client_of
from tests.interop.places import Below, Objects
from tests.servers.proxy import Proxy
from tests.servers.service import Service
from tests.servers.stub import Stub

MANIFEST = SnapshotManifest("1.0", "2026-01-01T00:00:00.000Z")


@pytest.fixture
def s3(grounds: Grounds) -> Ground:
    return grounds["S3Storage"]


@pytest.fixture
def storage(s3: Ground) -> S3Storage:
    assert isinstance(s3.storage, S3Storage)
    return s3.storage


@pytest.fixture
def files(s3: Ground) -> Objects:
    assert isinstance(s3.files, Objects)
    return s3.files


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


def wire(data: bytes) -> Any:
    """Return a document that is written as the SDK writes it: in lines of two blanks."""
    found: object = json.loads(data)
    assert data.decode() == json.dumps(found, indent=2, ensure_ascii=False)
    return found


# The constructor


async def test_01_bucket_and_region_are_taken(
    seaweedfs: Service, location: SnapshotLocation
) -> None:
    """Theirs are kept in fields; ours show in where requests go."""
    prefix = secrets.token_hex(6)
    options = {**seaweedfs.options, "region": "eu-north-1"}
    async with S3Storage(bucket=seaweedfs.name, prefix=prefix, **options) as storage:
        await storage.save_snapshot(location, "x", True, make_snapshot())
    assert len(Objects(Below(seaweedfs, prefix)).list_keys()) == 1


async def test_03_a_client_of_yours_is_used(seaweedfs: Service, location: SnapshotLocation) -> None:
    """It knows its bucket itself."""
    prefix, client = secrets.token_hex(6), client_of(seaweedfs)
    async with S3Storage(prefix=prefix, client=client) as storage:
        await storage.save_snapshot(location, "x", True, make_snapshot())
    found = client.get(f"{prefix}/{documents(location)}/snapshot_latest.json").bytes()
    assert wire(bytes(found)) == make_snapshot().to_json()


def test_04_a_client_together_with_a_region_is_refused(seaweedfs: Service) -> None:
    """There it is a SessionError; here that is for storage, and a bad call is InvalidInput."""
    for name in ("region", "endpoint_url", "access_key_id"):
        with pytest.raises(InvalidInput, match=name):
            S3Storage(bucket="b", client=client_of(seaweedfs), **{name: "http://x"})


# saveSnapshot


async def test_05_key_body_and_type_of_what_goes_to_history(
    seaweedfs: Service, location: SnapshotLocation
) -> None:
    prefix, client = secrets.token_hex(6), client_of(seaweedfs)
    async with S3Storage(prefix=prefix, client=client) as storage:
        await storage.save_snapshot(location, uuid7(1), False, make_snapshot())
        await storage.save_snapshot(location, uuid7(1), True, make_snapshot())
        await storage.save_manifest(location, MANIFEST)
    below = f"{prefix}/{documents(location)}"
    reply = client.get(f"{below}/immutable_history/snapshot_{uuid7(1)}.json")
    assert wire(bytes(reply.bytes())) == make_snapshot().to_json()
    for name in (f"immutable_history/snapshot_{uuid7(1)}", "snapshot_latest", "manifest"):
        assert client.get(f"{below}/{name}.json").attributes["Content-Type"] == "application/json"


async def test_08_a_put_that_fails_is_a_session_error(
    failing: Failing, location: SnapshotLocation
) -> None:
    for is_latest in (True, False):
        call = failing.storage.save_snapshot(location, "x", is_latest, make_snapshot())
        await failing.refuses(call)
    assert failing.stub.objects == {}


# loadSnapshot


async def test_16_a_get_that_fails_is_a_session_error(
    failing: Failing, location: SnapshotLocation
) -> None:
    """At once, or once it has been asked for a while."""
    await failing.refuses(failing.storage.load_snapshot(location))
    assert failing.stub.requests == ["GET"]


async def test_16_a_service_that_is_out_of_order_is_asked_again(
    failing: Failing, location: SnapshotLocation
) -> None:
    call = failing.storage.load_snapshot(location, "x")
    await failing.refuses(call, status=500, code="InternalError")
    assert len(failing.stub.requests) > 1


# listSnapshotIds


async def test_17_ids_are_listed_in_order_below_the_prefix(
    watched: Watched, location: SnapshotLocation
) -> None:
    """Theirs ask for 1,000 keys; our driver cannot say so, and the service gives as many."""
    for number in (2, 0, 1):
        await watched.storage.save_snapshot(location, uuid7(number), False, make_snapshot())
    watched.proxy.forget()
    found = await watched.storage.list_snapshot_ids(location)
    assert found == [uuid7(0), uuid7(1), uuid7(2)]
    (query,) = watched.listed()
    assert query["prefix"] == f"{watched.prefix}/{documents(location)}/immutable_history/"
    assert query.get("max-keys", "1000") == "1000"


async def test_21_start_after_is_the_whole_key(
    watched: Watched, location: SnapshotLocation
) -> None:
    for number in range(3):
        await watched.storage.save_snapshot(location, uuid7(number), False, make_snapshot())
    watched.proxy.forget()
    found = await watched.storage.list_snapshot_ids(location, start_after=uuid7(0))
    assert found == [uuid7(1), uuid7(2)]
    (query,) = watched.listed()
    history = f"{watched.prefix}/{documents(location)}/immutable_history"
    assert query["start-after"] == f"{history}/snapshot_{uuid7(0)}.json"


async def test_24_a_list_that_fails_is_a_session_error(
    failing: Failing, location: SnapshotLocation
) -> None:
    await failing.refuses(failing.storage.list_snapshot_ids(location))
    await failing.refuses(failing.storage.list_snapshots(location, limit=1))


# deleteSession


async def test_27_an_empty_session_is_five_requests(
    watched: Watched, location: SnapshotLocation
) -> None:
    """What is put is listed and deleted; then nothing is listed, and that is verified."""
    for _ in range(2):
        watched.proxy.forget()
        await watched.storage.delete_session(location.session_id)
    assert watched.proxy.counts() == {"PUT": 1, "LIST": 2, "DELETE": 1, "GET": 1}


async def test_28_a_delete_stays_below_the_prefix(
    seaweedfs: Service, storage: S3Storage, location: SnapshotLocation
) -> None:
    await storage.save_snapshot(location, "x", True, make_snapshot())
    async with S3Storage(seaweedfs.name, secrets.token_hex(6), **seaweedfs.options) as other:
        await other.save_snapshot(location, "x", True, make_snapshot())
        await other.delete_session(location.session_id)
        assert await other.load_snapshot(location) is None
    assert await storage.load_snapshot(location) == make_snapshot()


async def test_29_a_delete_whose_list_fails_is_a_session_error(
    failing: Failing, location: SnapshotLocation
) -> None:
    await failing.refuses(failing.storage.delete_session(location.session_id))


# Manifests


async def test_31_a_missing_manifest_is_the_default(
    s3: Ground, storage: S3Storage, location: SnapshotLocation
) -> None:
    found = await storage.load_manifest(location)
    assert found.schema_version == "1.0"
    assert isinstance(found.updated_at, str)
    assert s3.keys(location.session_id) == []


async def test_32_an_invalid_manifest_is_a_session_error(
    storage: S3Storage, files: Objects, location: SnapshotLocation
) -> None:
    for data in (b"{not json", b"", b"[]"):
        files.write(f"{documents(location)}/manifest.json", data)
        with pytest.raises(SessionError) as caught:
            await storage.load_manifest(location)
        assert isinstance(caught.value.__cause__, Corrupt)


async def test_34_a_manifest_that_cannot_be_put_is_a_session_error(
    failing: Failing, location: SnapshotLocation
) -> None:
    await failing.refuses(failing.storage.save_manifest(location, MANIFEST))
    assert failing.stub.objects == {}
