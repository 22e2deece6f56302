"""Everything of one run: its time, its storage, its record, and how a process opens its engine."""

from collections.abc import Callable
from typing import Final

from limpet.backends.buckets.protocol import Bucket
from limpet.protocol import Backend, Clock, Stamp
from simulation.bucket import START_US, SimulatedBucket, Storage
from simulation.dice import Dice, new_dice
from simulation.faults import Faults, Mode
from simulation.history import Op
from simulation.scheduler import Scheduler

_SKEWS_US: Final = (0, 0, -60_000_000, 5_000_000, -300_000)

Opener = Callable[[Bucket, Clock, Callable[[], Stamp]], Backend]
"""Opens an engine over a bucket."""


class World:
    """One run before, while and after it happens."""

    def __init__(self, seed: int, mode: Mode, opener: Opener) -> None:
        self._seed = seed
        self._opener = opener
        self._stamps: dict[str, tuple[Dice, int]] = {}
        self._tags: dict[str, int] = {}
        self.scheduler = Scheduler(self.dice_of("schedule"))
        self.faults = Faults(mode, self.dice_of("faults"))
        self.storage = Storage(self.scheduler, self.faults, self.dice_of("storage"))
        self.ops: list[Op] = []
        self.settled = False

    def dice_of(self, what: str) -> Dice:
        """Return dice of their own for one purpose."""
        return new_dice(self._seed, what)

    def open(self, name: str) -> Backend:
        """Open the engine as a process of this name, with nothing remembered."""
        bucket = SimulatedBucket(self.storage, name)
        clock = self.scheduler.clock(self.dice_of(f"jitter {name}"))
        return self._opener(bucket, clock, lambda: self.draw(name))

    def draw(self, name: str) -> Stamp:
        """Return the time on that process's clock, which may be wrong, and chance."""
        if name not in self._stamps:
            dice = self.dice_of(f"stamps {name}")
            self._stamps[name] = (dice, dice.choice(_SKEWS_US))
        dice, skew_us = self._stamps[name]
        now = START_US + self.scheduler.now_us + skew_us
        return Stamp(now, f"{dice.bits(64):016x}", dice.bits(80))

    def tag(self, name: str) -> str:
        """Return a word that nobody has used."""
        self._tags[name] = self._tags.get(name, 0) + 1
        return f"{name}{self._tags[name]}"
