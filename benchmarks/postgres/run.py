"""Runs all parts of the benchmark, prints the page, and writes it if asked."""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

from benchmarks.objects.disk import file_system, folder_on_disk
from benchmarks.peers.race import Runner
from benchmarks.peers.venvs import ROOT
from benchmarks.plan import Plan
from benchmarks.postgres import chat, disk, server, throughput, trips
from benchmarks.postgres.page import page
from benchmarks.postgres.sizes import Sizes, quick_sizes
from benchmarks.report import Result, facts
from tests.servers.postgres import Postgres

PAGE = ROOT / "docs" / "benchmarks" / "postgres.md"
PARTS = ("throughput", "chat", "disk", "trips", "sessions")
QUICK_REPETITIONS = 1


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    options = _options()
    folder = options.dir or folder_on_disk()
    quick = quick_sizes(options.repetitions or QUICK_REPETITIONS)
    sizes = quick if options.quick else Sizes(options.repetitions or 5)
    start, found = perf_counter(), dict[str, list[Result]]()
    *about, load = facts()
    with server.running(folder) as started:
        machine = [*about, *_facts(started, folder), load]
        for name, part in _parts(started, folder, sizes).items():
            if not options.only or name in options.only:
                begun = perf_counter()
                found[name] = list(part())
                print(f"{name}: {perf_counter() - begun:.1f} s", file=sys.stderr)
    if sizes.quick:
        found = {name: [replace(row, met=None) for row in rows] for name, rows in found.items()}
    text = page(found, [each for each in machine if "SQLite" not in each], sizes)
    print(text)
    print(f"measured in {perf_counter() - start:.0f} s", file=sys.stderr)
    if options.write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")


def _parts(
    started: Postgres, folder: Path, sizes: Sizes
) -> dict[str, Callable[[], Iterator[Result]]]:
    plan = Plan(folder, sizes.repetitions, turns=sizes.turns, quick=sizes.quick)
    runners: dict[str, Runner] = {}

    def chatting() -> Iterator[Result]:
        runners.update(chat.run(plan, started))
        yield from chat.rows(runners, sizes.turns)

    def taken() -> Iterator[Result]:
        yield from disk.goals(started, runners, sizes.turns)
        yield from disk.many(sizes)

    return {
        "throughput": lambda: throughput.measure(started, folder, sizes),
        "chat": chatting,
        "disk": taken,
        "trips": lambda: trips.measure(started, sizes),
    }


def _facts(started: Postgres, folder: Path) -> Iterator[str]:
    yield f"psycopg {version('psycopg')}"
    yield from server.facts(started)
    yield f"data on {file_system(folder)}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgres")
    parser.add_argument("--quick", action="store_true", help="a quick run of less than a minute")
    parser.add_argument("--write", action="store_true", help=f"write docs/benchmarks/{PAGE.name}")
    parser.add_argument("--repetitions", type=int, help="number of repetitions")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure only these parts")
    # Where /tmp is in memory a sync costs nothing, so a folder of this one is taken then.
    parser.add_argument("--dir", type=Path, help="a directory on the disk to measure")
    return parser.parse_args()
