"""The suite on a directory."""

from pathlib import Path

import pytest

from holdfast import opening
from holdfast.core.layout import listing_order
from holdfast.protocol import Backend
from holdfast.testing import conformance


class TestDirectory(conformance.Suite):
    def open_backend(self, place: Path) -> Backend:
        # What a power cut does is not tested here, and without syncing it is much faster.
        return opening.open_backend(f"file://{place}/store", sync=False)

    def order(self, name: str, *, folder: bool = False) -> str:
        return listing_order(name)


@pytest.mark.slow
class TestStrandsRoot(conformance.Suite):
    """The root of the Strands storages: no folder above the sessions, and no index."""

    def open_backend(self, place: Path) -> Backend:
        return opening.open_backend(f"file://{place}/store", sync=False, root="")

    def order(self, name: str, *, folder: bool = False) -> str:
        return listing_order(name)
