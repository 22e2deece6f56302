"""Measure the integrations: `python -m benchmarks.frameworks [--quick] [--write] [NAME ...]`.

Prints a page of tables; goals that are missed are marked in it. Fails only if something crashes.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import Benchmark, machine
from benchmarks.objects.disk import folder_on_disk
from benchmarks.report import TIMES, Result, milliseconds, table
from benchmarks.traces import conversation
from tests.environments import ROOT
from tests.frameworks.catalogue import FRAMEWORKS, python_with

TURNS, AROUND = 204, 4
ROUNDS_S_MAX = 60
DISK_MAX = 0.7
# How many times as fast a turn must be, by its number.
FASTER = {5: 1.0, 200: 1.0}

PREFACE = """\
# Frameworks: Limpet against the stores they bring along

Written by `make bench` (`python -m benchmarks.frameworks --write`). Under each framework a
conversation of {turns} turns is had twice: on Limpet (a SQLite file) and on the framework's own
store. A turn is a question of 1 KB and an answer of 1 KB, both prose. The two sides alternate turn
by turn in one process, and everything is repeated up to {rounds} times with new files. *Turn 5*
is the median of the turns around it. CPU is that of all threads of the process; on a busy
machine it is the more stable figure. A ratio above 1 means that Limpet is faster. Goals: at
most {disk} {times} the disk; a turn not slower at turn 5, and faster at turn 200. A goal that
is missed stays in the table, marked **no**.

Limpet stores more in that space: every turn can be loaded, compared and forked afterwards.
"""


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    # Some frameworks bring no store along that is in a file.
    here = tuple(each for each in FRAMEWORKS if Path(__file__).with_name(f"{each}.py").exists())
    run = Benchmark("frameworks", "one round", only=here)
    about = machine()
    rounds = 1 if run.quick else 5
    parts = [
        PREFACE.format(turns=TURNS, rounds=rounds, disk=DISK_MAX, times=TIMES),
        f"Machine: {'; '.join(about)}.",
    ]
    for name in run.only:
        with run.part(f"{name}, load {os.getloadavg()[0]:.1f}"):
            found = list(measured(name, rounds))
        parts.append(section(found, run.judged(rows(found))))
    run.publish("\n".join(parts))


def measured(name: str, rounds: int) -> Iterator[Any]:
    """Yield what each round found; there are fewer if one takes long."""
    begin = time.monotonic()
    for _ in range(rounds):
        yield measure(name)
        if time.monotonic() - begin > ROUNDS_S_MAX:
            return


def measure(name: str) -> Any:
    """Run a worker; return what it found."""
    with TemporaryDirectory(dir=folder_on_disk()) as folder:
        told = Path(folder, "conversation.json")
        told.write_text(json.dumps(list(conversation(TURNS))), encoding="utf-8")
        module = "benchmarks.frameworks.worker"
        command = [str(python_with(name)), "-m", module, name, str(told), folder]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])


def section(rounds: Sequence[Any], found: Sequence[Result]) -> str:
    """Return the part of the page about one framework."""
    about, version = rounds[0]["about"], rounds[0]["version"]
    sides = ", against ".join(each["title"] for each in rounds[0]["sides"])
    return f"\n## {version.split()[0]}: {sides}\n\n{version}. {about}\n\n{table(found)}\n"


def rows(rounds: Sequence[Any]) -> Iterator[Result]:
    """Yield the rows of one framework."""
    ours, theirs = (median(each["sides"][side]["bytes"] for each in rounds) for side in (0, 1))
    yield Result(
        "on disk",
        f"{ours / 1000:,.0f} kB against {theirs / 1000:,.0f} kB",
        f"≤ {DISK_MAX} {TIMES}",
        f"{ours / theirs:.2f} {TIMES}",
        ours <= DISK_MAX * theirs,
    )
    for number, goal in FASTER.items():
        for clock, title in enumerate(("", ", CPU")):
            us, them = (turn_of(rounds, side, number, clock) for side in (0, 1))
            yield Result(
                f"turn {number}{title}",
                f"{milliseconds(us)} against {milliseconds(them)}",
                f"≥ {goal:.1f} {TIMES}",
                f"{them / us:.2f} {TIMES}",
                them >= goal * us,
            )


def turn_of(rounds: Sequence[Any], side: int, number: int, clock: int) -> float:
    """Return the seconds of the turns around one."""
    around = slice(number - AROUND, number + AROUND)
    turns = [turn for each in rounds for turn in each["sides"][side]["turns"][around]]
    return float(median(turn[clock] for turn in turns))


if __name__ == "__main__":
    main()
