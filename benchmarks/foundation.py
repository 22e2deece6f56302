"""Measure the foundation: `python -m benchmarks.foundation [--quick] [--write]`.

Prints a table; goals that are missed are marked in it. Fails only if something crashes.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from benchmarks import async_overhead, reading, saving, starting, verbs
from benchmarks.plan import Plan, quick_plan
from benchmarks.report import Result, facts, page

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "foundation.md"
PARTS: tuple[Callable[[Plan], Iterator[Result]], ...] = (
    saving.measure,
    reading.measure,
    async_overhead.measure,
    starting.measure,
    verbs.measure,
)


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    options = _options()
    folder = options.dir or Path(tempfile.gettempdir())
    plan = Plan(folder, options.repetitions)
    if options.quick:
        plan = quick_plan(folder, options.repetitions)
    machine, start = list(facts()), perf_counter()
    results: list[Result] = []
    for part in PARTS:
        begun = perf_counter()
        results += part(plan)
        name = part.__module__.rpartition(".")[2]
        print(f"{name}: {perf_counter() - begun:.1f} s", file=sys.stderr)
    text = page(results, machine, repetitions=plan.repetitions, quick=plan.quick)
    print(text)
    print(f"measured in {perf_counter() - start:.0f} s", file=sys.stderr)
    if options.write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.foundation")
    parser.add_argument("--quick", action="store_true", help="a quick run of well under a minute")
    parser.add_argument("--write", action="store_true", help=f"write docs/benchmarks/{PAGE.name}")
    parser.add_argument("--repetitions", type=int, default=5, help="number of repetitions")
    # Where /tmp is in memory a sync costs nothing, and the comparison says little.
    parser.add_argument("--dir", type=Path, help="a directory on the disk to measure")
    return parser.parse_args()


if __name__ == "__main__":
    main()
