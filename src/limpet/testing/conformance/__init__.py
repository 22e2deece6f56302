"""The conformance suite: what every engine must do, with the sync and the async API.

To test an engine of your own, write one class::

    from limpet.testing import conformance

    class TestMyEngine(conformance.Suite):
        def open_backend(self, place):
            return MyBackend(place / "x")

`place` is an empty folder; `open_backend` is called with it again to re-open what was stored there.
What an engine cannot do (see `Backend.capabilities`) is tested as a refusal, never skipped. A
durable engine that keeps its bytes anywhere but in files of that folder also overrides
`Suite.damage`.
"""

from limpet.testing.conformance._apis import Api
from limpet.testing.conformance._kit import Kit
from limpet.testing.conformance.appending import Appending
from limpet.testing.conformance.backend import BackendPromises
from limpet.testing.conformance.bad_input import BadInput
from limpet.testing.conformance.branching import Branching
from limpet.testing.conformance.comfort import Comfort
from limpet.testing.conformance.damage import Damage
from limpet.testing.conformance.deleting import Deleting
from limpet.testing.conformance.drafts import Drafts
from limpet.testing.conformance.exactness import Exactness
from limpet.testing.conformance.forking import Forking
from limpet.testing.conformance.leasing import Leasing
from limpet.testing.conformance.listing import Listing
from limpet.testing.conformance.notes import Notes
from limpet.testing.conformance.order import Order
from limpet.testing.conformance.promises import PROMISES, Promises
from limpet.testing.conformance.pruning import Pruning
from limpet.testing.conformance.reading import Reading
from limpet.testing.conformance.redacting import Redacting
from limpet.testing.conformance.repeating import Repeating
from limpet.testing.conformance.saving import Saving
from limpet.testing.conformance.store_history import StoreHistory
from limpet.testing.conformance.sync_async import SyncAsync
from limpet.testing.conformance.threads import Threads
from limpet.testing.conformance.updating import Updating
from limpet.testing.conformance.upkeep import Upkeep
from limpet.testing.conformance.watching import Watching

__all__ = ["PROMISES", "Api", "Kit", "Sequential", "Suite"]


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
    Redacting,
    Branching,
    Forking,
    StoreHistory,
    Pruning,
    Upkeep,
    BadInput,
    SyncAsync,
    Comfort,
    BackendPromises,
):
    """Every chapter that needs one thread only."""


class Suite(Sequential, Threads, Leasing, Watching):
    """Every chapter. Derive a class named `Test…` from it and say how to open your engine."""
