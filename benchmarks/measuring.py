"""Timing two sides of a comparison so that the noise of the machine hits both alike.

The sides take turns call by call, in an order that changes with each turn. A repetition
gives each side three averages of its calls. The median is what one call costs. The mean also holds
what comes only now and then, like a checkpoint of the database or a slow sync. `fast` is what nine
calls in ten exceed: the cost on a calm machine, as far as a busy one lets it be seen. A ratio is
formed inside each repetition, and the median over the repetitions is reported.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles
from typing import Literal

Clock = Literal["cpu", "wall"]
Average = Literal["fast", "median", "mean"]
Call = Callable[[int], object]
"""One measured call; it is given its number, so that it can take material prepared for it."""


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
