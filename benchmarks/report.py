"""The table of results, in Markdown."""

import os
import platform
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median

NONE = "-"
TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True, slots=True)
class Result:
    """One row: what was measured, and whether it meets its goal (None: there is none)."""

    measure: str
    measured: str
    goal: str = NONE
    ratio: str = NONE
    met: bool | None = None
    contended: int = 0  # repetitions in which the disk was slow or busy

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the row."""
        unknown = NONE if self.goal == NONE else "not judged"
        verdict = {True: "yes", False: "**no**", None: unknown}[self.met]
        mark = f" (contended: {self.contended})" if self.contended else ""
        return self.measure, self.goal, self.measured, self.ratio, verdict + mark


def milliseconds(seconds: float) -> str:
    """Return a duration with three significant digits."""
    value = seconds * 1000
    return f"{value:.0f} ms" if abs(value) >= 100 else f"{value:.3g} ms"


def spread(values: Sequence[float], unit: str = TIMES, digits: int = 2) -> str:
    """Return the median of the repetitions, with minimum and maximum."""
    low, mid, high = min(values), median(values), max(values)
    return f"{mid:.{digits}f} {unit} ({low:.{digits}f} to {high:.{digits}f})"


def facts() -> Iterator[str]:
    """Yield the facts about the machine that matter for the figures."""
    yield f"{platform.python_implementation()} {platform.python_version()}"
    yield f"SQLite {sqlite3.sqlite_version}"
    for package in ("orjson", "zstandard", "xxhash"):
        yield f"{package} {version(package)}"
    yield f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores"
    yield f"load average {os.getloadavg()[0]:.1f} when the benchmark began"


def table(results: Sequence[Result]) -> str:
    """Return the rows as a Markdown table."""
    head = ("measure", "goal", "measured", "ratio", "met?")
    rows = [head, ("---",) * len(head), *(each.cells() for each in results)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


PREFACE = """\
# Basic operations

Written by `make bench` (`python -m benchmarks.foundation --write`). Timings differ between machines
and runs, so compare the ratios: the two sides of each row alternated, call by call, in the same
run. A figure is the median of {repetitions} repetitions, with minimum and maximum in brackets.
*Median* is the typical call; *mean* includes rare costs such as checkpoints and slow syncs; a *fast
call* is the 10th percentile. CPU is that of the calling thread, user and system, unless the row
says otherwise. A goal that is missed stays in the table, marked **no**.

*Contended* counts the repetitions in which the median sync of a small file took more than 1 ms: the
disk was slow or the machine busy, and waiting dominated. Wall ratios then look better than on an
idle machine, so that one within its goal is *not judged* if most repetitions were contended; the
rows of the fast call come closest to an idle machine.
"""


def page(
    results: Sequence[Result], machine: Sequence[str], *, repetitions: int, quick: bool
) -> str:
    """Return the whole page."""
    parts = [PREFACE.format(repetitions=repetitions), f"Machine: {'; '.join(machine)}.\n"]
    if quick:
        parts.append("A quick run: fewer calls and a shorter history than the goals require.\n")
    return "\n".join([*parts, table(results)]) + "\n"
