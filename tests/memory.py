"""The engine in memory, for tests that change one of its methods."""

from limpet import opening
from limpet.backends.memory import MemoryStorage
from limpet.engine import Engine


class Memory(Engine):
    def __init__(self) -> None:
        super().__init__(MemoryStorage(), clock=opening.CLOCK, draw=opening.draw)
