"""The suite on the engine in memory, which is not durable: a place re-opened is empty."""

from pathlib import Path

from holdfast.backends.memory import MemoryBackend
from holdfast.protocol import Backend
from holdfast.testing import conformance


class TestMemory(conformance.Suite):
    def open_backend(self, place: Path) -> Backend:
        return MemoryBackend()
