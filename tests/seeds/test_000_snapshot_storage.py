"""`SnapshotStorage`, sentence by sentence: each test bears the words of one."""

import pytest

from limpet.compat.strands import (
    Snapshot,
    SnapshotManifest,
    SnapshotPage,
    SnapshotStorage,
    StoreStorage,
)
from tests.compat.strands.kit import (
    At,
    Grounds,
    close,
    make_location,
    make_snapshot,
    uuid7,
)

# The interface


async def test_interface_for_snapshot_persistence(at: At) -> None:
    assert isinstance(at.storage, SnapshotStorage)
    assert not isinstance(object(), SnapshotStorage)


async def test_implementations_provide_storage_backends_s3_filesystem_etc(
    at: At,
    grounds: Grounds,
) -> None:
    """What one storage has saved, another that is opened later finds."""
    await at.save(uuid7(1), False, make_snapshot(1))
    await at.save("latest", True, make_snapshot(2))
    other = at.open()
    assert await other.load_snapshot(at.location, uuid7(1)) == make_snapshot(1)
    assert await other.load_snapshot(at.location) == make_snapshot(2)
    if at.ground is not grounds["memory"]:  # there both are over one store
        close(other)


# The layout


async def test_file_layout_convention_sessions_session_id_scopes_agent_scope_id_snapshots(
    filed: At,
) -> None:
    """`sessions/` is the root of a store; the two storages of the SDK have none."""
    for scope in ("agent", "multiAgent"):
        place = make_location(filed.location.session_id, scope=scope)
        await filed.storage.save_snapshot(place, "latest", True, make_snapshot())
        assert (
            f"{place.session_id}/scopes/{scope}/a1/snapshots/snapshot_latest.json"
            in filed.ground.keys(place.session_id)
        )
    assert filed.root == ("sessions/" if type(filed.storage) is StoreStorage else "")


async def test_snapshots_immutable_history_snapshot_uuid_json(filed: At) -> None:
    for number in (1, 2):
        await filed.save(uuid7(number), False, make_snapshot())
    assert filed.keys() == [
        f"{filed.documents}/immutable_history/snapshot_{uuid7(1)}.json",
        f"{filed.documents}/immutable_history/snapshot_{uuid7(2)}.json",
    ]


# saveSnapshot


async def test_save_snapshot_params_location(at: At) -> None:
    """A session, a scope and a scope's id, each of which makes another line."""
    places = [
        at.location,
        make_location(),
        make_location(at.location.session_id, scope="multiAgent"),
        make_location(at.location.session_id, scope_id="a2"),
    ]
    for number, place in enumerate(places):
        await at.storage.save_snapshot(place, "latest", True, make_snapshot(number))
        await at.storage.save_snapshot(place, uuid7(number), False, make_snapshot(number))
    for number, place in enumerate(places):
        assert await at.storage.load_snapshot(place) == make_snapshot(number)
        assert await at.storage.list_snapshot_ids(place) == [uuid7(number)]


async def test_save_snapshot_params_snapshot_id_string(at: At) -> None:
    """Any identifier, and not only a UUID; given again, it is replaced."""
    for id in (uuid7(1), "1", "zz_1", "a-b"):
        await at.save(id, False, make_snapshot(1))
        await at.save(id, False, make_snapshot(2))
        assert await at.load(id) == make_snapshot(2)
    assert len(await at.ids()) == 4


async def test_save_snapshot_params_is_latest_boolean(at: At) -> None:
    """The latest and history are two things, neither of which touches the other."""
    await at.save(uuid7(1), False, make_snapshot(1))
    assert await at.load() is None
    await at.save(uuid7(2), True, make_snapshot(2))
    assert await at.load() == make_snapshot(2)
    assert await at.load(uuid7(2)) is None
    await at.save(uuid7(3), False, make_snapshot(3))
    assert await at.load() == make_snapshot(2)
    assert await at.ids() == [uuid7(1), uuid7(3)]


@pytest.mark.parametrize("is_latest", [True, False])
async def test_save_snapshot_params_snapshot_snapshot(at: At, is_latest: bool) -> None:
    """It comes back exactly, with fields that nobody knows; its wire dict is as good."""
    odd = make_snapshot(
        scope="multiAgent",
        schema_version="7",
        created_at="long ago",
        data={"b": 1.0, "a": [None, True, 2**70, "\0\U0001f980", {}, []]},
        app_data={"nested": {"x": [1]}},
        extra={"stash": {"é": 1}},
    )
    for given in (odd, odd.to_json(), make_snapshot(data=["no", "object"])):
        await at.save("x", is_latest, given)
        found = await at.load(None if is_latest else "x")
        assert found == Snapshot.of(given)
        assert found is not None
        assert repr(found.data) == repr(Snapshot.of(given).data)  # 1.0 is not 1, and order counts


# loadSnapshot


async def test_load_snapshot_params_snapshot_id_is_optional(at: At) -> None:
    """Without it: the latest. `latest` is an id like any other."""
    await at.save("latest", True, make_snapshot(1))
    assert await at.load() == make_snapshot(1)
    assert await at.load(None) == make_snapshot(1)
    assert await at.load("latest") is None
    await at.save("latest", False, make_snapshot(2))
    assert await at.load("latest") == make_snapshot(2)
    assert await at.load() == make_snapshot(1)


async def test_load_snapshot_returns_promise_snapshot(at: At) -> None:
    """Or None, if there is none; what was returned is the caller's own."""
    assert await at.load() is None
    assert await at.load(uuid7(1)) is None
    await at.save("x", True, make_snapshot())
    found = await at.load()
    assert type(found) is Snapshot
    assert isinstance(found.data, dict)
    found.data.clear()
    assert await at.load() == make_snapshot()


# listSnapshotIds


async def test_lists_all_available_snapshot_ids_for_a_session_scope(at: At) -> None:
    """All that can be loaded, ascending, whatever order they were saved in; not the latest."""
    await at.save(uuid7(9), True, make_snapshot())
    for number in (3, 1, 2):
        await at.save(uuid7(number), False, make_snapshot(number))
    found = await at.ids()
    assert found == [uuid7(1), uuid7(2), uuid7(3)]
    for id in found:
        assert await at.load(id) is not None


async def test_list_snapshot_ids_params_location(at: At) -> None:
    await at.save("x", False, make_snapshot())
    assert await at.storage.list_snapshot_ids(at.location.to_json()) == ["x"]
    sibling = f"{at.location.session_id}1"
    for other in (sibling, at.location.session_id[:-1]):
        assert await at.storage.list_snapshot_ids(make_location(other)) == []
    assert (
        await at.storage.list_snapshot_ids(make_location(at.location.session_id, scope_id="a"))
        == []
    )


# What they plan: pages


async def test_add_pagination_support_for_long_running_agents_with_many_snapshots(at: At) -> None:
    ids = [uuid7(number) for number in range(7)]
    for id in ids:
        await at.save(id, False, make_snapshot())
    found, token, pages = list[str](), None, 0
    while pages == 0 or token is not None:
        page = await at.page(limit=3, start_after=token)
        found += page.snapshot_ids
        token, pages = page.next_token, pages + 1
    assert found == ids
    assert pages == 3


async def test_limit_max_results_to_return(at: At) -> None:
    """One more than there are is all of them; none and fewer is none."""
    ids = [uuid7(number) for number in range(3)]
    for id in ids:
        await at.save(id, False, make_snapshot())
    for limit in (1, 2, 3, 4, 1_001):
        assert await at.ids(limit=limit) == ids[:limit]
        assert (await at.page(limit)).snapshot_ids == tuple(ids[:limit])
    for limit in (0, -1):
        assert await at.ids(limit=limit) == []
        assert await at.page(limit=limit) == SnapshotPage(())


async def test_start_after_snapshot_id_to_start_after_for_cursor_based_pagination(at: At) -> None:
    """Those behind it; it may be of a snapshot that is not there."""
    ids = [uuid7(number) for number in (1, 3, 5)]
    for id in ids:
        await at.save(id, False, make_snapshot())
    assert await at.ids(start_after=ids[0]) == ids[1:]
    assert await at.ids(start_after=uuid7(2)) == ids[1:]
    assert await at.ids(limit=1, start_after=ids[0]) == ids[1:2]
    assert await at.ids(start_after=uuid7(0)) == ids
    for beyond in (ids[-1], uuid7(9)):
        assert await at.ids(start_after=beyond) == []
    assert await at.ids(start_after="") == ids


async def test_promise_snapshot_ids_string_array_next_token_optional_string(at: At) -> None:
    for number in range(2):
        await at.save(uuid7(number), False, make_snapshot())
    page = await at.page(limit=1)
    assert page.to_json() == {"snapshotIds": [uuid7(0)], "nextToken": uuid7(0)}
    last = await at.page(limit=1, start_after=page.next_token)
    assert last.to_json() == {"snapshotIds": [uuid7(1)]}
    assert await at.page() == SnapshotPage((uuid7(0), uuid7(1)))


# Manifests


async def test_load_manifest_loads_the_snapshot_manifest(at: At) -> None:
    manifest = SnapshotManifest("1.0", "2026-01-01T00:00:00.000Z")
    await at.save_manifest(manifest)
    for place in (at.location, at.location.to_json()):
        assert await at.storage.load_manifest(place) == manifest


async def test_load_manifest_returns_promise_snapshot_manifest(at: At) -> None:
    """Never None: without one there is a default, which is not stored by that."""
    found = await at.manifest()
    assert type(found) is SnapshotManifest
    assert found.schema_version == "1.0"
    await at.save_manifest(SnapshotManifest("2.0", "then"))
    assert await at.manifest() == SnapshotManifest("2.0", "then")


async def test_save_manifest_saves_the_snapshot_manifest(at: At) -> None:
    """In the place of the one before, with fields that nobody knows, and beside the snapshots."""
    await at.save("x", True, make_snapshot())
    await at.save_manifest(SnapshotManifest("1.0", "then"))
    odd = {"schemaVersion": "1.1", "updatedAt": "now", "count": 2**70, "owner": {"é": None}}
    await at.save_manifest(odd)
    assert (await at.manifest()).to_json() == odd
    assert await at.load() == make_snapshot()
    assert await at.ids() == []


async def test_save_manifest_params_location(at: At) -> None:
    """Each scope has its own."""
    places = [
        at.location,
        make_location(at.location.session_id, scope="multiAgent"),
        make_location(),
    ]
    for number, place in enumerate(places):
        await at.storage.save_manifest(place, SnapshotManifest(str(number), "then"))
    for number, place in enumerate(places):
        assert await at.storage.load_manifest(place) == SnapshotManifest(str(number), "then")
