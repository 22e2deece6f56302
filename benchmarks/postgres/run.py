"""Runs all parts of the benchmark, prints the page, and writes it if asked."""

from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.harness import Benchmark, machine
from benchmarks.objects.disk import file_system, folder_on_disk
from benchmarks.peers.race import Runner
from benchmarks.plan import Plan
from benchmarks.postgres import chat, disk, server, throughput, trips
from benchmarks.postgres.page import page
from benchmarks.postgres.sizes import Sizes, quick_sizes
from benchmarks.report import Result
from tests.servers.postgres import Postgres

PARTS = ("throughput", "chat", "disk", "trips")
QUICK_REPETITIONS = 1


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    run = Benchmark("postgres", "less than a minute", "--repetitions", "--dir", only=PARTS)
    folder = run.folder or folder_on_disk()
    quick = quick_sizes(run.repetitions or QUICK_REPETITIONS)
    sizes = quick if run.quick else Sizes(run.repetitions or 5)
    found: dict[str, list[Result]] = {}
    about = machine("psycopg")
    with server.running(folder) as started:
        about[-1:-1] = [*server.facts(started), f"data on {file_system(folder)}"]
        for name, part in _parts(started, folder, sizes).items():
            if name in run.only:
                with run.part(name):
                    found[name] = run.judged(part())
    run.publish(page(found, [each for each in about if "SQLite" not in each], sizes))


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
