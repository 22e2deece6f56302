"""What a call takes: seconds, CPU of all threads, and the bytes that are read and written.

The bytes are those that a process hands to the system, and is handed: on Linux the kernel counts
them. Where it does not, they are none.
"""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeAlias

from benchmarks.measuring import order_of

IO = Path("/proc/self/io")

Await: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]


class Cost(NamedTuple):
    """What one call took, as it says itself."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is kept, and how its bytes are counted."""

    url: str
    stored: Callable[[], int]
    written: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Side:
    """Something that keeps what it is given, step by step. Who measures itself returns a cost."""

    place: Place
    step: Callable[[int], Cost | None]
    load: Callable[[int], Cost | None] | None = None
    close: Callable[[], object] = lambda: None


@dataclass(slots=True)
class Tally:
    """What one side took in one repetition."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    written: int = 0
    stored: int = 0

    @property
    def step_s(self) -> float:
        """Return the seconds of a step, in the median."""
        return median(self.wall)

    @property
    def cpu_s(self) -> float:
        """Return the CPU of a step; the mean, as the clock of a process may be coarse."""
        return sum(self.cpu) / len(self.cpu)


Lap = Mapping[str, Tally]


def race(sides: Mapping[str, Side], *, steps: int, loads: int = 0) -> Lap:
    """Let all sides make their steps in turn, then load in turn, and close them."""
    tallies = {name: Tally() for name in sides}
    names = list(sides)
    for number in range(steps):
        for name in order_of(names, number):
            side, tally = sides[name], tallies[name]
            before = side.place.written()
            cost = timed(partial(side.step, number))
            tally.written += side.place.written() - before
            tally.wall.append(cost.wall)
            tally.cpu.append(cost.cpu)
    for number in range(loads):
        for name in order_of(names, number):
            load = sides[name].load
            if load is not None:
                cost = timed(partial(load, number))
                tallies[name].loads.append(cost.wall)
    for name, side in sides.items():
        # What a database puts off until it is closed is written too.
        before = side.place.written()
        side.close()
        tallies[name].written += side.place.written() - before
        tallies[name].stored = side.place.stored()
    return tallies


def timed(call: Callable[[], Cost | None]) -> Cost:
    """Make a call, and return what it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    said = call()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Cost(wall, cpu) if said is None else said


@contextmanager
def event_loop() -> Iterator[Await]:
    """Yield what runs a coroutine to its end.

    Not `Runner.run`: that writes out what the coroutine has returned, for the message of an error
    without an effect, and takes five times as long as to load a large state.
    """
    with asyncio.Runner() as runner:
        yield runner.get_loop().run_until_complete


def in_folder(folder: Path, url: str = "") -> Place:
    """Return a place on the disk. What this process writes is counted, whatever it is."""
    folder.mkdir(parents=True, exist_ok=True)
    return Place(url or str(folder), lambda: tree_bytes(folder), written_bytes)


def tree_bytes(folder: Path) -> int:
    """Return the sum of all files below a folder."""
    return sum(os.path.getsize(os.path.join(top, name)) for top, name in _files(folder))


def _files(folder: Path) -> Iterable[tuple[str, str]]:
    return ((top, name) for top, _, names in os.walk(folder) for name in names)


def written_bytes() -> int:
    """Return what this process has handed to the system to write, as far as that is counted."""
    return _counted("wchar")


def read_bytes() -> int:
    """Return what this process was handed by the system, as far as that is counted."""
    return _counted("rchar")


def _counted(name: str) -> int:
    if not IO.exists():
        return 0
    found = dict(line.split(": ") for line in IO.read_text(encoding="ascii").splitlines())
    return int(found[name])
