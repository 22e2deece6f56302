"""Measure the command line: `python -m benchmarks.terminal [--quick] [--write]`.

Time and memory of the real executable over a store of many snapshots. Fails only if it crashes.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import limpet
from benchmarks.harness import Benchmark, machine
from benchmarks.report import Result, milliseconds, table

EXECUTABLE = Path(sys.executable).with_name("limpet")
MEMORY_MB_MAX = 150
PREFACE = """\
# The command line: time and memory

Written by `make bench` (`python -m benchmarks.terminal --write`). Each row runs the executable in a
new process over a SQLite file of {count:,} snapshots: half of them in one session, the rest in
sessions of 100. **Memory** is the peak of the process. The short commands are medians of {times}
runs, including the start of Python.

Machine: {machine}.
"""


class Taken(NamedTuple):
    """What one run took."""

    seconds: float
    memory_mb: float


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    run = Benchmark("terminal", "a tenth of the data")
    count, times = (10_000, 3) if run.quick else (100_000, 7)
    about = "; ".join(machine())
    with tempfile.TemporaryDirectory(prefix="limpet-bench-") as folder:
        rows = run.judged(_rows(Path(folder), count, times))
    run.publish(f"{PREFACE.format(count=count, times=times, machine=about)}\n{table(rows)}\n")


def _rows(folder: Path, count: int, times: int) -> Iterator[Result]:
    source = f"sqlite:///{folder}/source.db"
    fill(source, count)
    # What a sync of the disk takes is measured elsewhere.
    target, other = (f"sqlite:///{folder}/{name}.db?synchronous=off" for name in ("target", "two"))
    for name, arguments in (
        ("export, to a file", ["export", "--url", source, "-o", f"{folder}/x.jsonl"]),
        ("copy to SQLite, verified", ["copy", source, target]),
        ("the same copy again: nothing new", ["copy", source, target]),
        ("import of the export", ["import", f"{folder}/x.jsonl", "--url", other]),
    ):
        taken = run(arguments)
        yield Result(
            f"`limpet {arguments[0]}`: {name}",
            f"{taken.memory_mb:.0f} MB; {taken.seconds:.0f} s, {count / taken.seconds:,.0f}/s",
            goal=f"< {MEMORY_MB_MAX} MB",
            met=taken.memory_mb < MEMORY_MB_MAX,
        )
    for arguments in (
        ["--version"],
        ["ls", "--url", source],
        ["ls", "long", "--url", source],
        ["log", "long", "-n", "50", "--url", source],
        ["log", "long", "--graph", "--url", source],
        ["show", "long@", "--url", source],
        ["show", "long@~1000", "--url", source],
        ["diff", "long@", "--url", source],
        ["grep", "message 42", "--url", source],
    ):
        runs = [run(arguments) for _ in range(times)]
        shown = " ".join(each for each in arguments if each not in ("--url", source))
        seconds = median(each.seconds for each in runs)
        memory = max(each.memory_mb for each in runs)
        yield Result(f"`limpet {shown}`", f"{milliseconds(seconds)}; {memory:.0f} MB")


def fill(url: str, count: int) -> None:
    """Save so many snapshots."""
    with limpet.open(url, synchronous="off") as store:
        long = store.scope("long")
        for number in range(count // 2):
            long.save({"n": number, "messages": [{"role": "user", "content": "hello " * 20}]})
        for session in range(count // 200):
            scope = store.scope(f"many/{session:04}")
            for number in range(100):
                message = {"role": "user", "content": f"message {number} of {session}"}
                scope.append("messages", [message])


def run(arguments: list[str]) -> Taken:
    """Run the executable once."""
    start = perf_counter()
    process = subprocess.Popen([EXECUTABLE, *arguments], stdout=subprocess.DEVNULL)
    _, code, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(code) not in (0, 1):
        raise SystemExit(f"it failed: {' '.join(arguments)}")
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return Taken(perf_counter() - start, usage.ru_maxrss / unit)


if __name__ == "__main__":
    main()
