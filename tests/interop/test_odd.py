"""Snapshots of theirs that are unusual, and unusual things done with them."""

from pathlib import Path
from uuid import uuid4

import pytest

from limpet import JSON, AlreadyExists, ScopeKey, Store
from tests.effort import slowly
from tests.interop.ground import LAYOUTS, Ground
from tests.interop.places import Below
from tests.interop.sdk import Sdk, snapshot, uuid7
from tests.interop.test_they_write import exact
from tests.servers.service import Service

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the SDK

SCOPE = ScopeKey("chat-42", "planner")


def test_large_snapshots_are_read_and_listed(ground: Ground, store: Store) -> None:
    """Their header is wherever they put it, so the whole of them is read to list them."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    large = {"text": "é👩‍🚀" * 30_000, "more": [{"n": n} for n in range(5_000)]}
    theirs.save(uuid7(1), large, second=1)
    theirs.save_latest(large, second=2)
    for found in (ours.load(), ours.load(uuid7(1))):
        assert found is not None
        assert exact(found.state) == exact(large)
    assert [(info.id, info.created_at.second) for info in ours.history()] == [(uuid7(1), 1)]
    assert [info.key for info in store.scopes()] == [SCOPE]


def test_snapshots_of_one_moment_are_all_seen(ground: Ground, store: Store) -> None:
    """Their times bear milliseconds, some are given by hand, and some are the same to the byte."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    ids = [f"note-{number}" for number in range(6)]
    for id in ids:
        theirs.save(id, {"twin": True} if id < "note-3" else {"id": id}, second=1)
    whole = [info.id for info in ours.history()]
    assert sorted(whole) == ids
    for limit in (1, 2, 4):
        paged, cursor = list[str](), None
        while page := [info.id for info in ours.history(limit=limit, after=cursor)]:
            paged += page
            cursor = page[-1]
        assert paged == whole
    assert ours.prune(keep_last=2).count == 4
    assert len(theirs.ids()) == 2


def test_a_page_shows_what_came_since_the_one_before(ground: Ground, store: Store) -> None:
    """A cursor is a place and nothing else: whoever comes back with it asks anew."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    for number in (1, 3, 5, 7, 9):
        theirs.save(uuid7(number), {"number": number}, second=number)
    theirs.save_latest({"number": 9}, second=9)
    assert [info.id for info in ours.history(limit=2)] == [uuid7(9), uuid7(7)]
    theirs.save(uuid7(4), {"number": 4}, second=4)
    ours.delete_snapshot(uuid7(3))
    rest = [info.id for info in ours.history(after=uuid7(7))]
    assert rest == [uuid7(5), uuid7(4), uuid7(1)]


def test_strange_times_are_no_trouble(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    strange: dict[str, JSON] = {
        "none": None,
        "number": 1772366400,
        "words": "yesterday",
        "past": "1969-12-31T23:59:59.999Z",
        "first": "0001-01-01T00:00:00.000Z",
        "future": "9999-12-31T23:59:59.999Z",
        "zone": "2026-03-01T14:00:00+02:00",
        "naive": "2026-03-01T12:00:00",
    }
    for id, time in strange.items():
        theirs.put(id, snapshot({"id": id}) | {"createdAt": time})
    theirs.put("absent", {"data": {"id": "absent"}})
    assert {info.id for info in ours.history()} == {*strange, "absent"} == set(ours.ids())
    for id in strange:
        theirs.put(None, snapshot({"latest": id}) | {"createdAt": strange[id]})
        head = ours.load()
        assert head is not None
        assert head.state == {"latest": id}
        saved = ours.save({"on": id})
        # What they say was made in the far future stays before all others.
        assert next(info.id for info in ours.history() if info.id != "future") == saved.id
        assert theirs.load()["data"] == {"on": id}


def test_their_latest_has_an_id_while_it_is_the_head(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    theirs.save_latest({"turn": 1}, second=1)
    first = ours.load()
    assert first is not None
    assert ours.load(first.id) == first
    fork = ours.fork(first.id, scope_id="other")
    assert ground.theirs("chat-42", "other").load()["data"] == {"turn": 1}
    assert fork.load() is not None

    theirs.save_latest({"turn": 2}, second=2)
    second = ours.load()
    assert second is not None
    assert ours.load(first.id) is None
    changed = ours.update(second.id, lambda was: was.with_(state={"turn": 3}))
    assert changed is not None
    assert theirs.load()["data"] == {"turn": 3}
    assert theirs.load()["schemaVersion"] == "1.0"
    head = ours.load()
    assert head is not None
    assert (head.id, head.state, head.kept) == (second.id, {"turn": 3}, False)
    assert theirs.ids() == []


def test_we_delete_a_latest_of_theirs(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    theirs.save(uuid7(1), {"turn": 1}, second=1)
    theirs.save_latest({"turn": 2}, second=2)
    head = ours.load()
    assert head is not None
    assert ours.delete_snapshot(head.id) == 1
    shown = ours.load()
    assert shown is not None
    assert (shown.id, shown.state) == (uuid7(1), {"turn": 1})
    assert theirs.load()["data"] == {}
    ours.append("turns", [3])
    assert theirs.load()["data"] == {"turn": 1, "turns": [3]}


def test_an_id_of_theirs_is_taken(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    theirs.save(uuid7(1), {"by": "them"}, second=1)
    theirs.save(uuid7(2), {"by": "them"}, second=2)
    with pytest.raises(AlreadyExists):
        ours.save({"by": "us"}, id=uuid7(1))
    assert theirs.load(uuid7(1))["data"] == {"by": "them"}
    assert theirs.load() is None
    ours.save({"by": "us"}, id=uuid7(1), overwrite=True)
    assert theirs.load(uuid7(1))["data"] == {"by": "us"}
    assert [info.id for info in ours.history()] == [uuid7(2), uuid7(1)]
    assert theirs.ids() == list(ours.ids()) == [uuid7(1), uuid7(2)]


def test_we_prune_what_they_kept(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    for number in range(1, 6):
        theirs.save(uuid7(number), {"number": number}, second=number)
    theirs.save_latest({"number": 5}, second=5)
    assert ours.prune(keep_last=2).count == 3
    assert theirs.ids() == list(ours.ids()) == [uuid7(4), uuid7(5)]
    assert theirs.load()["data"] == {"number": 5}


@pytest.mark.parametrize("layout", slowly(["ours", "classic"], but=["classic"]))
def test_a_long_history_is_listed_whole(sdk: Sdk, tmp_path: Path, layout: str) -> None:
    check_long_history(Ground(sdk, LAYOUTS[layout], tmp_path))


@pytest.mark.slow
def test_a_long_history_is_listed_whole_on_s3(sdk: Sdk, seaweedfs: Service) -> None:
    check_long_history(Ground(sdk, LAYOUTS["classic"], Below(seaweedfs, uuid4().hex)))


def check_long_history(ground: Ground) -> None:
    """More of theirs than one page of a listing, then one of ours."""
    theirs = ground.theirs(*SCOPE)
    ids = [uuid7(number) for number in range(1_030)]
    theirs.save(ids[0], {"number": 0})
    folder = f"{ground.layout.root}chat-42/scopes/agent/planner/snapshots/immutable_history/"
    one = ground.files.read(f"{folder}snapshot_{ids[0]}.json")
    for number, id in enumerate(ids):
        # As the SDK would write them, one after the other.
        made = one.replace(b":00.250Z", b":%02d.%03dZ" % divmod(number, 1000))
        ground.files.write(f"{folder}snapshot_{id}.json", made)
    theirs.save_latest({"number": 0}, second=1)
    ground.theirs("next").save_latest({"number": 1})
    with ground.open() as store:
        ours = store.scope(*SCOPE)
        assert list(ours.ids()) == theirs.ids() == ids
        assert list(ours.ids(after=ids[998], limit=5)) == theirs.ids(after=ids[998], limit=5)
        assert [info.id for info in ours.history()] == ids[::-1]
        assert list(store.sessions()) == ["chat-42", "next"]
        saved = ours.save({"number": 2})
        assert [info.id for info in ours.history()] == [saved.id, *ids[::-1]]
        assert theirs.ids() == [*ids, saved.id]
        assert store.delete_session("chat-42") == len(ids) + 1
        assert list(store.sessions()) == ["next"]
    assert theirs.ids() == ground.documents("chat-42") == []
