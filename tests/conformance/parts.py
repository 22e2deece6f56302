"""Selections of chapters: what runs on which engine.

Every chapter runs with both APIs on memory. The async API of the other engines hands
the same calls to the same threads; the programs use both APIs on every engine.
"""

import pytest
from hypothesis import settings

from limpet.testing import conformance
from limpet.testing.conformance import Api
from limpet.testing.conformance.backend import BackendPromises
from limpet.testing.conformance.bad_input import BadInput
from limpet.testing.conformance.comfort import Comfort
from limpet.testing.conformance.functions import Functions
from limpet.testing.conformance.leasing import Leasing
from limpet.testing.conformance.listing import Listing
from limpet.testing.conformance.programs import Programs, Verbs
from limpet.testing.conformance.promises import Promises
from limpet.testing.conformance.sync_async import SyncAsync
from limpet.testing.conformance.threads import Threads
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
    Programs,
    Promises,
    Verbs,
    Functions,
    Listing,
    Comfort,
    BackendPromises,
    Threads,
    Leasing,
    Watching,
):
    """Every chapter that depends on the engine."""


class AboveEngine(BadInput, SyncAsync):
    """The chapters about code above the engine: refused arguments, and how the two APIs relate."""


class InBoth(Threads, Leasing, Watching):
    """The chapters about more than one caller."""


def some(examples: int, steps: int = 30) -> settings:
    """Return how many random programs an engine runs, and how long they are."""
    return settings(Programs.programs, max_examples=examples, stateful_step_count=steps)
