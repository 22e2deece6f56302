"""Both sides write the same scope at the same time."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast import ScopeKey, Store, Unavailable
from tests.interop.ground import Ground
from tests.interop.sdk import Theirs, snapshot

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the SDK

SCOPE = ScopeKey("chat-42", "planner")
SAVES = 25


@contextmanager
def storm(theirs: Theirs) -> Iterator[list[int]]:
    """Let the SDK save latest again and again. Gives how many saves that were, at the end."""
    saves: list[int] = []
    taken = snapshot({"by": "them"})
    theirs.ask("startStorm", name="storm", location=theirs.location, snapshot=taken)
    try:
        theirs.ask("watchStorm", name="storm", saves=3)
        yield saves
    finally:
        saves.append(theirs.ask("stopStorm", name="storm"))


def test_what_we_acknowledged_survives_a_storm(ground: Ground, store: Store) -> None:
    """Their blind overwrites may take a draft of ours, and nothing that is kept."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    acknowledged = {ours.save({"number": "first"}).id: "first"}
    with storm(theirs) as saves:
        for number in range(SAVES):
            try:
                acknowledged[ours.save({"number": number}).id] = str(number)
            except Unavailable as error:
                # Their overwrite wiped the traces by which a writer finds out about itself.
                assert not error.outcome_known  # noqa: PT017
    assert saves[0] > 3
    assert len(acknowledged) > SAVES // 2

    for each in (ours, store.scope(*SCOPE)):
        listed = {info.id for info in each.history()}
        assert acknowledged.keys() <= listed
        assert acknowledged.keys() <= set(each.ids())
        for id, text in acknowledged.items():
            found = each.load(id)
            assert found is not None
            assert str(found.state["number"]) == text
    assert acknowledged.keys() <= set(theirs.ids())
    last = ours.save({"number": "last"})
    assert next(ours.history()).id == last.id
    head = ours.load()
    assert head is not None
    assert head.id == last.id


def test_updates_survive_a_storm(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    older, newer = ours.save({"count": 0}), ours.save({"count": 0})
    done = {older.id: 0, newer.id: 0}
    with storm(theirs):
        for number in range(SAVES):
            id = (older.id, newer.id)[number % 2]
            try:
                ours.update(id, lambda was: was.with_(state={"count": was.state["count"] + 1}))
                done[id] += 1
            except Unavailable as error:
                assert not error.outcome_known  # noqa: PT017
    for id, count in done.items():
        found = ours.load(id)
        assert found is not None
        assert found.state["count"] >= count
    assert [info.id for info in ours.history()] == [newer.id, older.id]
