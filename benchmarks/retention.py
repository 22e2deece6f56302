"""Retention on a large store beside a writer: `python -m benchmarks.retention --write`.

Half of the sessions are deleted, the others pruned to ten snapshots, by one process. Another saves
to a session of its own meanwhile, and did so before for comparison. Both are on a real disk.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import limpet
from benchmarks.report import TIMES, facts
from limpet.retention import Policy, Rule

PAGE = Path("docs/benchmarks/retention.md")
PROCESSES = multiprocessing.get_context("spawn")
EACH = 100  # snapshots in a session
PAUSE_S = 0.002  # between two saves of the writer
PREFACE = """# Retention beside a writer

`python -m benchmarks.retention --write` measures `Policy.apply` on an SQLite file. Half of the
sessions are deleted whole, the others pruned to ten of a hundred snapshots. Another process saves
2 KB to a session of its own, again and again with 2 ms in between, with `synchronous=FULL`: for six
seconds before, and as long as `apply` runs. The goal is a p99 of its saves of at most twice that
before. `--snapshots 1000000` measures a million.

Machine: {machine}.

{figures}
"""


def fill(url: str, snapshots: int) -> None:
    with limpet.open(f"{url}?synchronous=off") as store:
        for number in range(snapshots // EACH):
            chat = store.scope(f"{'demo' if number % 2 else 'chat'}/{number}")
            for turn in range(EACH):
                chat.append("messages", [{"role": "user", "content": f"turn {turn} of {number}"}])
        policy = Policy(store)
        policy.set(Rule(prefix="chat/", keep_last=10))
        policy.set(Rule(prefix="demo/", delete_session_after=timedelta(0)))


def write(url: str, told: Any, ready: Any, stop: Any) -> None:
    """Save until it is over; send how long each save took."""
    with limpet.open(url) as store:
        live = store.scope("live")
        live.save({})
        ready.set()
        times = list[float]()
        while not stop.is_set():
            begun = time.perf_counter()
            live.save({"n": len(times), "text": "x" * 2000})
            times.append(time.perf_counter() - begun)
            time.sleep(PAUSE_S)
    told.put(times)


@contextmanager
def writer(url: str, times: list[float]) -> Iterator[None]:
    told, ready, stop = PROCESSES.Queue(), PROCESSES.Event(), PROCESSES.Event()
    process = PROCESSES.Process(target=write, args=(url, told, ready, stop))
    process.start()
    ready.wait()
    try:
        yield
    finally:
        stop.set()
        times += told.get()
        process.join()


def resident(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) / 1024


def sweep(url: str, told: Any) -> None:
    with limpet.open(url) as store:
        policy = Policy(store)
        policy.rules()
        before, begun = resident("VmRSS"), time.perf_counter()
        swept = policy.apply()
        told.put((time.perf_counter() - begun, swept, resident("VmHWM") - before))


def p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100] * 1000


def measure(snapshots: int, folder: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        url = f"sqlite:///{place}/a.db"
        fill(url, snapshots)
        size = os.path.getsize(f"{place}/a.db")
        alone, beside = list[float](), list[float]()
        told = PROCESSES.Queue()
        with writer(url, alone):
            time.sleep(6)
        with writer(url, beside):
            process = PROCESSES.Process(target=sweep, args=(url, told))
            process.start()
            seconds, swept, grown = told.get()
            process.join()
        with limpet.open(url) as store:
            store.compact()
        after = os.path.getsize(f"{place}/a.db")
        return {
            "deleted, with whole sessions": f"{swept.snapshots:,}",
            "time": f"{seconds:.1f} s",
            "deleted a second": f"{swept.snapshots / seconds:,.0f}",
            "memory of the process grows by": f"{grown:.0f} MB",
            "p99 of a save before": f"{p99(alone):.1f} ms",
            "p99 of a save meanwhile": f"{p99(beside):.1f} ms",
            "ratio": f"{p99(beside) / p99(alone):.1f} {TIMES}",
            "longest save before, meanwhile": f"{max(alone):.2f} s, {max(beside):.2f} s",
            "file before, compacted": f"{size / 2**20:.0f} MB, {after / 2**20:.0f} MB",
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snapshots", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    parser.add_argument("--folder", default=".", help="on the disk to measure")
    given = parser.parse_args()
    counts = [2_000] if given.quick else given.snapshots
    machine = "; ".join(facts())
    columns = [measure(count, given.folder) for count in counts]
    rows = [["", *(f"{count:,} snapshots" for count in counts)], ["---"] * (len(counts) + 1)]
    rows += [[name, *(each[name] for each in columns)] for name in columns[0]]
    figures = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    print(figures)
    if given.write:
        PAGE.write_text(PREFACE.format(machine=machine, figures=figures))


if __name__ == "__main__":
    main()
