"""Small saves against those of an older commit: `python -m benchmarks.small_saves --write`.

Each measure runs in processes of its own, in turn with the code of this tree and with that of the
older commit, which is checked out beside it. The fastest turn of each side counts.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

import limpet
from benchmarks.report import NONE, TIMES, Result, facts, table

BEFORE = "7b785688"  # the last commit in which SQL had engines of its own
PAGE = Path("docs/benchmarks/small_saves.md")
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
WRITERS, SAVES_EACH = 16, 60
WORDS = [f"word{number}" for number in range(3_000)]

RATES = ("second",)  # figures of which more is better

Spent = dict[str, float]


def text(chance: random.Random, chars: int) -> str:
    return " ".join(chance.choices(WORDS, k=chars // 8))


def states(kib: int, kind: str, count: int) -> Iterator[Any]:
    """Yield states: a `window` of messages that slides by one, `halves`, or a `counter`."""
    chance, size = random.Random(1), 512 * kib if kind == "halves" else 512
    length = 1024 * kib // size
    new = [text(chance, size) for _ in range(max(400, 2 * length))]
    for number in range(count):
        at = 0 if kind == "counter" else number % (len(new) - length)
        yield {"n": number, "messages": new[at : at + length]}


def saves(kib: int, kind: str, count: int) -> Spent:
    """Save on a disk in memory: only CPU counts. In between, bare INSERTs of the same."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        bare = sqlite3.connect(f"{folder}/bare.db", isolation_level=None)
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute("PRAGMA synchronous = FULL")
        bare.execute("CREATE TABLE states (pk INTEGER PRIMARY KEY, state BLOB)")
        ours, theirs = list[float](), list[float]()
        with limpet.open(f"sqlite:///{folder}/x.db") as store:
            scope = store.scope("s")
            for state in states(kib, kind, count):
                begun = time.process_time()
                scope.save(state)
                middle = time.process_time()
                bare.execute("INSERT INTO states (state) VALUES (?)", (orjson.dumps(state),))
                theirs.append(time.process_time() - middle)
                ours.append(middle - begun)
        bare.close()
        size = os.path.getsize(f"{folder}/x.db")
    ours, theirs = sorted(ours[40:]), sorted(theirs[40:])
    return {
        "median": statistics.median(ours),
        "mean": statistics.fmean(ours),
        "p99": ours[len(ours) * 99 // 100],
        "bare median": statistics.median(theirs),
        "bare mean": statistics.fmean(theirs),
        "disk": size / count,
    }


def loads(kib: int, kind: str) -> Spent:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        with limpet.open(f"sqlite:///{folder}/x.db", synchronous="off") as store:
            scope = store.scope("s")
            for state in states(kib, kind, 31):
                scope.save(state)
            again = [_cpu(scope.load) for _ in range(400)]
        with limpet.open(f"sqlite:///{folder}/x.db", synchronous="off") as store:
            scope = store.scope("s")
            scope.info()
            first = _cpu(scope.load)
    return {"median": statistics.median(again), "first": first}


def _cpu(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun


def _save_some(path: str, name: str) -> None:
    with limpet.open(f"sqlite:///{path}") as store:
        for state in states(1, "window", SAVES_EACH):
            store.scope(name).save(state)


def writers(kind: str) -> Spent:
    """Let 16 threads or processes save to one file on a disk, each in a session of its own."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        path = f"{folder}/x.db"
        limpet.open(f"sqlite:///{path}").close()
        names = [f"w{number}" for number in range(WRITERS)]
        if kind == "processes":
            context = multiprocessing.get_context("fork")
            work: list[Any] = [context.Process(target=_save_some, args=(path, n)) for n in names]
        else:
            store = limpet.open(f"sqlite:///{path}")
            work = [
                threading.Thread(
                    target=lambda n=name: [
                        store.scope(n).save(each) for each in states(1, "window", SAVES_EACH)
                    ]
                )
                for name in names
            ]
        begun = time.perf_counter()
        for each in work:
            each.start()
        for each in work:
            each.join()
        return {"second": WRITERS * SAVES_EACH / (time.perf_counter() - begun)}


def gathered() -> Spent:
    async def run(path: str) -> float:
        async with limpet.open_async(f"sqlite:///{path}") as store:
            scopes = [store.scope(f"s{number}") for number in range(100)]
            took = []
            for state in states(1, "window", 6):
                begun = time.perf_counter()
                await asyncio.gather(*(scope.save(state) for scope in scopes))
                took.append(time.perf_counter() - begun)
            return statistics.median(took[1:])

    with tempfile.TemporaryDirectory(dir=".") as folder:
        return {"wall": asyncio.run(run(f"{folder}/x.db"))}


def starting() -> Spent:
    """Import, open and load in a new interpreter."""
    program = (
        "import time; a = time.process_time(); import limpet; b = time.process_time()\n"
        "import sys; s = limpet.open(sys.argv[1]); s.scope('s').load(); c = time.process_time()\n"
        "print(b - a, c - b)"
    )
    env = {name: each for name, each in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        url = f"sqlite:///{folder}/x.db"
        with limpet.open(url) as store:
            store.scope("s").save({"n": 1})
        command = [sys.executable, "-X", f"pycache_prefix={folder}/made", "-c", program, url]
        took = [subprocess.check_output(command, env=env).split() for _ in range(6)]
    return {
        "import": min(float(a) for a, _ in took[1:]),
        "open": min(float(b) for _, b in took[1:]),
    }


MEASURES: dict[str, Callable[[], Spent]] = {
    "1 KB window": lambda: saves(1, "window", 1_500),
    "1 KB counter": lambda: saves(1, "counter", 1_500),
    "10 KB window": lambda: saves(10, "window", 1_000),
    "100 KB window": lambda: saves(100, "window", 500),
    "1 MB window": lambda: saves(1024, "window", 150),
    "10 KB halves": lambda: saves(10, "halves", 800),
    "100 KB halves": lambda: saves(100, "halves", 150),
    "small head": lambda: loads(1, "window"),
    "10 KB head": lambda: loads(10, "counter"),
    "threads": lambda: writers("threads"),
    "processes": lambda: writers("processes"),
    "gather": gathered,
    "start": starting,
}


class Turns:
    """The figures of all turns: those of a measure before, and now."""

    def __init__(self) -> None:
        self.before: dict[str, list[Spent]] = {name: [] for name in MEASURES}
        self.now: dict[str, list[Spent]] = {name: [] for name in MEASURES}

    def gain(self, name: str, figure: str) -> float:
        ratio = self.of(name, figure, before=True) / self.of(name, figure)
        return 1 / ratio if figure in RATES else ratio

    def of(self, name: str, figure: str, *, before: bool = False) -> float:
        """Return the figure of the fastest turn."""
        side = self.before if before else self.now
        return (max if figure in RATES else min)(each[figure] for each in side[name])


def faster(measure: str, gain: float, goal: float | None, more: str = "") -> Result:
    """Return the row of a figure that has become better."""
    ratio = f"{gain:.2f} {TIMES}"
    if goal is None:
        return Result(measure, more or NONE, ratio=ratio)
    return Result(measure, more or NONE, f"≥ {goal:g} {TIMES}", ratio, gain >= goal)


def rows(turns: Turns) -> Iterator[Result]:
    for name, figure, goal in (
        ("1 KB window", "median", None),
        ("1 KB window", "mean", 6),
        ("1 KB counter", "median", None),
        ("1 KB counter", "mean", 6),
        ("10 KB window", "median", None),
        ("10 KB window", "mean", 5),
        ("100 KB window", "median", None),
        ("100 KB window", "mean", 2),
        ("1 MB window", "mean", None),
        ("10 KB halves", "mean", None),
        ("100 KB halves", "mean", None),
    ):
        was, now = turns.of(name, figure, before=True), turns.of(name, figure)
        bare = now / turns.of(name, f"bare {figure}")
        more = f"{1e6 * was:.0f} to {1e6 * now:.0f} µs: {bare:.1f} {TIMES} a bare INSERT"
        yield Result(
            f"`save`, {name}, CPU, {figure}",
            more,
            NONE if goal is None else f"≤ {goal} {TIMES} a bare INSERT",
            f"{turns.gain(name, figure):.2f} {TIMES}",
            None if goal is None else bare <= goal,
        )
    for name in ("1 KB window", "10 KB window", "100 KB window"):
        spike = turns.of(name, "p99") / turns.of(name, "median")
        what = f"`save`, {name}, CPU, one call in 100 against the median"
        yield Result(what, NONE, f"≤ 5 {TIMES}", f"{spike:.1f} {TIMES}", spike <= 5)
    for name in ("1 KB window", "1 KB counter"):
        more_percent = 100 * (1 / turns.gain(name, "disk") - 1)
        more = f"{turns.of(name, 'disk', before=True):.0f} to {turns.of(name, 'disk'):.0f} bytes"
        what = f"bytes on disk for a save, {name}"
        yield Result(what, more, "≤ +0 %", f"{more_percent:+.1f} %", more_percent <= 0)
    yield faster("`load()` of a head of 1 KB, CPU", turns.gain("small head", "median"), 1)
    known, first = turns.gain("10 KB head", "median"), turns.gain("10 KB head", "first")
    yield faster("`load()` of 10 KB below 30 deltas, CPU", known, 1)
    yield faster("the same for the first time in a process, CPU", first, 1)
    for name in ("threads", "processes"):
        more = f"{turns.of(name, 'second', before=True):.0f} to {turns.of(name, 'second'):.0f}"
        gain = turns.gain(name, "second")
        yield faster(f"saves a second by 16 {name} on one file, wall", gain, 1.8, more)
    yield faster("`gather` of 100 saves, wall", turns.gain("gather", "wall"), 1.8)
    for figure, what, goal_ms in (("import", "`import limpet`", 60), ("open", "open and load", 10)):
        was, now = turns.of("start", figure, before=True), turns.of("start", figure)
        yield Result(
            f"{what} in a new process, CPU",
            f"{1000 * was:.0f} to {1000 * now:.0f} ms",
            f"≤ {goal_ms} ms",
            f"{turns.gain('start', figure):.2f} {TIMES}",
            1000 * now <= goal_ms,
        )


def page(turns: Turns, count: int) -> str:
    return f"""# Small saves, before and now

Written by `python -m benchmarks.small_saves --write`, in a clone with its history: against commit
`{BEFORE}`, the last one in which SQL had engines of its own. Both sides took
turns, {count} times, in processes of their own; the fastest turn of each side is shown, since a
shared machine has fast and slow minutes. Saves and loads are measured on files in memory, CPU of
the process; threads, processes and `gather` on a disk. A *window* of messages of 512 characters
slides by one with each save; of *halves* one of two long messages is new; a *counter* changes one
number. A bare INSERT encodes the state and stores it in a table without an index, just as durable.
A goal that is missed stays in the table, marked **no**.

Machine: {"; ".join(facts())}.

{table(list(rows(turns)))}
"""


@contextmanager
def older(commit: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        tree = f"{folder}/tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], check=True)


def measured(name: str, tree: str) -> Spent:
    env = {**os.environ, "PYTHONPATH": f"{tree}/src"}
    command = [sys.executable, "-m", "benchmarks.small_saves", "--only", name]
    found: Spent = json.loads(subprocess.check_output(command, env=env))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_saves")
    parser.add_argument("--only", choices=list(MEASURES), help="one measure of this tree, as JSON")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    given = parser.parse_args()
    if given.only:
        print(json.dumps(MEASURES[given.only]()))
        return
    turns = Turns()
    with older(BEFORE) as tree:
        for _ in range(given.turns):
            for name in MEASURES:
                turns.before[name].append(measured(name, tree))
                turns.now[name].append(measured(name, os.getcwd()))
    text = page(turns, given.turns)
    if given.write:
        PAGE.write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()
