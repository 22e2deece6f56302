"""What one side deletes, the other does not see any more."""

import pytest

from limpet import ScopeKey, Store, Unsupported
from tests.interop.ground import Ground
from tests.interop.sdk import SdkError, uuid7

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the SDK

SCOPE = ScopeKey("chat", "planner")
SIBLINGS = (ScopeKey("cha", "planner"), ScopeKey("chat-2", "planner"), ScopeKey("chat2", "planner"))


def fill(ground: Ground) -> None:
    """Let the SDK write a session with two scopes, and its siblings."""
    for scope in (SCOPE, ScopeKey("chat", "team", "multiAgent"), *SIBLINGS):
        theirs = ground.theirs(*scope)
        for number in (1, 2, 3):
            theirs.save(uuid7(number), {"number": number}, second=number)
        theirs.save_latest({"number": 3}, second=3)
        theirs.save_manifest({"schemaVersion": "1.0", "updatedAt": "2026-03-01T12:00:00.000Z"})


def test_we_delete_a_session_of_theirs(ground: Ground, store: Store) -> None:
    fill(ground)
    store.scope(*SCOPE).set_note("ours", [1], on=uuid7(2))
    before = {scope: ground.documents(scope.session_id) for scope in SIBLINGS}
    # In each of two scopes the three kept ones, and latest, which is a document of its own.
    assert store.delete_session("chat") == 8

    assert ground.documents("chat") == []
    assert {scope: ground.documents(scope.session_id) for scope in SIBLINGS} == before
    theirs = ground.theirs(*SCOPE)
    assert (theirs.load(), theirs.load(uuid7(1)), theirs.ids()) == (None, None, [])
    assert list(store.sessions()) == ["cha", "chat-2", "chat2"]
    assert store.delete_session("chat") == 0


def test_we_delete_a_scope_of_theirs(ground: Ground, store: Store) -> None:
    fill(ground)
    store.scope(*SCOPE).delete()
    assert ground.theirs(*SCOPE).load() is None
    assert ground.theirs(*SCOPE).ids() == []
    other = ground.theirs("chat", "team", "multiAgent")
    assert other.ids() == [uuid7(1), uuid7(2), uuid7(3)]
    assert [info.key for info in store.scopes("chat")] == [other.scope]


def test_we_delete_a_snapshot_of_theirs(ground: Ground, store: Store) -> None:
    fill(ground)
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    assert ours.delete_snapshot(uuid7(2)) == 1
    assert ours.delete_snapshot(uuid7(2)) == 0

    assert ours.load(uuid7(2)) is None
    assert [info.id for info in ours.history()] == [uuid7(3), uuid7(1)]
    assert list(ours.ids()) == theirs.ids() == [uuid7(1), uuid7(3)]
    assert theirs.load(uuid7(2)) is None
    assert theirs.load()["data"] == {"number": 3}


def test_we_delete_a_snapshot_of_ours(ground: Ground, store: Store) -> None:
    """A tombstone stands there for a day: the SDK lists its id, and no agent takes it for one."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    first, second, third = (ours.save({"number": number}).id for number in (1, 2, 3))
    assert ours.delete_snapshot(second) == 1
    assert ours.delete_snapshot(second) == 0

    assert ours.load(second) is None
    assert list(ours.ids()) == [first, third]
    assert [info.id for info in ours.history()] == [third, first]
    assert theirs.ids() == [first, second, third]
    tombstone = theirs.load(second)
    assert tombstone["limpet"] == "deleted"
    assert "data" not in tombstone
    with pytest.raises(SdkError, match="Expected snapshot scope 'agent', got 'undefined'"):
        theirs.restore(second)
    assert theirs.load()["data"] == {"number": 3}


def test_they_write_ids_again_that_we_deleted(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    theirs.save(uuid7(1), {"number": 1}, second=1)
    mine = ours.save({"number": 2})
    ours.save({"number": 3}, id=uuid7(3))
    for id in (uuid7(1), mine.id):
        ours.delete_snapshot(id)
        theirs.save(id, {"again": id}, second=9)
        found = ours.load(id)
        assert found is not None
        assert found.state == {"again": id}
    assert list(ours.ids()) == theirs.ids() == [uuid7(1), uuid7(3), mine.id]


def test_we_delete_our_head(ground: Ground, store: Store) -> None:
    """Ours shows the one before; the SDK sees a snapshot that holds nothing."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    first, second = ours.save({"number": 1}), ours.save({"number": 2})
    ours.delete_snapshot(second.id)

    head = ours.load()
    assert head is not None
    assert (head.id, head.state) == (first.id, {"number": 1})
    void = theirs.load()
    assert (void["scope"], void["schemaVersion"], void["data"]) == ("agent", "1.0", {})
    nothing = theirs.restore()
    assert (nothing["messages"], nothing["state"]) == ([], {})
    third = ours.save({"number": 3})
    assert theirs.load()["data"] == {"number": 3}
    assert list(ours.ids()) == [first.id, third.id]


def test_they_delete_a_session_of_ours(ground: Ground, store: Store) -> None:
    for scope in (SCOPE, ScopeKey("chat", "team", "multiAgent"), *SIBLINGS):
        store.scope(*scope).save({"first": True}, labels={"of": "us"})
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    kept = [ours.save({"number": number}).id for number in range(3)]
    ours.set_note("manifest", {"schemaVersion": "1.0"})
    ours.set_note("other", 1, on=kept[0])
    theirs.delete_session()

    assert ground.documents("chat") == []
    with ground.open() as fresh:
        for each in (store, fresh):
            seen = each.scope(*SCOPE)
            assert (seen.load(), seen.info(), seen.load(kept[0])) == (None, None, None)
            assert (list(seen.ids()), list(seen.history())) == ([], [])
            assert (seen.note("manifest"), list(seen.notes(on=kept[0]))) == (None, [])
            assert list(each.sessions()) == ["cha", "chat-2", "chat2"]
            assert list(each.scopes("chat")) == []


def test_no_pointer_leads_to_what_they_deleted(ground: Ground, store: Store) -> None:
    ours = store.scope(*SCOPE)
    kept = ours.save({"number": 1}, labels={"of": "us"})
    ground.theirs(*SCOPE).delete_session()
    if ground.layout.root == "sessions/":
        assert store.find(kept.id) is None
        assert list(store.history()) == []
        assert list(store.history(labels={"of": "us"})) == []
    else:
        for query in (lambda: store.find(kept.id), lambda: list(store.history())):
            with pytest.raises(Unsupported):
                query()


def test_we_begin_again_after_they_deleted(ground: Ground, store: Store) -> None:
    """Also a writer that remembers its last save, which is gone."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    gone = [ours.save({"number": number}).id for number in range(3)]
    theirs.delete_session()
    info = ours.save({"number": 9})
    assert info.parent_id is None
    assert list(ours.ids()) == theirs.ids() == [info.id]
    assert theirs.load()["data"] == {"number": 9}
    assert [ours.load(id) for id in gone] == [None, None, None]
    assert ours.save({"number": 10}).parent_id == info.id


def test_they_begin_again_after_we_deleted(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    gone = ours.save({"number": 1})
    store.delete_session("chat")
    theirs.save_latest({"number": 2}, second=2)
    theirs.save(uuid7(1), {"number": 2}, second=2)
    head = ours.load()
    assert head is not None
    assert head.state == {"number": 2}
    assert list(ours.ids()) == [uuid7(1)]
    assert ours.load(gone.id) is None
