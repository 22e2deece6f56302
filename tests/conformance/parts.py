"""Selections of chapters: what runs on which engine.

Every chapter runs with both APIs on memory and on SQLite. The async API of the other engines hands
the same calls to the same threads, so `InBoth` is enough there.
"""

import pytest

from limpet.testing import conformance
from limpet.testing.conformance import Api
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
from limpet.testing.conformance.promises import Promises
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


class Sync(conformance.Kit):
    """The sync API only."""

    @pytest.fixture(params=["sync"])
    def api(self, request: pytest.FixtureRequest) -> Api:
        api: Api = request.param
        return api


class Async(conformance.Kit):
    """The async API only."""

    @pytest.fixture(params=["async"])
    def api(self, request: pytest.FixtureRequest) -> Api:
        api: Api = request.param
        return api


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
    Redacting,
    Branching,
    Forking,
    StoreHistory,
    Pruning,
    Upkeep,
    Comfort,
    BackendPromises,
    Threads,
    Leasing,
    Watching,
):
    """Every chapter that depends on the engine."""


class AboveEngine(BadInput, SyncAsync):
    """The chapters about code above the engine: refused arguments, and how the two APIs relate."""


class InBoth(Promises, Comfort, Watching):
    """The chapters that also run with the async API, on an engine whose other chapters do not."""


class Transactional(Saving, Drafts, Repeating, Appending, Updating, Deleting, Threads, Leasing):
    """The chapters that depend on transactions."""
