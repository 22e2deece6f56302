"""Both sides write the same scope at the same time."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from limpet import JSON, ScopeKey, Store, Unavailable
from tests.interop.ground import LAYOUTS, Ground
from tests.interop.places import Place
from tests.interop.sdk import Sdk, Theirs, snapshot

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the SDK

SCOPE = ScopeKey("chat-42", "planner")
LAYOUTS_HERE = ("ours", "unified")  # with an index and without; the families write alike
SAVES = 10
CALLS = 12
TRIES_MAX = 500


@pytest.fixture(params=LAYOUTS_HERE)
def ground(sdk: Sdk, place: Place, request: pytest.FixtureRequest) -> Ground:
    return Ground(sdk, LAYOUTS[request.param], place)


@contextmanager
def storm(theirs: Theirs, taken: JSON) -> Iterator[Iterator[int]]:
    """Let the SDK save latest again and again, or delete the session if there is nothing to save.

    Gives numbers, at least `SAVES` of them, until the SDK has called `CALLS` times.
    """

    def numbers() -> Iterator[int]:
        for number in range(TRIES_MAX):
            yield number
            if number >= SAVES and theirs.ask("watchStorm", name="storm", calls=0) >= CALLS:
                return

    theirs.ask("startStorm", name="storm", location=theirs.location, snapshot=taken)
    try:
        theirs.ask("watchStorm", name="storm", calls=2)
        yield numbers()
    finally:
        theirs.ask("stopStorm", name="storm")


def test_what_we_acknowledged_survives_a_storm(ground: Ground, store: Store) -> None:
    """Their blind overwrites may take a draft of ours, and nothing that is kept."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    acknowledged = {ours.save({"number": -1}).id: -1}
    with storm(theirs, snapshot({"by": "them"})) as numbers:
        for number in numbers:
            try:
                acknowledged[ours.save({"number": number}).id] = number
            except Unavailable as error:
                # Their overwrite wiped the traces by which a writer finds out about itself.
                assert not error.outcome_known  # noqa: PT017
    assert len(acknowledged) > SAVES // 2

    last = ours.save({"number": "last"})
    assert next(ours.history()).id == last.id
    with ground.open() as fresh:
        for each in (store, fresh):
            seen = each.scope(*SCOPE)
            assert acknowledged.keys() <= {info.id for info in seen.history()}
            assert acknowledged.keys() <= set(seen.ids())
            found = {snap.id: snap.state["number"] for snap in seen.load_many(acknowledged)}
            assert found == acknowledged
            head = seen.load()
            assert head is not None
            assert head.id == last.id
    assert acknowledged.keys() <= set(theirs.ids())


def test_updates_survive_a_storm(ground: Ground, store: Store) -> None:
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    older, newer = ours.save({"count": 0}), ours.save({"count": 0})
    done = {older.id: 0, newer.id: 0}
    unsure = 0
    with storm(theirs, snapshot({"by": "them"})) as numbers:
        for number in numbers:
            id = (older.id, newer.id)[number % 2]
            try:
                ours.update(id, lambda was: was.with_(state={"count": was.state["count"] + 1}))
                done[id] += 1
            except Unavailable as error:
                assert not error.outcome_known  # noqa: PT017
                unsure += 1
    for id, count in done.items():
        found = ours.load(id)
        assert found is not None
        assert count <= found.state["count"] <= count + unsure
    assert [info.id for info in ours.history()] == [newer.id, older.id]


def test_their_deletes_leave_us_in_order(ground: Ground, store: Store) -> None:
    """What they delete is gone; what we save then is whole, or we say that nobody can tell."""
    ours, theirs = store.scope(*SCOPE), ground.theirs(*SCOPE)
    states: dict[str, int] = {}
    with storm(theirs, None) as numbers:
        for number in numbers:
            try:
                states[ours.save({"number": number}).id] = number
            except Unavailable as error:
                assert not error.outcome_known  # noqa: PT017
            for snap in ours.load_many(list(states)):
                assert snap.state == {"number": states[snap.id]}
    theirs.delete_session()
    assert ours.load() is None
    assert (list(ours.ids()), list(ours.history())) == ([], [])
    assert ground.documents(SCOPE.session_id) == []
    first = ours.save({"number": "first"})
    assert first.parent_id is None
    assert [info.id for info in ours.history()] == theirs.ids() == [first.id]
