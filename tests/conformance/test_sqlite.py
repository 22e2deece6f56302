"""The suite on SQLite."""

from pathlib import Path

import pytest

from limpet import opening
from limpet.protocol import Backend
from limpet.testing import conformance
from limpet.testing.conformance.comfort import Comfort
from limpet.testing.conformance.leasing import Leasing
from limpet.testing.conformance.promises import Promises
from limpet.testing.conformance.sync_async import SyncAsync
from limpet.testing.conformance.threads import Threads
from limpet.testing.conformance.watching import Watching
from tests.conformance.parts import Async, Sync


class OnSqlite(conformance.Kit):
    def open_backend(self, place: Path) -> Backend:
        # What a power cut does is not tested here, and without syncing it is much faster.
        return opening.open_backend(f"sqlite:///{place / 'limpet.db'}", synchronous="off")


class TestSqlite(Sync, OnSqlite, conformance.Suite):
    """Every chapter."""


class TestSqliteAsync(Async, OnSqlite, Promises, Comfort, SyncAsync, Threads, Leasing, Watching):
    """The chapters that are about more than one caller, or about both APIs."""


@pytest.mark.slow
class TestSqliteAtLength(Async, conformance.Suite):
    """Every chapter, with the settings that a user gets."""

    def open_backend(self, place: Path) -> Backend:
        return opening.open_backend(f"sqlite:///{place / 'limpet.db'}")
