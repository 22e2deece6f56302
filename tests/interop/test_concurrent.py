"""Both sides write the same scope at the same time."""

import pytest

from limpet import ScopeKey
from tests.interop.ground import LAYOUTS, Ground
from tests.interop.places import Place
from tests.interop.sdk import Sdk, snapshot, uuid7

SCOPE = ScopeKey("chat-42", "planner")
SAVES = 10
CALLS = 12


@pytest.fixture(params=["classic", "unified"])
def ground(sdk: Sdk, place: Place, request: pytest.FixtureRequest) -> Ground:
    return Ground(sdk, LAYOUTS[request.param], place)


def test_what_we_saved_survives_a_storm(ground: Ground) -> None:
    """They save the latest again and again. It is the last one's, whole; history stays."""
    ours, theirs = ground.ours(*SCOPE), ground.theirs(*SCOPE)
    number, saved, taken = 0, list[str](), snapshot({"by": "them"})
    theirs.ask("startStorm", name="storm", location=theirs.location, snapshot=taken)
    try:
        while number < SAVES or theirs.ask("watchStorm", name="storm", calls=2) < CALLS:
            saved.append(uuid7(number))
            ours.save(saved[-1], {"number": number})
            ours.save_latest({"by": "us"})
            assert ours.load()["data"]["by"] in ("us", "them")
            number += 1
    finally:
        theirs.ask("stopStorm", name="storm")
    assert ours.ids() == theirs.ids() == saved
    assert [ours.load(id)["data"] for id in saved] == [{"number": n} for n in range(number)]
    ours.save_latest({"by": "us"})
    assert theirs.load()["data"] == {"by": "us"}
