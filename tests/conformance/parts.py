"""Parts of the suite for the fast tests. The slow ones run all of it, in both faces."""

import pytest

from limpet.testing import conformance
from limpet.testing.conformance import Face
from limpet.testing.conformance.across import Across
from limpet.testing.conformance.appending import Appending
from limpet.testing.conformance.damage import Damage
from limpet.testing.conformance.deleting import Deleting
from limpet.testing.conformance.drafts import Drafts
from limpet.testing.conformance.engine import EngineSeam
from limpet.testing.conformance.exactness import Exactness
from limpet.testing.conformance.forking import Forking
from limpet.testing.conformance.leasing import Leasing
from limpet.testing.conformance.lines import Lines
from limpet.testing.conformance.listing import Listing
from limpet.testing.conformance.notes import Notes
from limpet.testing.conformance.order import Order
from limpet.testing.conformance.promises import Promises
from limpet.testing.conformance.pruning import Pruning
from limpet.testing.conformance.reading import Reading
from limpet.testing.conformance.repeating import Repeating
from limpet.testing.conformance.saving import Saving
from limpet.testing.conformance.threads import Threads
from limpet.testing.conformance.updating import Updating
from limpet.testing.conformance.upkeep import Upkeep
from limpet.testing.conformance.watching import Watching


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
