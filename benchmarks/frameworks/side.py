"""One side of a comparison. Each framework has a module here that opens both.

The module `openai`, for example, has `ours(folder)` and `theirs(folder)`, and `ABOUT`, which says
what a turn is. It runs in the environment of the framework.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import limpet


class Side(ABC):
    """A store under a framework, with one conversation in it. Both sides stay open all the time.

    Everything is stored at `path`, a file or a folder. After `close` its files are as they stay.
    """

    def __init__(self, title: str, path: Path, close: Callable[[], object] = lambda: None) -> None:
        self.title = title
        self.path = path
        self.close = close

    @abstractmethod
    async def turn(self, question: str, answer: str) -> None:
        """Do what the framework does in a turn: read the conversation, and store what is new."""

    @abstractmethod
    async def count(self) -> int:
        """Return how many messages are stored: two a turn."""


def limpet_in(folder: Path) -> tuple[Path, limpet.Store]:
    """Return the file of a new store, and the store."""
    path = folder / "limpet.db"
    return path, limpet.open(f"sqlite:///{path}")
