"""Ids that both sides allow are the same on both; others are left alone."""

from contextlib import suppress

import pytest

from limpet import InvalidInput, ScopeKey, Store
from tests.interop.ground import Ground
from tests.interop.sdk import SdkError, uuid7

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the SDK

BOTH = [
    "a",
    "0",
    "-",
    "_",
    "a-b",
    "ab",
    "latest",
    "manifest",
    "scopes",
    "snapshot_x",
    "notes",
    "index",
    "session",
    "sessions",
    "z" * 190,  # with 200 some of their storages write no file: its temporary name is too long
]
LONG = "x" * 201


def test_ids_that_both_allow_are_the_same(ground: Ground, store: Store) -> None:
    for number, id in enumerate(BOTH):
        ours, theirs = ground.ours(id, id), ground.theirs(id, id)
        theirs.save(id, {"by": "them", "number": number}, second=number)
        ours.save_latest({"by": "us", "number": number}, second=number)
        assert ours.load(id)["data"] == {"by": "them", "number": number}
        assert theirs.load()["data"] == {"by": "us", "number": number}
    assert ground.pull(store).skipped == ()
    assert sorted(info.key for info in store.scopes()) == sorted(ScopeKey(id, id) for id in BOTH)
    for id in BOTH:
        ground.ours(id, id).delete_session()
    assert ground.files.list_keys() == []


def test_many_ids_in_one_scope_are_listed_in_their_order(ground: Ground) -> None:
    """Their files are in another: `a-b.json` comes before `a.json`."""
    ours, theirs = ground.ours("chat"), ground.theirs("chat")
    for number, id in enumerate(BOTH):
        (theirs if number % 2 else ours).save(id, {"number": number}, second=number)
    assert ours.ids() == sorted(BOTH) == sorted(theirs.ids())
    paged = list[str]()
    while page := ours.ids(after=paged[-1] if paged else None, limit=3):
        paged += page
    assert paged == sorted(BOTH)


def test_ids_of_theirs_that_are_too_long_for_us_are_left_alone(
    ground: Ground, store: Store
) -> None:
    """Some of them cannot be file names, with what stands around them."""
    for scope in ((LONG, "planner"), ("chat", LONG), ("chat", "planner")):
        ground.theirs(*scope).save_latest({"by": "them"})
    with suppress(SdkError):  # a file name may be too long for some of their storages as well
        ground.theirs("chat", "planner").save(LONG, {"by": "them"})
    assert ground.ours("chat", "planner").ids() == []
    with pytest.raises(InvalidInput):
        ground.ours(LONG, "planner").save_latest({"by": "us"})
    ground.pull(store)
    assert set(store.sessions()) == {"chat", LONG}


def test_names_that_no_id_has_are_not_listed(ground: Ground) -> None:
    """The SDK lists whatever ends like a snapshot. We list what can be loaded."""
    ours, theirs = ground.ours("chat", "planner"), ground.theirs("chat", "planner")
    theirs.save(uuid7(1), {"by": "them"})
    folder = f"{ground.layout.root}chat/scopes/agent/planner/snapshots/immutable_history/"
    litter = ("xsnapshot_junk.json", "snapshot_UPPER.json", "snapshot_a.json.tmp", "snapshot_.json")
    for name in litter:
        ground.files.write(folder + name, ground.files.read(f"{folder}snapshot_{uuid7(1)}.json"))
    assert {"junk", "UPPER"} < set(theirs.ids())
    assert ours.ids() == [uuid7(1)]
    ours.delete_session()
    assert ground.documents("chat") == []
