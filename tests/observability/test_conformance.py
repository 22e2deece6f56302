"""An engine that is observed keeps every promise."""

from pathlib import Path

import pytest

from limpet.opening import open_backend
from limpet.protocol import Backend
from limpet.testing import conformance
from limpet.testing.conformance.backend import BackendPromises
from tests.conformance.parts import Sync


class OnObserved(conformance.Kit):
    def open_backend(self, place: Path) -> Backend:
        url = f"sqlite:///{place / 'limpet.db'}?synchronous=off"
        return open_backend(url, otel=True, slow_s=600)


class TestObserved(OnObserved, BackendPromises):
    """The chapter about the engine itself."""


@pytest.mark.slow
class TestObservedAtLength(Sync, OnObserved, conformance.Suite):
    """Every chapter."""
