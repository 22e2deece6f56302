"""Chance that replays: the same seed gives the same throws, on every machine and Python."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_MASK = (1 << 64) - 1


class Dice:
    """A small linear congruential generator; good enough to choose who goes next, and fast."""

    def __init__(self, seed: int) -> None:
        self._state = (seed * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) & _MASK
        for _ in range(4):
            self.below(2)

    def below(self, limit: int) -> int:
        """Return a number from 0 to `limit` - 1."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) & _MASK
        # The upper bits are mixed in once more: the generator's lower ones hardly vary.
        mixed = (self._state ^ (self._state >> 29)) * 0xBF58476D1CE4E5B9 & _MASK
        return (mixed >> 32) * limit >> 32

    def chance(self, per_mille: int) -> bool:
        """Return True so often in a thousand throws."""
        return self.below(1000) < per_mille

    def choice(self, items: Sequence[T]) -> T:
        """Return one of them."""
        return items[self.below(len(items))]

    def bits(self, count: int) -> int:
        """Return a number of so many bits."""
        value = 0
        for _ in range(0, count, 32):
            value = value << 32 | self.below(1 << 32)
        return value & ((1 << count) - 1)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return them in some order."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(len(left))]


def new_dice(seed: int, what: str) -> Dice:
    """Return dice of their own for one purpose in one run."""
    mixed = seed
    for character in what:
        mixed = (mixed * 1_000_003 + ord(character)) & ((1 << 61) - 1)
    return Dice(mixed)
