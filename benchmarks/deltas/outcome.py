"""The result of a part of the benchmark, and how its ratios are judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import median
from typing import Any

from benchmarks.measuring import Clock, Run, Times
from benchmarks.report import TIMES, Result, milliseconds, spread

CLOCKS: tuple[Clock, ...] = ("cpu", "wall")
NAMES: Mapping[Clock, str] = {"cpu": "CPU", "wall": "wall"}


@dataclass(slots=True)
class Outcome:
    """Rows for the table of goals, and figures for the file of raw results."""

    goals: list[Result] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)


def within(
    run: Run, side: str, base: str, ratio_max: float, clocks: Sequence[Clock] = CLOCKS
) -> bool | None:
    """Return whether the median ratio keeps to its limit by each clock.

    Waiting for a busy disk draws wall ratios towards 1. So wall counts against a goal always, but
    in favour of it only if most repetitions were calm: else the answer is None.
    """
    medians = {clock: median(run.ratios(side, base, clock)) for clock in clocks}
    if any(ratio > ratio_max for ratio in medians.values()):
        return False
    busy = run.contended > len(run.repetitions) / 2
    return None if "wall" in clocks and busy else True


def ratios(run: Run, side: str, base: str) -> str:
    """Return both ratios as a cell."""
    cells = (f"{NAMES[each]} {spread(run.ratios(side, base, each))}" for each in CLOCKS)
    return "; ".join(cells)


def seconds(run: Run, side: str) -> str:
    """Return what one call takes, by both clocks."""
    cpu, wall = (milliseconds(run.seconds(side, clock)) for clock in CLOCKS)
    return f"{cpu} CPU, {wall} wall"


def limit(ratio_max: float, what: str = "") -> str:
    """Return the cell of a goal."""
    return f"≤ {ratio_max:g} {TIMES}{what}"


def raw_run(run: Run) -> dict[str, dict[str, list[float]]]:
    """Return the median of each repetition in milliseconds, by side and clock."""
    sides = run.repetitions[0]
    return {
        side: {
            clock: [round(1000 * each[side].average(clock), 4) for each in run.repetitions]
            for clock in CLOCKS
        }
        for side in sides
    }


def percentile(times: Times, clock: Clock, share: float) -> float:
    """Return what so large a share of the calls does not exceed."""
    ordered = sorted(times.cpu if clock == "cpu" else times.wall)
    return ordered[ceil(share * len(ordered)) - 1]
