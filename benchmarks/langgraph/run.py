"""Runs the benchmark, prints the page, and writes it if asked."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.langgraph.page import page
from benchmarks.langgraph.sides import ALONE, Side, have_turns, look_back, sides
from benchmarks.objects.disk import file_system, folder_on_disk
from benchmarks.peers.venvs import ROOT
from benchmarks.postgres import server
from benchmarks.report import facts, milliseconds
from benchmarks.traces import conversation
from tests.servers.postgres import Postgres

PAGE = ROOT / "docs" / "benchmarks" / "langgraph.md"
PACKAGES = ("langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres")
TURNS, QUICK_TURNS = 500, 60


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.langgraph")
    parser.add_argument("--quick", action="store_true", help="a quick run of less than a minute")
    parser.add_argument("--write", action="store_true", help=f"write docs/benchmarks/{PAGE.name}")
    parser.add_argument("--turns", type=int, help="number of turns; nothing is judged")
    parser.add_argument("--repetitions", type=int, help="how often the history is read")
    options = parser.parse_args()
    turns = options.turns or (QUICK_TURNS if options.quick else TURNS)
    judged = turns == TURNS
    repetitions = options.repetitions or (3 if judged else 1)
    if options.write and not judged:
        parser.error("the page is written from a whole run")
    start, before, folder = perf_counter(), os.getloadavg()[0], folder_on_disk()
    *about, load = facts()
    with server.running(folder) as started, TemporaryDirectory(dir=folder) as place:
        machine = [*about, *_facts(started, folder), load]
        with sides(Path(place), started) as found:
            _measure(found, Path(place), turns, repetitions)
    text = page(
        found,
        machine,
        turns=turns,
        repetitions=repetitions,
        loads=(before, os.getloadavg()[0]),
        judged=judged,
    )
    print(text)
    print(f"measured in {perf_counter() - start:.0f} s", file=sys.stderr)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")


def _measure(found: dict[str, Side], place: Path, turns: int, repetitions: int) -> None:
    told = place / "conversation.json"
    told.write_text(json.dumps(list(conversation(turns))), encoding="utf-8")
    have_turns(list(found.values()), told, turns)
    print("the conversation is over", file=sys.stderr)
    each_of = [side for name, side in found.items() if name != ALONE and "async" not in name]
    look_back(each_of, repetitions)
    seen = {(each["count"], each["messages"]) for side in each_of for each in side.walk}
    loaded = {each["messages"] for side in each_of for each in side.load}
    if len(seen) != 1 or loaded != {2 * turns}:
        raise AssertionError(f"the savers do not contain the same: {seen}, {loaded}")


def _facts(started: Postgres, folder: Path) -> Iterator[str]:
    for package in PACKAGES:
        yield f"{package} {version(package)}"
    yield from server.facts(started)
    yield f"data on {file_system(folder)}"
    yield f"the sync of a small file took {milliseconds(server.sync_seconds(folder))}"
