"""Ids that both sides allow are the same on both; others are safe where they are."""

from contextlib import suppress

import pytest

from limpet import ScopeKey, Store
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
ONLY_OURS = ["A", "a.b", "a b", "a/b", "..", "a\\b", "é", "a+41", "a~", LONG, "\n", "%41"]
REFUSAL = "can only contain lowercase letters, numbers, hyphens, and underscores"


def test_ids_that_both_allow_are_the_same(ground: Ground, store: Store) -> None:
    for number, id in enumerate(BOTH):
        ground.theirs(id, id).save(id, {"by": "them", "number": number}, second=number)
        ground.theirs(id, id).save_latest({"by": "them", "number": number}, second=number)
    assert sorted(store.sessions()) == sorted(BOTH)
    assert sorted(info.key for info in store.scopes()) == sorted(ScopeKey(id, id) for id in BOTH)
    for number, id in enumerate(BOTH):
        ours, theirs = store.scope(id, id), ground.theirs(id, id)
        assert list(ours.ids()) == [id]
        found = ours.load(id)
        assert found is not None
        assert found.state == {"by": "them", "number": number}
        ours.save({"by": "us", "number": number}, id="ours")
        assert (
            theirs.load()["data"] == theirs.load("ours")["data"] == {"by": "us", "number": number}
        )
        assert sorted(theirs.ids()) == sorted({id, "ours"}) == sorted(ours.ids())


def test_many_ids_in_one_scope_are_listed_alike(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope("chat"), ground.theirs("chat")
    for number, id in enumerate(BOTH):
        if number % 2:
            theirs.save(id, {"number": number}, second=number)
        else:
            ours.save({"number": number}, id=id)
    assert sorted(ours.ids()) == sorted(theirs.ids()) == sorted(BOTH)
    for number, id in enumerate(BOTH):
        found = ours.load(id)
        assert found is not None
        assert found.state == theirs.load(id)["data"] == {"number": number}
    # Whatever the order of the place is, a page continues where the one before it ended.
    whole, paged = list(ours.ids()), list[str]()
    while page := list(ours.ids(after=paged[-1] if paged else None, limit=3)):
        paged += page
    assert paged == whole


def test_ids_that_they_refuse_do_no_harm(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope("chat", "planner"), ground.theirs("chat", "planner")
    for id in ONLY_OURS:
        ours.save({"strange": True}, id=id)
        store.scope(id, id).save({"where": id})
    ours.save({"strange": False}, id="plain")
    assert theirs.ids() == ["plain"]
    assert theirs.load()["data"] == {"strange": False}
    for id in ONLY_OURS:
        if id != LONG:
            for refused in (ground.theirs(id, "planner"), ground.theirs("chat", id)):
                with pytest.raises(SdkError, match=REFUSAL):
                    refused.load()
            with pytest.raises(SdkError, match=REFUSAL):
                theirs.load(id)

    assert set(store.sessions()) == {*ONLY_OURS, "chat"}
    assert set(ours.ids()) == {*ONLY_OURS, "plain"}
    theirs.delete_session()
    assert set(store.sessions()) == set(ONLY_OURS)
    for id in ONLY_OURS:
        found = store.scope(id, id).load()
        assert found is not None
        assert found.state == {"where": id}


def test_ids_of_theirs_that_are_too_long_for_us_are_left_alone(
    ground: Ground, store: Store
) -> None:
    """Names of more than 200 bytes are clipped by us and not by them, so nobody shares those."""
    for scope in ((LONG, "planner"), ("chat", LONG), ("chat", "planner")):
        ground.theirs(*scope).save_latest({"by": "them"})
    with suppress(SdkError):  # a file name may be too long for some of their storages as well
        ground.theirs("chat", "planner").save(LONG, {"by": "them"})
    assert list(store.sessions()) == ["chat"]
    assert [info.key for info in store.scopes()] == [ScopeKey("chat", "planner")]
    assert list(store.scope("chat", "planner").ids()) == []
    assert store.scope(LONG, "planner").load() is None
    store.scope(LONG, "planner").save({"by": "us"})
    assert ground.theirs(LONG, "planner").load()["data"] == {"by": "them"}


def test_kinds_of_ours_are_not_all_theirs(ground: Ground, store: Store) -> None:
    store.scope("chat", "planner", "graph").save({"by": "us"})
    theirs = ground.theirs("chat", "planner", "graph")
    if ground.layout.family == "classic":
        with pytest.raises(
            SdkError, match="Invalid scope 'graph': must be 'agent' or 'multiAgent'"
        ):
            theirs.load()
    else:
        assert theirs.load()["data"] == {"by": "us"}


def test_names_that_no_id_has_are_not_listed(ground: Ground, store: Store) -> None:
    """The SDK lists whatever ends like a snapshot. We list what can be loaded."""
    theirs = ground.theirs("chat", "planner")
    theirs.save(uuid7(1), {"by": "them"})
    folder = f"{ground.layout.root}chat/scopes/agent/planner/snapshots/immutable_history/"
    litter = ("xsnapshot_junk.json", "snapshot_UPPER.json", "snapshot_a.json.tmp", "snapshot_.json")
    for name in litter:
        ground.files.write(folder + name, ground.files.read(f"{folder}snapshot_{uuid7(1)}.json"))
    assert {"junk", "UPPER"} < set(theirs.ids())
    assert list(store.scope("chat", "planner").ids()) == [uuid7(1)]
    assert [info.id for info in store.scope("chat", "planner").history()] == [uuid7(1)]
    store.delete_session("chat")
    assert ground.documents("chat") == []
