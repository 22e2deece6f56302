"""Timing two sides of a comparison so that the noise of the machine hits both alike.

The sides take turns call by call, in an order that changes with each turn. A repetition
gives each side three averages of its calls. The median is what one call costs. The mean also holds
what comes only now and then, like a checkpoint of the database or a slow sync. `fast` is what nine
calls in ten exceed: the cost on a calm machine, as far as a busy one lets it be seen. A ratio is
formed inside each repetition, and the median over the repetitions is reported.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from statistics import fmean, median, quantiles
from typing import Literal, TypeVar

Clock = Literal["cpu", "wall"]
Average = Literal["fast", "median", "mean"]
Bare = Callable[[], object]
Call = Callable[[int], object]
"""One measured call; it is given its number, so that it can take material prepared for it."""
Cold = Callable[[int], AbstractContextManager[Bare]]
"""A side that is opened for each call. Opening and closing are not timed."""

SYNC = "sync"
CONTENDED_S = 0.001  # a small sync that takes longer shows a slow disk or a busy machine
ATTEMPTS = 3
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds of the calls of one side in one repetition."""

    cpu: Sequence[float]
    wall: Sequence[float]

    def average(self, clock: Clock, average: Average = "median") -> float:
        """Return the seconds of one call."""
        seconds = self.cpu if clock == "cpu" else self.wall
        if average == "mean":
            return fmean(seconds)
        return median(seconds) if average == "median" else quantiles(seconds, n=10)[0]

    @property
    def contended(self) -> bool:
        """Whether these are syncs that had to wait."""
        return median(self.wall) > CONTENDED_S


@dataclass(slots=True)
class Spent:
    """The times of one side while they are being taken."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def time(self, call: Bare) -> None:
        """Make one call, and note what it took."""
        wall, cpu = time.perf_counter(), time.thread_time()
        call()
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        self.cpu.append(cpu)
        self.wall.append(wall)

    def times(self, last: int | None = None) -> Times:
        """Return the times, all of them or the last so many."""
        start = 0 if last is None else -last
        return Times(self.cpu[start:], self.wall[start:])


@dataclass(frozen=True, slots=True)
class Run:
    """Several repetitions of several sides that took turns."""

    repetitions: Sequence[Mapping[str, Times]]

    def seconds(self, side: str, clock: Clock, average: Average = "median") -> float:
        """Return the seconds of one call: the median over the repetitions."""
        return median(each[side].average(clock, average) for each in self.repetitions)

    def ratios(
        self, side: str, base: str, clock: Clock, average: Average = "median"
    ) -> list[float]:
        """Return how many times as long one side took as the other, in each repetition."""
        return [
            each[side].average(clock, average) / each[base].average(clock, average)
            for each in self.repetitions
        ]

    def excesses(self, side: str, base: str, clock: Clock) -> list[float]:
        """Return how many seconds longer one side took than the other, in each repetition."""
        return [each[side].average(clock) - each[base].average(clock) for each in self.repetitions]

    @property
    def contended(self) -> int:
        """Return in how many repetitions the disk was slow or busy, as far as that was watched."""
        return sum(SYNC in each and each[SYNC].contended for each in self.repetitions)


@dataclass(slots=True)
class Patience:
    """How often a contended measurement is made, at most."""

    attempts: int = ATTEMPTS


patience = Patience()


def order_of(names: Sequence[str], number: int) -> list[str]:
    """Return in which order the sides make their next call, so that none always follows another."""
    first = number // 2 % len(names)
    order = [*names[first:], *names[:first]]
    return order[::-1] if number % 2 else order


def take_turns(sides: Mapping[str, Call], *, calls: int, repetitions: int, warmup: int = 20) -> Run:
    """Measure all sides in turn; the calls are numbered through all repetitions."""
    names = list(sides)
    number = 0
    for number in range(warmup):
        for name in names:
            sides[name](number)
    done: list[Mapping[str, Times]] = []
    for _ in range(repetitions):
        spent: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
        for _ in range(calls):
            number += 1
            for name in order_of(names, number):
                call = sides[name]
                wall, cpu = time.perf_counter(), time.thread_time()
                call(number)
                cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
                spent[name][0].append(cpu)
                spent[name][1].append(wall)
        done.append({name: Times(cpu, wall) for name, (cpu, wall) in spent.items()})
    return Run(done)


def take_cold_turns(sides: Mapping[str, Cold], *, calls: int) -> Mapping[str, Times]:
    """Measure one repetition of sides that open something new for each call."""
    names = list(sides)
    spent = {name: Spent() for name in names}
    for number in range(calls):
        for name in order_of(names, number):
            with sides[name](number) as call:
                spent[name].time(call)
    return {name: each.times() for name, each in spent.items()}


def repeated(one: Callable[[], Mapping[str, Times]], repetitions: int) -> Run:
    """Measure so many repetitions; one that was contended is tried again, the calmest counts."""
    return Run([calmest(one, _sync_seconds) for _ in range(repetitions)])


def calmest(one: Callable[[], T], sync_seconds: Callable[[T], float]) -> T:
    """Measure until it is calm, or give up; return the calmest attempt.

    After giving up, what follows is tried only once until it is calm again: some disks always take
    long, and waiting for better times would only take longer.
    """
    attempts = []
    for _ in range(patience.attempts):
        attempts.append(one())
        if sync_seconds(attempts[-1]) <= CONTENDED_S:
            patience.attempts = ATTEMPTS
            break
    else:
        patience.attempts = 1
    return min(attempts, key=sync_seconds)


def _sync_seconds(sides: Mapping[str, Times]) -> float:
    return sides[SYNC].average("wall") if SYNC in sides else 0.0
