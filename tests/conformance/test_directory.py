"""The suite on a directory."""

from pathlib import Path

import pytest

from limpet import opening
from limpet.core.layout import listing_order
from limpet.protocol import Backend
from limpet.testing import conformance
from limpet.testing.conformance.leasing import Leasing
from limpet.testing.conformance.watching import Watching
from tests.conformance.parts import Async, Stored, Sync


class OnDirectory(conformance.Kit):
    def open_backend(self, place: Path) -> Backend:
        # What a power cut does is not tested here, and without syncing it is much faster.
        return opening.open_backend(f"file://{place}/store", sync=False)

    def order(self, name: str, *, folder: bool = False) -> str:
        return listing_order(name)


class TestDirectory(Sync, OnDirectory, Stored):
    """The chapters that depend on the engine."""


class TestDirectoryAsync(Async, OnDirectory, Leasing, Watching):
    """The chapters that are about more than one caller."""


@pytest.mark.slow
class TestDirectoryAtLength(OnDirectory, conformance.Suite):
    """Every chapter, in both faces."""


@pytest.mark.slow
class TestStrandsRoot(OnDirectory, conformance.Suite):
    """The root of the Strands storages: no folder above the sessions, and no index."""

    def open_backend(self, place: Path) -> Backend:
        return opening.open_backend(f"file://{place}/store", sync=False, root="")
