"""The conformance suite: what every engine must do, in both faces.

An engine of your own is put to the test with one class::

    from holdfast.testing import conformance

    class TestMyEngine(conformance.Suite):
        def open_backend(self, place):
            return MyBackend(place / "x")

`place` is an empty folder; `open_backend` is called with it again to re-open what was stored there.
What an engine cannot do (see `Backend.capabilities`) is tested as a refusal, never skipped. To be
put to the test with damaged storage, a durable engine that keeps its bytes anywhere but in files of
that folder overrides `Suite.damage` as well.
"""

from holdfast.testing.conformance._faces import Face
from holdfast.testing.conformance._kit import Kit
from holdfast.testing.conformance.across import Across
from holdfast.testing.conformance.appending import Appending
from holdfast.testing.conformance.bad_input import BadInput
from holdfast.testing.conformance.damage import Damage
from holdfast.testing.conformance.deleting import Deleting
from holdfast.testing.conformance.drafts import Drafts
from holdfast.testing.conformance.engine import EngineSeam
from holdfast.testing.conformance.exactness import Exactness
from holdfast.testing.conformance.faces import Faces
from holdfast.testing.conformance.forking import Forking
from holdfast.testing.conformance.leasing import Leasing
from holdfast.testing.conformance.lines import Lines
from holdfast.testing.conformance.listing import Listing
from holdfast.testing.conformance.notes import Notes
from holdfast.testing.conformance.order import Order
from holdfast.testing.conformance.promises import PROMISES, Promises
from holdfast.testing.conformance.pruning import Pruning
from holdfast.testing.conformance.reading import Reading
from holdfast.testing.conformance.repeating import Repeating
from holdfast.testing.conformance.saving import Saving
from holdfast.testing.conformance.threads import Threads
from holdfast.testing.conformance.updating import Updating
from holdfast.testing.conformance.upkeep import Upkeep
from holdfast.testing.conformance.watching import Watching

__all__ = ["PROMISES", "Face", "Kit", "Sequential", "Suite"]


class Sequential(
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
    BadInput,
    Faces,
    EngineSeam,
):
    """Every chapter that needs one thread only."""


class Suite(Sequential, Threads, Leasing, Watching):
    """Every chapter. Derive a class named `Test…` from it and say how to open your engine."""
