"""Measure the foundation: `python -m benchmarks.foundation [--quick] [--write]`.

Prints a table; goals that are missed are marked in it. Fails only if something crashes.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import async_overhead, reading, saving, starting, verbs
from benchmarks.harness import Benchmark, machine
from benchmarks.plan import Plan, quick_plan
from benchmarks.report import Result, page

PARTS: tuple[Callable[[Plan], Iterator[Result]], ...] = (
    saving.measure,
    reading.measure,
    async_overhead.measure,
    starting.measure,
    verbs.measure,
)


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    run = Benchmark("foundation", "well under a minute", "--repetitions", "--dir")
    make = quick_plan if run.quick else Plan
    plan = make(run.folder or Path(tempfile.gettempdir()), run.repetitions or 5)
    about = machine()
    results: list[Result] = []
    for part in PARTS:
        with run.part(part.__module__.rpartition(".")[2]):
            results += part(plan)
    run.publish(page(results, about, repetitions=plan.repetitions, quick=plan.quick))


if __name__ == "__main__":
    main()
