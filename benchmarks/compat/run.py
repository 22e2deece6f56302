"""Runs all parts of the benchmark, prints the page, and writes it if asked."""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

from benchmarks.compat.page import page
from benchmarks.compat.parts import Part, agents_part, runs_part, snapshots_part
from benchmarks.compat.sizes import QUICK, Sizes
from benchmarks.objects.disk import file_system, folder_on_disk
from benchmarks.peers.venvs import ROOT
from benchmarks.plan import Plan
from benchmarks.postgres.server import sync_seconds
from benchmarks.report import facts, milliseconds
from tests.interop.node import Missing

PAGE = ROOT / "docs" / "benchmarks" / "compat.md"
PARTS: dict[str, Callable[[Plan, Sizes], Part]] = {
    "agents": agents_part,
    "snapshots": snapshots_part,
    "runs": runs_part,
}


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    options = _options()
    sizes = QUICK if options.quick else Sizes()
    folder = folder_on_disk()
    plan = Plan(folder, sizes.repetitions)
    machine, start = list(_facts(folder)), perf_counter()
    parts = []
    for name in PARTS:
        if not options.only or name in options.only:
            begun = perf_counter()
            parts.append(_measured(name, plan, sizes))
            print(f"{name}: {perf_counter() - begun:.1f} s", file=sys.stderr)
    goals = [each for part in parts for each in part.goals]
    if sizes.quick:
        goals = [replace(each, met=None) for each in goals]
    text = page([part.text for part in parts], goals, machine, sizes)
    print(text)
    print(f"measured in {perf_counter() - start:.0f} s", file=sys.stderr)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")


def _measured(name: str, plan: Plan, sizes: Sizes) -> Part:
    try:
        return PARTS[name](plan, sizes)
    except Missing as reason:  # the rest goes on without Node
        return Part(f"## {name}\n\nNot measured: {reason}.\n", [])


def _facts(folder: Path) -> Iterator[str]:
    *about, load = facts()
    yield from about
    for package in ("strands-agents", "psycopg"):
        yield f"{package} {version(package)}"
    yield f"directories on {file_system(folder)}"
    yield f"the sync of a small file took {milliseconds(sync_seconds(folder))}"
    yield load


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compat")
    parser.add_argument("--quick", action="store_true", help="a quick run of less than 20 s")
    parser.add_argument("--write", action="store_true", help=f"write docs/benchmarks/{PAGE.name}")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure only these parts")
    options = parser.parse_args()
    if options.write and (options.quick or options.only):
        parser.error("the page is written from a whole run")
    return options
