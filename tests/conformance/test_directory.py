"""The suite on a directory."""

from pathlib import Path

import pytest

from limpet import opening
from limpet.core.names import name_of
from limpet.protocol import Backend
from limpet.testing import conformance
from tests.conformance.parts import AboveEngine, Async, InBoth, Stored, Sync


class OnDirectory(conformance.Kit):
    def open_backend(self, place: Path) -> Backend:
        # What a power cut does is not tested here, and without syncing it is much faster.
        return opening.open_backend(f"file://{place}/store", sync=False)

    def folder_order(self, name: str) -> str:
        return f"{name_of(name)}."


class TestDirectory(Sync, OnDirectory, Stored):
    pass


class TestDirectoryAsync(Async, OnDirectory, InBoth):
    pass


@pytest.mark.slow
class TestAboveDirectory(Sync, OnDirectory, AboveEngine):
    pass
