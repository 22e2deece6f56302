"""Both sides write the same scope in turn."""

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from limpet import Conflict, Scope, ScopeKey, SnapshotInfo, Store
from tests.interop.ground import Ground
from tests.interop.sdk import snapshot, uuid7

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the SDK

SCOPE = ScopeKey("chat-42", "planner")


def newest_first(scope: Scope) -> list[str]:
    return [info.id for info in scope.history()]


def test_what_we_kept_survives_what_they_overwrite(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    kept: list[SnapshotInfo] = []
    for turn in range(5):
        kept.append(ours.save({"turn": turn, "by": "us"}))
        theirs.save_latest({"turn": turn, "by": "them"}, second=turn)
        head = ours.load()
        assert head is not None
        assert head.state == {"turn": turn, "by": "them"}
        assert not head.kept
    assert newest_first(ours) == [info.id for info in reversed(kept)]
    assert list(ours.ids()) == sorted(info.id for info in kept) == theirs.ids()
    # The parent of each is the newest kept one before it: latest of theirs is in nobody's history.
    assert [info.parent_id for info in kept] == [None, *(info.id for info in kept[:-1])]
    for turn, info in enumerate(kept):
        found = ours.load(info.id)
        assert found is not None
        assert found.state == {"turn": turn, "by": "us"}
        assert found.revision == info.revision
        assert theirs.load(info.id)["data"] == {"turn": turn, "by": "us"}


def test_a_second_process_sees_the_same(ground: Ground, store: Store) -> None:
    """Every save by another store than the last: nobody relies on what it remembers."""
    theirs = ground.theirs(*SCOPE)
    kept = []
    for turn in range(4):
        with ground.open() as fresh:
            kept.append(fresh.scope(*SCOPE).save({"turn": turn}).id)
        theirs.save_latest({"turn": "theirs"}, second=turn)
        kept.append(store.scope(*SCOPE).save({"turn": turn + 0.5}).id)
    assert list(store.scope(*SCOPE).ids()) == sorted(kept) == kept
    assert newest_first(store.scope(*SCOPE)) == kept[::-1]


def test_expect_notices_their_save(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    mine = ours.save({"turn": 1})
    theirs.save_latest({"turn": 2}, second=2)
    for stale in (mine.revision, None):
        with pytest.raises(Conflict):
            ours.save({"turn": "lost"}, expect=stale)
    assert theirs.load()["data"] == {"turn": 2}
    assert newest_first(ours) == [mine.id]

    seen = ours.load()
    assert seen is not None
    theirs.save_latest({"turn": 3}, second=3)
    with pytest.raises(Conflict):
        ours.save({"turn": "lost"}, expect=seen.revision)
    again = ours.load()
    assert again is not None
    assert again.revision != seen.revision
    second = ours.save({"turn": 4}, expect=again.revision)
    assert theirs.load()["data"] == {"turn": 4}
    assert newest_first(ours) == [second.id, mine.id]


def test_the_same_bytes_again_are_the_same_revision(ground: Ground, store: Store) -> None:
    """A save of theirs that changes nothing is no conflict: nothing tells it from none."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    theirs.save_latest({"turn": 1}, second=1)
    seen = ours.load()
    assert seen is not None
    theirs.save_latest({"turn": 1}, second=1)
    ours.save({"turn": 2}, expect=seen.revision)
    assert theirs.load()["data"] == {"turn": 2}


def test_expect_none_is_for_an_empty_scope(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    theirs.save_latest({"turn": 1})
    with pytest.raises(Conflict):
        ours.save({"turn": 2}, expect=None)
    theirs.delete_session()
    ours.save({"turn": 2}, expect=None)
    assert theirs.load()["data"] == {"turn": 2}


def test_we_append_to_their_latest(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    theirs.save_latest({"messages": ["a"], "state": {"k": "v"}})
    first = ours.append("messages", ["b"])
    assert theirs.load()["data"] == {"messages": ["a", "b"], "state": {"k": "v"}}
    theirs.save_latest({"messages": ["a", "b", "c"], "state": {}}, second=1)
    seen = ours.info()
    assert seen is not None
    second = ours.append("messages", ["d"], expect=seen.revision)
    assert theirs.load(second.id)["data"] == {"messages": ["a", "b", "c", "d"], "state": {}}
    assert theirs.ids() == [first.id, second.id]
    with pytest.raises(Conflict):
        ours.append("messages", ["e"], expect=seen.revision)


def test_drafts_of_ours_and_latest_of_theirs_replace_each_other(
    ground: Ground, store: Store
) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    kept = ours.save({"turn": 0})
    for turn in range(1, 4):
        ours.save({"turn": turn, "by": "us"}, keep=False)
        assert theirs.load()["data"] == {"turn": turn, "by": "us"}
        theirs.save_latest({"turn": turn, "by": "them"}, second=turn)
        head = ours.load()
        assert head is not None
        assert head.state == {"turn": turn, "by": "them"}
    assert newest_first(ours) == [kept.id]


def test_history_of_both_is_ordered_by_time(ground: Ground, store: Store) -> None:
    """Theirs stand where their own time puts them among ours."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    kept = [ours.save({"number": 0})]
    while len(kept) < 4:
        kept.append(ours.save({"number": len(kept)}))
        gap = kept[-1].created_at - kept[-2].created_at
        if gap.total_seconds() < 0.002:  # too close for milliseconds to fit between
            ours.delete_snapshot(kept.pop().id)
    expected = []
    for number, (before, after) in enumerate(pairwise(kept)):
        middle = before.created_at + (after.created_at - before.created_at) / 2
        text = middle.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        between = datetime.fromisoformat(text)
        assert before.created_at < between < after.created_at
        theirs.put(uuid7(number), snapshot({"between": number}) | {"createdAt": text})
        expected += [before.id, uuid7(number)]
    expected.append(kept[-1].id)
    assert newest_first(ours) == expected[::-1]
    assert sorted(expected) == list(ours.ids()) == theirs.ids()
    last = ours.save({"number": 5})
    assert newest_first(ours) == [last.id, *expected[::-1]]


def test_history_of_theirs_does_not_move_our_head(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    mine = ours.save({"by": "us"})
    theirs.save(uuid7(1), {"by": "them"}, second=1)
    head = ours.load()
    assert head is not None
    assert (head.id, head.revision) == (mine.id, mine.revision)
    assert ours.save({"by": "us again"}, expect=mine.revision).parent_id == mine.id


def test_they_overwrite_a_copy_of_ours(ground: Ground, store: Store) -> None:
    """Their storage overwrites any id without asking. What is there then is what we show."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    first = ours.save({"by": "us"}, labels={"a": "b"})
    second = ours.save({"by": "us", "second": True})
    theirs.save(first.id, {"by": "them"}, second=1)
    found = ours.load(first.id)
    assert found is not None
    assert found.state == {"by": "them"}
    assert found.labels == {}
    assert found.revision != first.revision
    assert list(ours.ids()) == [first.id, second.id]
    third = ours.save({"third": True})
    assert list(ours.ids()) == [first.id, second.id, third.id]
    assert theirs.load(first.id)["data"] == {"by": "them"}


def test_they_overwrite_the_copy_of_our_head(ground: Ground, store: Store) -> None:
    """The head is the authority for its own id, until another takes its place."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    first = ours.save({"by": "us"})
    theirs.save(first.id, {"by": "them"}, second=1)
    head, by_id = ours.load(), ours.load(first.id)
    assert head is not None
    assert by_id is not None
    assert head.state == by_id.state == {"by": "us"}
    assert newest_first(ours) == [first.id]
