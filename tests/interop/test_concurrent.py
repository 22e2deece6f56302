"""Both sides write the same scope at the same time."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from limpet import JSON, ScopeKey
from tests.interop.ground import LAYOUTS, Ground
from tests.interop.places import Place
from tests.interop.sdk import Sdk, Theirs, snapshot, uuid7

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the SDK

SCOPE = ScopeKey("chat-42", "planner")
LAYOUTS_HERE = ("classic", "unified")
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


def test_what_we_saved_survives_a_storm(ground: Ground) -> None:
    """The latest is the last one's, whole; what is in history stays."""
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    saved = list[str]()
    with storm(theirs, snapshot({"by": "them"})) as numbers:
        for number in numbers:
            ours.save(uuid7(number), {"number": number})
            ours.save_latest({"by": "us"})
            saved.append(uuid7(number))
            assert ours.load()["data"]["by"] in ("us", "them")
    assert ours.ids() == theirs.ids() == saved
    assert [ours.load(id)["data"] for id in saved] == [{"number": n} for n in range(len(saved))]
    ours.save_latest({"by": "us"})
    assert theirs.load()["data"] == {"by": "us"}


def test_their_deletes_leave_us_in_order(ground: Ground) -> None:
    """What they delete is gone; what we save then is whole."""
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    with storm(theirs, None) as numbers:
        for number in numbers:
            ours.save(uuid7(number), {"number": number})
            found = ours.load(uuid7(number))
            assert found is None or found["data"] == {"number": number}
    theirs.delete_session()
    assert (ours.load(), ours.ids(), ground.documents(SCOPE.session_id)) == (None, [], [])
    ours.save(uuid7(1), {"number": "first"})
    assert ours.ids() == theirs.ids() == [uuid7(1)]
