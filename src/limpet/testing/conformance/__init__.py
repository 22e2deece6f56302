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

from limpet.testing.conformance.backend import BackendPromises
from limpet.testing.conformance.bad_input import BadInput
from limpet.testing.conformance.comfort import Comfort
from limpet.testing.conformance.functions import Functions
from limpet.testing.conformance.leasing import Leasing
from limpet.testing.conformance.listing import Listing
from limpet.testing.conformance.programs import Programs, Verbs
from limpet.testing.conformance.promises import PROMISES, Promises
from limpet.testing.conformance.sync_async import SyncAsync
from limpet.testing.conformance.threads import Threads
from limpet.testing.conformance.watching import Watching
from limpet.testing.kit import Api, Kit

__all__ = ["PROMISES", "Api", "Kit", "Suite"]


class Suite(
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
    BadInput,
    SyncAsync,
):
    """Every chapter. Derive a class named `Test…` from it and say how to open your engine."""
