"""One side of a comparison. Each framework has a module here that opens both.

The module `openai`, for example, has `ours(folder)` and `theirs(folder)`, and `ABOUT`, which says
what a turn is. It runs in the environment of the framework.
"""

from abc import ABC, abstractmethod
from pathlib import Path


class Side(ABC):
    """A store under a framework, with one conversation in it. Both sides stay open all the time."""

    title: str

    @abstractmethod
    async def turn(self, question: str, answer: str) -> None:
        """Do what the framework does in a turn: read the conversation, and store what is new."""

    @abstractmethod
    async def count(self) -> int:
        """Return how many messages are stored: two a turn."""

    @abstractmethod
    async def close(self) -> None:
        """Close everything, so that the files are as they stay."""

    @property
    @abstractmethod
    def path(self) -> Path:
        """The file or folder in which everything is stored."""
