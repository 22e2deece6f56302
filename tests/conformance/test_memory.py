"""The suite on the engine in memory, which is not durable: after re-opening it is empty."""

from pathlib import Path

from limpet.backends.memory import MemoryBackend
from limpet.protocol import Backend
from limpet.testing import conformance


class TestMemory(conformance.Suite):
    def open_backend(self, place: Path) -> Backend:
        return MemoryBackend()
