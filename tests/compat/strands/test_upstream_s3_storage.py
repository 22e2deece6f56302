"""What the SDK's own tests ask of `S3Storage`, by their number in its suite.

Theirs look at the calls of a client that answers what it is told. Ours ask a service: SeaweedFS,
and where it has to fail, a stub.
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
    fill,
    make_location,
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


async def test_02_a_prefix_is_taken(s3: Ground, location: SnapshotLocation) -> None:
    await s3.storage.save_snapshot(location, "x", True, make_snapshot())
    assert s3.keys(location.session_id) == [f"{documents(location)}/snapshot_latest.json"]


async def test_03_a_client_of_yours_is_used(seaweedfs: Service, location: SnapshotLocation) -> None:
    """It knows its bucket itself."""
    prefix, client = secrets.token_hex(6), client_of(seaweedfs)
    async with S3Storage(prefix=prefix, client=client) as storage:
        await storage.save_snapshot(location, "x", True, make_snapshot())
    found = client.get(f"{prefix}/{documents(location)}/snapshot_latest.json").bytes()
    assert wire(bytes(found)) == make_snapshot().to_json()


@pytest.mark.parametrize("name", ["region", "endpoint_url", "access_key_id"])
def test_04_a_client_together_with_a_region_is_refused(seaweedfs: Service, name: str) -> None:
    """There it is a SessionError; here that is for storage, and a bad call is InvalidInput."""
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


async def test_06_the_key_of_the_latest(s3: Ground, location: SnapshotLocation) -> None:
    await s3.storage.save_snapshot(location, uuid7(1), True, make_snapshot())
    assert s3.keys(location.session_id) == [f"{documents(location)}/snapshot_latest.json"]


async def test_07_the_prefix_is_part_of_the_key(
    seaweedfs: Service, location: SnapshotLocation
) -> None:
    prefix, client = f"a/{secrets.token_hex(6)}", client_of(seaweedfs)
    async with S3Storage(seaweedfs.name, prefix, client=client) as storage:
        await storage.save_snapshot(location, "x", False, make_snapshot())
    client.get(f"{prefix}/{documents(location)}/immutable_history/snapshot_x.json")


@pytest.mark.parametrize("is_latest", [True, False])
async def test_08_a_put_that_fails_is_a_session_error(
    failing: Failing, location: SnapshotLocation, is_latest: bool
) -> None:
    await failing.refuses(failing.storage.save_snapshot(location, "x", is_latest, make_snapshot()))
    assert failing.stub.objects == {}


async def test_09_the_key_of_multi_agent(s3: Ground, location: SnapshotLocation) -> None:
    place = make_location(location.session_id, scope="multiAgent", scope_id="graph-1")
    await s3.storage.save_snapshot(place, "x", True, make_snapshot())
    assert s3.keys(location.session_id) == [
        f"{location.session_id}/scopes/multiAgent/graph-1/snapshots/snapshot_latest.json"
    ]


# loadSnapshot


async def test_10_the_latest_is_loaded(
    storage: S3Storage, files: Objects, location: SnapshotLocation
) -> None:
    theirs = json.dumps(make_snapshot(1).to_json(), indent=2).encode()
    files.write(f"{documents(location)}/snapshot_latest.json", theirs)
    assert await storage.load_snapshot(location) == make_snapshot(1)


async def test_11_a_snapshot_is_loaded_by_its_id(
    storage: S3Storage, files: Objects, location: SnapshotLocation
) -> None:
    theirs = json.dumps(make_snapshot(1).to_json(), indent=2).encode()
    files.write(f"{documents(location)}/immutable_history/snapshot_x.json", theirs)
    assert await storage.load_snapshot(location, "x") == make_snapshot(1)


async def test_12_no_such_key_is_none(storage: S3Storage, location: SnapshotLocation) -> None:
    assert await storage.load_snapshot(location) is None
    assert await storage.load_snapshot(location, uuid7(1)) is None


@pytest.mark.parametrize("name", ["snapshot_latest", "immutable_history/snapshot_x"])
async def test_13_and_14_an_empty_object_is_a_session_error(
    storage: S3Storage, files: Objects, location: SnapshotLocation, name: str
) -> None:
    """There no body and an empty body read as None; here they are damage, as in a folder."""
    files.write(f"{documents(location)}/{name}.json", b"")
    with pytest.raises(SessionError) as caught:
        await storage.load_snapshot(location, "x" if "_x" in name else None)
    assert isinstance(caught.value.__cause__, Corrupt)


async def test_15_invalid_json_is_a_session_error(
    storage: S3Storage, files: Objects, location: SnapshotLocation
) -> None:
    files.write(f"{documents(location)}/snapshot_latest.json", b"{not json")
    files.write(f"{documents(location)}/immutable_history/snapshot_x.json", b"{not json")
    for id in (None, "x"):
        with pytest.raises(SessionError) as caught:
            await storage.load_snapshot(location, id)
        assert isinstance(caught.value.__cause__, Corrupt)


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


async def test_18_without_objects_there_are_none(
    storage: S3Storage, location: SnapshotLocation
) -> None:
    assert await storage.list_snapshot_ids(location) == []


async def test_19_and_20_other_objects_are_ignored(
    storage: S3Storage, files: Objects, location: SnapshotLocation
) -> None:
    """An object without a key, of which theirs are afraid, cannot be listed by a service."""
    await storage.save_snapshot(location, uuid7(1), False, make_snapshot())
    for name in ("other-file.txt", "snapshot_.json", f"deeper/snapshot_{uuid7(2)}.json"):
        files.write(f"{documents(location)}/immutable_history/{name}", b"{}")
    assert await storage.list_snapshot_ids(location) == [uuid7(1)]


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


async def test_22_limit(storage: S3Storage, location: SnapshotLocation) -> None:
    for number in range(3):
        await storage.save_snapshot(location, uuid7(number), False, make_snapshot())
    assert await storage.list_snapshot_ids(location, limit=2) == [uuid7(0), uuid7(1)]


async def test_23_start_after_and_limit(storage: S3Storage, location: SnapshotLocation) -> None:
    for number in range(4):
        await storage.save_snapshot(location, uuid7(number), False, make_snapshot())
    found = await storage.list_snapshot_ids(location, limit=2, start_after=uuid7(0))
    assert found == [uuid7(1), uuid7(2)]


async def test_24_a_list_that_fails_is_a_session_error(
    failing: Failing, location: SnapshotLocation
) -> None:
    await failing.refuses(failing.storage.list_snapshot_ids(location))
    await failing.refuses(failing.storage.list_snapshots(location, limit=1))


# deleteSession


async def test_25_a_delete_lists_the_prefix_and_deletes_many_at_once(
    watched: Watched, location: SnapshotLocation
) -> None:
    for number in range(5):
        await watched.storage.save_snapshot(location, uuid7(number), False, make_snapshot())
    watched.proxy.forget()
    await watched.storage.delete_session(location.session_id)
    assert watched.objects.list_keys() == []
    assert {each["prefix"] for each in watched.listed()} == {
        f"{watched.prefix}/{location.session_id}/"
    }
    assert watched.proxy.counts()["DELETE"] == 2  # the latest of each scope before the rest


@pytest.mark.slow
async def test_26_a_delete_of_more_than_a_page(
    watched: Watched, location: SnapshotLocation
) -> None:
    """Theirs: two lists and two deletes. Ours lists once more, to see that nothing is left."""
    history = f"{documents(location)}/immutable_history"
    await fill(watched.objects, [f"{history}/snapshot_{uuid7(n)}.json" for n in range(1_005)])
    await watched.storage.delete_session(location.session_id)
    assert watched.objects.list_keys() == []
    assert watched.proxy.counts()["LIST"] == 3


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


async def test_30_a_manifest_is_loaded(
    storage: S3Storage, files: Objects, location: SnapshotLocation
) -> None:
    theirs = json.dumps(MANIFEST.to_json(), indent=2).encode()
    files.write(f"{documents(location)}/manifest.json", theirs)
    assert await storage.load_manifest(location) == MANIFEST


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


async def test_33_a_manifest_is_put(s3: Ground, files: Objects, location: SnapshotLocation) -> None:
    await s3.storage.save_manifest(location, MANIFEST)
    assert s3.keys(location.session_id) == [f"{documents(location)}/manifest.json"]
    stored = json.loads(files.read(f"{documents(location)}/manifest.json"))
    assert stored == MANIFEST.to_json()


async def test_34_a_manifest_that_cannot_be_put_is_a_session_error(
    failing: Failing, location: SnapshotLocation
) -> None:
    await failing.refuses(failing.storage.save_manifest(location, MANIFEST))
    assert failing.stub.objects == {}
