"""What the SDK's own tests ask of identifiers and cursors, by their number in its suite.

There both are plain errors, told apart by their text; here they are InvalidInput.
"""

import pytest

from limpet import InvalidInput
from limpet.compat.strands import SnapshotLocation
from tests.compat.strands.kit import Grounds, make_location, make_snapshot, uuid7

KINDS = ["memory", "FileStorage"]


async def refuses_identifier(grounds: Grounds, id: str) -> None:
    """See that no method takes an identifier, in any of its places."""
    for kind in KINDS:
        storage = grounds[kind].storage
        good = make_location()
        for bad in (SnapshotLocation(id, "agent", "a"), SnapshotLocation("s", "agent", id)):
            calls = [
                storage.save_snapshot(bad, "x", True, make_snapshot()),
                storage.save_snapshot(bad, "x", False, make_snapshot()),
                storage.load_snapshot(bad),
                storage.list_snapshot_ids(bad),
                storage.list_snapshots(bad),
                storage.load_manifest(bad),
                storage.save_manifest(bad, {"schemaVersion": "1.0", "updatedAt": "then"}),
            ]
            for call in calls:
                with pytest.raises(InvalidInput, match="identifier"):
                    await call
        with pytest.raises(InvalidInput, match="identifier"):
            await storage.save_snapshot(good, id, False, make_snapshot())
        with pytest.raises(InvalidInput, match="identifier"):
            await storage.load_snapshot(good, id)
        with pytest.raises(InvalidInput, match="identifier"):
            await storage.delete_session(id)


async def refuses_cursor(grounds: Grounds, cursor: str) -> None:
    for kind in KINDS:
        storage = grounds[kind].storage
        with pytest.raises(InvalidInput):
            await storage.list_snapshot_ids(make_location(), start_after=cursor)
        with pytest.raises(InvalidInput):
            await storage.list_snapshots(make_location(), start_after=cursor)


async def test_1_an_identifier_is_taken(grounds: Grounds) -> None:
    for kind in KINDS:
        for id in ("a", "agent-1", "under_score", "0", "-", "_", "a" * 200):
            location = make_location(scope_id=id)
            await grounds[kind].storage.save_snapshot(location, id, False, make_snapshot())
            assert await grounds[kind].storage.list_snapshot_ids(location) == [id]


async def test_2_an_identifier_with_a_slash_is_refused(grounds: Grounds) -> None:
    for id in ("a/b", "/a", "a/", "../a"):
        await refuses_identifier(grounds, id)


async def test_3_an_identifier_with_a_backslash_is_refused(grounds: Grounds) -> None:
    await refuses_identifier(grounds, "a\\b")


async def test_4_a_uuid_7_is_a_cursor(grounds: Grounds) -> None:
    for kind in KINDS:
        found = await grounds[kind].storage.list_snapshot_ids(make_location(), start_after=uuid7(1))
        assert found == []


async def test_5_a_uuid_4_is_no_cursor(grounds: Grounds) -> None:
    await refuses_cursor(grounds, "f47ac10b-58cc-4372-a567-0e02b2c3d479")


async def test_6_a_timestamp_is_no_cursor(grounds: Grounds) -> None:
    await refuses_cursor(grounds, "2026-01-01T00:00:00.000Z")
    await refuses_cursor(grounds, "1767225600000")


async def test_7_a_path_is_no_cursor(grounds: Grounds) -> None:
    await refuses_cursor(grounds, "../evil")


async def test_8_an_empty_identifier_is_refused(grounds: Grounds) -> None:
    """There an empty text is no UUID 7 either, but the storages take it for no cursor; so do we."""
    await refuses_identifier(grounds, "")
    for kind in KINDS:
        assert await grounds[kind].storage.list_snapshot_ids(make_location(), start_after="") == []
