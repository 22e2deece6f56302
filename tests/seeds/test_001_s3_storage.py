"""`S3Storage`, sentence by sentence: each test bears the words of one.

Where a sentence is not about S3 itself, it is true of every engine.
"""

import asyncio
import json
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from limpet import InvalidInput
from limpet.compat.strands import (
    S3Storage,
    SnapshotLocation,
    SnapshotManifest,
)
from tests.compat.strands.kit import (
    At,
    close,
    documents,
    fill,
    make_location,
    make_snapshot,
    uuid7,
)
from tests.compat.strands.watched import Watched, client_of
from tests.interop.places import Below, Objects
from tests.servers.proxy import Proxy
from tests.servers.service import Service


@pytest.fixture
def watched(seaweedfs: Service) -> Iterator[Watched]:
    with Proxy(seaweedfs.port) as proxy:
        watched = Watched(seaweedfs, proxy)
        yield watched
        close(watched.storage)


# The class


async def test_object_key_layout_prefix_session_id_scopes_scope_scope_id_snapshots(
    seaweedfs: Service, location: SnapshotLocation
) -> None:
    """Exactly the documented keys and nothing else, with a prefix and without one."""
    below = documents(location)
    expected = [f"{below}/immutable_history/snapshot_{uuid7(1)}.json"]
    expected += [f"{below}/manifest.json", f"{below}/snapshot_latest.json"]
    for prefix in ("", f"plain-{secrets.token_hex(6)}"):
        options = seaweedfs.options
        async with S3Storage(bucket=seaweedfs.name, prefix=prefix, **options) as storage:
            await storage.save_snapshot(location, "latest", True, make_snapshot())
            await storage.save_snapshot(location, uuid7(1), False, make_snapshot())
            await storage.save_manifest(location, SnapshotManifest("1.0", "then"))
            objects = Objects(Below(seaweedfs, prefix or location.session_id))
            start = "" if prefix else f"{location.session_id}/"
            assert [start + key for key in objects.list_keys()] == expected
            await storage.delete_session(location.session_id)
            assert objects.list_keys() == []


# The constructor


async def test_creates_new_s3_storage_instance(seaweedfs: Service) -> None:
    """Without a request, whatever is there."""
    await S3Storage(bucket="nowhere", region="eu-north-1").close()
    await S3Storage("nowhere", "a/prefix", endpoint_url="http://127.0.0.1:1").close()
    with pytest.raises(InvalidInput):
        S3Storage()


async def test_params_config_s3_storage_config(
    seaweedfs: Service, location: SnapshotLocation
) -> None:
    """A bucket and perhaps a prefix; a region and an address, or a client that knows them."""
    client = client_of(seaweedfs)
    prefix = secrets.token_hex(6)
    async with S3Storage(bucket=seaweedfs.name, prefix=prefix, client=client) as storage:
        await storage.save_snapshot(location, "latest", True, make_snapshot())
    async with S3Storage(
        bucket=seaweedfs.name,
        prefix=prefix,
        region="us-east-1",
        endpoint_url=seaweedfs.url,
        access_key_id=seaweedfs.access_key_id,
        secret_access_key=seaweedfs.secret_access_key,
    ) as storage:
        assert await storage.load_snapshot(location) == make_snapshot()
    with pytest.raises(InvalidInput, match="region"):
        S3Storage(bucket=seaweedfs.name, client=client, region="us-east-1")


# saveSnapshot


async def test_persists_a_snapshot_to_s3(watched: Watched, location: SnapshotLocation) -> None:
    """One object each, by one request, once the service has proved that it honours conditions."""
    await watched.storage.save_snapshot(location, "latest", True, make_snapshot())
    watched.proxy.forget()
    await watched.storage.save_snapshot(location, uuid7(1), False, make_snapshot())
    assert watched.asked("PUT") == [
        f"{documents(location)}/immutable_history/snapshot_{uuid7(1)}.json"
    ]
    watched.proxy.forget()
    await watched.storage.save_snapshot(location, "latest", True, make_snapshot(1))
    assert watched.asked("PUT") == [f"{documents(location)}/snapshot_latest.json"]


async def test_if_is_latest_is_true_writes_to_snapshot_latest_json_overwriting_any_previous(
    filed: At,
) -> None:
    for number in range(3):
        await filed.save("latest", True, make_snapshot(number))
    assert filed.keys() == [f"{filed.documents}/snapshot_latest.json"]
    assert await filed.load() == make_snapshot(2)


# loadSnapshot


async def test_if_snapshot_id_is_omitted_loads_snapshot_latest_json(filed: At) -> None:
    key = f"{filed.root}{filed.documents}/snapshot_latest.json"
    filed.files.write(key, json.dumps(make_snapshot().to_json(), indent=2).encode())
    assert await filed.load() == make_snapshot()
    assert await filed.ids() == []


# listSnapshotIds


async def test_since_ids_are_uuid_v7_lexicographic_sort_equals_chronological_order(at: At) -> None:
    """The order is that of the ids alone, whatever their snapshots say of their age."""
    for number in range(3):
        older = make_snapshot(50 - number)
        await at.save(uuid7(number), False, older)
    found = await at.ids()
    assert found == sorted(found) == [uuid7(0), uuid7(1), uuid7(2)]


async def test_pushes_start_after_and_limit_down_to_s3_via_start_after_and_max_keys(
    watched: Watched, location: SnapshotLocation
) -> None:
    """StartAfter is pushed down. Our driver cannot send MaxKeys, so a LIST brings up to 1,000 keys.

    But no LIST is sent for more than were asked for.
    """
    history = f"{documents(location)}/immutable_history/"
    await fill(watched.objects, [f"{history}snapshot_{uuid7(number)}.json" for number in range(5)])
    watched.proxy.forget()
    found = await watched.storage.list_snapshot_ids(location, limit=2, start_after=uuid7(1))
    assert found == [uuid7(2), uuid7(3)]
    (query,) = watched.listed()
    assert query["prefix"] == f"{watched.prefix}/{history}"
    assert query["start-after"] == f"{watched.prefix}/{history}snapshot_{uuid7(1)}.json"


async def test_to_avoid_fetching_unnecessary_objects(
    watched: Watched, location: SnapshotLocation
) -> None:
    """A list reads no document."""
    await watched.storage.save_snapshot(location, "latest", True, make_snapshot())
    for number in range(5):
        await watched.storage.save_snapshot(location, uuid7(number), False, make_snapshot())
    watched.proxy.forget()
    assert len(await watched.storage.list_snapshot_ids(location)) == 5
    assert watched.proxy.counts() == {"LIST": 1}


# deleteSession


async def test_deletes_all_s3_objects_belonging_to_a_session_by_listing_and_batch_deleting(
    watched: Watched, location: SnapshotLocation
) -> None:
    """The latest ones before the rest, so that nobody takes what is left for a session."""
    await watched.storage.save_snapshot(location, "latest", True, make_snapshot())
    for number in range(5):
        await watched.storage.save_snapshot(location, uuid7(number), False, make_snapshot())
    watched.proxy.forget()
    await watched.storage.delete_session(location.session_id)
    assert watched.objects.list_keys() == []
    assert watched.proxy.counts()["DELETE"] == 2
    assert await watched.storage.load_snapshot(location) is None
    assert await watched.storage.list_snapshot_ids(location) == []


async def test_everything_under_prefix_session_id(filed: At) -> None:
    """Of every scope, and what others have put there; nothing of a session beside it."""
    for scope in ("agent", "multiAgent"):
        place = make_location(filed.location.session_id, scope=scope)
        await filed.storage.save_snapshot(place, "latest", True, make_snapshot())
        await filed.storage.save_snapshot(place, "x", False, make_snapshot())
        await filed.storage.save_manifest(place, SnapshotManifest("1.0", "then"))
    filed.files.write(f"{filed.root}{filed.location.session_id}/theirs.txt", b"theirs")
    beside = make_location(f"{filed.location.session_id}1")
    await filed.storage.save_snapshot(beside, "latest", True, make_snapshot())
    await filed.storage.delete_session(filed.location.session_id)
    assert filed.keys() == []
    assert await filed.storage.load_snapshot(beside) == make_snapshot()


@pytest.mark.slow
async def test_handles_buckets_with_more_than_1000_objects_via_continuation_token_pagination(
    watched: Watched, location: SnapshotLocation
) -> None:
    """A list goes on by the last id that it has seen, and a delete until a list is empty."""
    await watched.storage.save_snapshot(location, "latest", True, make_snapshot())
    history = f"{documents(location)}/immutable_history/"
    ids = [uuid7(number) for number in range(1_050)]
    await fill(watched.objects, [f"{history}snapshot_{id}.json" for id in ids])
    watched.proxy.forget()
    assert await watched.storage.list_snapshot_ids(location) == ids
    starts = [each.get("start-after", "").rpartition("/")[2] for each in watched.listed()]
    assert starts[0] == ""
    assert starts[1:] == sorted(set(starts[1:]))
    assert len(starts) < 10
    watched.proxy.forget()
    await watched.storage.delete_session(location.session_id)
    assert watched.objects.list_keys() == []
    assert len(watched.listed()) == 3
    assert watched.proxy.counts()["DELETE"] <= 4


async def test_no_ops_if_the_session_has_no_objects(at: At) -> None:
    await at.storage.delete_session(at.location.session_id)
    await at.save("latest", True, make_snapshot())
    for _ in range(2):
        await at.storage.delete_session(at.location.session_id)
        assert await at.load() is None


# Manifests


async def test_returns_a_default_manifest_with_the_current_timestamp_if_none_exists_yet(
    at: At,
) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    first = await at.manifest()
    assert first.schema_version == "1.0"
    assert before <= datetime.fromisoformat(first.updated_at) <= datetime.now(UTC)
    assert len(first.updated_at) == len("2026-01-01T00:00:00.000Z")
    await asyncio.sleep(0.002)
    assert (await at.manifest()).updated_at > first.updated_at


async def test_persists_the_snapshot_manifest_for_a_scope_to_s3(filed: At) -> None:
    await filed.save_manifest(SnapshotManifest("1.0", "then"))
    assert filed.keys() == [f"{filed.documents}/manifest.json"]
    stored = filed.files.read(f"{filed.root}{filed.documents}/manifest.json")
    assert json.loads(stored) == {"schemaVersion": "1.0", "updatedAt": "then"}
