"""Long histories: they are listed, paged and deleted, and a save costs the same as ever."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from limpet.compat.strands import FileStorage, SnapshotLocation, SnapshotStorage
from limpet.compat.strands.documents import DocumentStorage
from tests.buckets.counting import CountingBucket
from tests.compat.strands.kit import close, documents, make_snapshot, uuid7
from tests.compat.strands.watched import Watched
from tests.servers.proxy import Proxy
from tests.servers.service import Service

COUNT = 2_500
IDS = [uuid7(number) for number in range(COUNT)]


async def check_all(storage: SnapshotStorage, location: SnapshotLocation, ids: list[str]) -> None:
    """List all, walk by pages, load the ends, and delete."""
    assert await storage.list_snapshot_ids(location) == ids
    assert await storage.list_snapshot_ids(location, limit=1_100) == ids[:1_100]
    assert await storage.list_snapshot_ids(location, start_after=ids[-3]) == ids[-2:]
    found, token, more = list[str](), None, True
    while more:
        page = await storage.list_snapshots(location, limit=999, start_after=token)
        found, token = [*found, *page.snapshot_ids], page.next_token
        more = token is not None
    assert found == ids
    for id in (ids[0], ids[-1]):
        assert await storage.load_snapshot(location, id) == make_snapshot()
    await storage.delete_session(location.session_id)
    assert await storage.list_snapshot_ids(location) == []
    assert await storage.load_snapshot(location) is None


async def test_a_folder_of_2500(tmp_path: Path, location: SnapshotLocation) -> None:
    history = tmp_path / documents(location) / "immutable_history"
    async with FileStorage(tmp_path) as storage:
        await storage.save_snapshot(location, "latest", True, make_snapshot())
        history.mkdir(exist_ok=True)
        data = json.dumps(make_snapshot().to_json(), indent=2).encode()
        for id in IDS:
            (history / f"snapshot_{id}.json").write_bytes(data)
        await check_all(storage, location, IDS)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def watched(seaweedfs: Service) -> Iterator[Watched]:
    with Proxy(seaweedfs.port) as proxy:
        watched = Watched(seaweedfs, proxy)
        yield watched
        close(watched.storage)


async def test_a_save_costs_the_same_whatever_the_history(
    watched: Watched, location: SnapshotLocation
) -> None:
    """Nothing of history is read or listed for it."""
    costs = []
    await watched.storage.save_snapshot(location, "latest", True, make_snapshot())
    for number in range(6):
        watched.proxy.forget()
        await watched.storage.save_snapshot(location, uuid7(number), False, make_snapshot())
        await watched.storage.save_snapshot(location, "latest", True, make_snapshot(number))
        costs.append(watched.proxy.counts())
    assert costs == [{"PUT": 2}] * 6


@pytest.mark.parametrize(
    ("limit", "after", "lists"),
    [
        (None, None, 3),
        (1_000, None, 1),
        (1_001, None, 2),
        (3, IDS[2_000], 1),
        (None, IDS[2_000], 1),
    ],
)
async def test_a_list_of_2105_ids_reads_no_document(
    location: SnapshotLocation, limit: int | None, after: str | None, lists: int
) -> None:
    """One LIST for each 1,000 keys that are asked for. It once was 2,619 GETs."""
    bucket, ids = CountingBucket(), IDS[:2_105]
    history = f"{documents(location)}/immutable_history"
    for id in ids:
        bucket.put(f"{history}/snapshot_{id}.json", b"not JSON", expect=None)
    bucket.take()
    async with DocumentStorage(lambda: bucket) as storage:
        found = await storage.list_snapshot_ids(location, limit, after)
    assert found == [id for id in ids if after is None or id > after][:limit]
    assert bucket.take() == {"LIST": lists}


async def test_a_list_of_other_ids_reads_no_document(location: SnapshotLocation) -> None:
    """Their files have another order than they have, so all are listed for each page."""
    bucket, ids = CountingBucket(), ["a", "a-", "a-b", "a-b-c", "a0", "a_b", "b", uuid7(1)]
    for id in ids:
        bucket.put(f"{documents(location)}/immutable_history/snapshot_{id}.json", b"", expect=None)
    bucket.take()
    async with DocumentStorage(lambda: bucket) as storage:
        for after in (None, *ids):
            for limit in (None, 1, 2, 5):
                found = await storage.list_snapshot_ids(location, limit, after)
                assert found == sorted(id for id in ids if after is None or id > after)[:limit]
                assert bucket.take().keys() == {"LIST"}
