"""Measure the foreign interfaces: `python -m benchmarks.compat [--quick] [--write]`.

Prints a page of tables; goals that are missed are marked in it. Fails only if something crashes.
"""

from collections.abc import Callable

from benchmarks.compat.page import page
from benchmarks.compat.parts import Part, agents_part, runs_part, snapshots_part
from benchmarks.compat.sizes import QUICK, Sizes
from benchmarks.harness import Benchmark, machine
from benchmarks.objects.disk import file_system, folder_on_disk
from benchmarks.plan import Plan
from benchmarks.postgres.server import sync_seconds
from benchmarks.report import milliseconds

PARTS: dict[str, Callable[[Plan, Sizes], Part]] = {
    "agents": agents_part,
    "snapshots": snapshots_part,
    "runs": runs_part,
}


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    run = Benchmark("compat", "less than 20 s", only=tuple(PARTS))
    sizes = QUICK if run.quick else Sizes()
    folder = folder_on_disk()
    plan = Plan(folder, sizes.repetitions)
    disk = f"directories on {file_system(folder)}"
    sync = f"the sync of a small file took {milliseconds(sync_seconds(folder))}"
    about = machine("strands-agents", "psycopg", more=[disk, sync])
    parts = []
    for name in PARTS:
        if name in run.only:
            with run.part(name):
                parts.append(PARTS[name](plan, sizes))
    goals = run.judged(each for part in parts for each in part.goals)
    run.publish(page([part.text for part in parts], goals, about, sizes))


if __name__ == "__main__":
    main()
