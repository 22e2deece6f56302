"""The suite on the engine in memory, which is not durable: after re-opening it is empty."""

from pathlib import Path

from limpet import opening
from limpet.backends.memory import MemoryStorage
from limpet.engine import Engine
from limpet.engine.rolling import Limits
from limpet.protocol import Backend
from limpet.testing import conformance


class TestMemory(conformance.Suite):
    def open_backend(self, place: Path) -> Backend:
        # Tails are rolled after three snapshots, so that every chapter reads segments.
        tails = Limits(snapshots=3)
        return Engine(MemoryStorage(), clock=opening.CLOCK, draw=opening.draw, tails=tails)
