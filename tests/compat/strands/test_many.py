"""Long histories: what it costs to list them, and that they are deleted."""

import pytest

from limpet.compat.strands import SnapshotLocation
from limpet.compat.strands.documents import DocumentStorage
from tests.buckets.counting import CountingBucket
from tests.compat.strands.kit import documents, make_snapshot, uuid7

COUNT = 2_500
IDS = [uuid7(number) for number in range(COUNT)]


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
        await storage.delete_session(location.session_id)
        assert bucket.list("", limit=1) == []


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


async def test_a_save_costs_the_same_whatever_the_history(location: SnapshotLocation) -> None:
    """Nothing of history is read or listed for it."""
    bucket = CountingBucket()
    async with DocumentStorage(lambda: bucket) as storage:
        await storage.save_snapshot(location, "latest", True, make_snapshot())
        for number in range(6):
            bucket.take()
            await storage.save_snapshot(location, uuid7(number), False, make_snapshot())
            await storage.save_snapshot(location, "latest", True, make_snapshot(number))
            assert bucket.take() == {"PUT": 2}
