"""The suite on the engine in memory, which is not durable: after re-opening it is empty."""

from pathlib import Path

from limpet import opening
from limpet.protocol import Backend
from limpet.testing import conformance


class TestMemory(conformance.Suite):
    def open_backend(self, place: Path) -> Backend:
        # With the tails that users get: SQLite passes the suite with short ones.
        return opening.open_backend("memory:")
