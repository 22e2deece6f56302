"""Parts of the suite for the fast tests. The slow ones run all of it, in both faces."""

import pytest

from holdfast.testing import conformance
from holdfast.testing.conformance import Face
from holdfast.testing.conformance.across import Across
from holdfast.testing.conformance.appending import Appending
from holdfast.testing.conformance.damage import Damage
from holdfast.testing.conformance.deleting import Deleting
from holdfast.testing.conformance.drafts import Drafts
from holdfast.testing.conformance.engine import EngineSeam
from holdfast.testing.conformance.exactness import Exactness
from holdfast.testing.conformance.forking import Forking
from holdfast.testing.conformance.leasing import Leasing
from holdfast.testing.conformance.lines import Lines
from holdfast.testing.conformance.listing import Listing
from holdfast.testing.conformance.notes import Notes
from holdfast.testing.conformance.order import Order
from holdfast.testing.conformance.promises import Promises
from holdfast.testing.conformance.pruning import Pruning
from holdfast.testing.conformance.reading import Reading
from holdfast.testing.conformance.repeating import Repeating
from holdfast.testing.conformance.saving import Saving
from holdfast.testing.conformance.threads import Threads
from holdfast.testing.conformance.updating import Updating
from holdfast.testing.conformance.upkeep import Upkeep
from holdfast.testing.conformance.watching import Watching


class Sync(conformance.Kit):
    """Through one face only: the other one just hands the calls to threads."""

    @pytest.fixture(params=["sync"])
    def face(self, request: pytest.FixtureRequest) -> Face:
        face: Face = request.param
        return face


class Async(conformance.Kit):
    """Through the other face only."""

    @pytest.fixture(params=["async"])
    def face(self, request: pytest.FixtureRequest) -> Face:
        face: Face = request.param
        return face


class Stored(
    Promises,
    Exactness,
    Order,
    Damage,
    Saving,
    Drafts,
    Repeating,
    Appending,
    Updating,
    Reading,
    Listing,
    Notes,
    Deleting,
    Lines,
    Forking,
    Across,
    Pruning,
    Upkeep,
    EngineSeam,
    Threads,
    Leasing,
    Watching,
):
    """What depends on the engine: not what is refused before it is asked, and not the faces."""
