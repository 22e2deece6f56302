"""Measure the checkpointer: `python -m benchmarks.langgraph [--quick] [--write]`.

Prints a page of tables; goals that are missed are marked in it. Fails only if something crashes.
"""

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import Benchmark, machine
from benchmarks.langgraph.page import page
from benchmarks.langgraph.sides import ALONE, Side, have_turns, look_back, sides
from benchmarks.objects.disk import file_system, folder_on_disk
from benchmarks.postgres import server
from benchmarks.report import milliseconds
from benchmarks.traces import conversation

PACKAGES = ("langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres")
TURNS, QUICK_TURNS = 500, 60


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    run = Benchmark("langgraph", "less than a minute", "--repetitions")
    turns = QUICK_TURNS if run.quick else TURNS
    repetitions = run.repetitions or (1 if run.quick else 3)
    before, folder = os.getloadavg()[0], folder_on_disk()
    with server.running(folder) as started, TemporaryDirectory(dir=folder) as place:
        disk = f"data on {file_system(folder)}"
        sync = f"the sync of a small file took {milliseconds(server.sync_seconds(folder))}"
        about = machine(*PACKAGES, more=[*server.facts(started), disk, sync])
        with sides(Path(place), started) as found:
            _measure(found, Path(place), turns, repetitions)
    text = page(
        found,
        about,
        turns=turns,
        repetitions=repetitions,
        loads=(before, os.getloadavg()[0]),
        judged=not run.quick,
    )
    run.publish(text)


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


if __name__ == "__main__":
    main()
