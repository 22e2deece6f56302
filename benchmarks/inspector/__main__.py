"""Measure the pages: `python -m benchmarks.inspector [--quick] [--write]`.

Prints a page of tables; goals that are missed are marked in it. Fails only if something crashes.
"""

import asyncio
import html
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import limpet
from benchmarks.harness import Benchmark, machine
from benchmarks.inspector.material import LARGE, LONG, build, build_few
from benchmarks.objects.disk import folder_on_disk
from benchmarks.report import Result, milliseconds, table
from limpet.inspector.pages import PAGES
from limpet.server.access import Access
from limpet.server.app import App
from limpet.views import overview
from tests.server.asgi import ask

FIRST_S_MAX = 0.3
BUSY = 1.0  # load for each core


class Sizes(NamedTuple):
    """How much is measured."""

    sessions: int = 10_000
    snapshots: int = 100  # of each session
    repetitions: int = 15
    long: int = 10_000  # snapshots of one session
    large_mb: int = 20  # of one state


QUICK = Sizes(200, 10, 3, long=500, large_mb=1)


class Times(NamedTuple):
    """Seconds by the clock, and of work of this process."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Times":
        return cls(perf_counter(), process_time())

    def passed(self) -> "Times":
        now = Times.now()
        return Times(now.wall - self.wall, now.cpu - self.cpu)


PREFACE = """\
# The inspector

Written by `make bench` (`python -m benchmarks.inspector --write`). The time from a request to the
last byte of its answer, inside the server: the store is read, and the page is made. SQLite, one
process, no other request at the same time; the file is in the cache of the system. A figure is the
median of {repetitions} requests, with minimum and maximum in brackets. On a machine that is busy
with something else the goals are not judged; *CPU* is the work of the process, which shows even
then what a request costs.

The list of sessions: {sessions:,} sessions with {snapshots:,} snapshots each. A page shows 50 of
them, with the title, the last message, the number of snapshots and branches, and the stored size of
each. *Newest first* is one statement; a filter by status, and *needs attention*, read every head.

A long session: {long:,} snapshots, with some forks. Its page has the first rows of the graph; more
are asked for as they come into view. A large state: about {large_mb} MB of JSON, half of it a chat.

A goal that is missed stays in the table, marked **no**.

Machine: {machine}.
"""


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    run = Benchmark("inspector", "a few small stores")
    sizes = QUICK if run.quick else Sizes()
    about = "; ".join(machine())
    # On a machine that is busy with something else a request waits for its turn.
    judged = not run.quick and os.getloadavg()[0] < BUSY * (os.cpu_count() or 1)
    with tempfile.TemporaryDirectory(dir=folder_on_disk()) as folder:
        path = Path(folder) / "many.db"
        with run.part("making the store"):
            build(path, sessions=sizes.sessions, snapshots=sizes.snapshots)
        rows = list(asyncio.run(_lists(path, sizes, judged)))
        rows += _terminal(path, sizes)
        few = Path(folder) / "few.db"
        build_few(few, long=sizes.long, large_bytes=sizes.large_mb * 10**6)
        rows += asyncio.run(_details(few, sizes))
    run.publish(f"{PREFACE.format(machine=about, **sizes._asdict())}\n{table(rows)}\n")


async def _lists(path: Path, sizes: Sizes, judged: bool) -> list[Result]:
    async with limpet.open_async(f"sqlite:///{path}") as store:
        app = App(store, Access(), PAGES)
        first = await ask(app, "GET", "/ui")
        found = re.search(r'rel="next" href="([^"]*)"', first.body.decode())
        following = (
            {} if found is None else dict(parse_qsl(urlsplit(html.unescape(found[1])).query))
        )
        asked = {
            "newest first": {},
            "newest first, the next page": following,
            "sorted by name": {"sort": "name"},
            "a prefix": {"prefix": "travel-0"},
            "with a status": {"status": "failed"},
            "needs attention": {"attention": "true"},
            "a text in the title or the last message": {"text": "python"},
        }
        rows = []
        for name, query in asked.items():
            times, _ = await _asked(app, "/ui", query, sizes)
            goal = name.startswith("newest first")
            rows.append(_row(f"the list of sessions, {name}", times, goal, judged))
        return rows


async def _details(path: Path, sizes: Sizes) -> list[Result]:
    async with limpet.open_async(f"sqlite:///{path}") as store:
        app = App(store, Access(), PAGES)
        first = await ask(app, "GET", "/ui/session", {"session_id": LONG})
        found = re.search(r'data-version="([^"]*)"', first.body.decode())
        version = "" if found is None else html.unescape(found[1])
        chunk = {"session_id": LONG, "at": str(sizes.long // 2), "version": version}
        head = await store.scope(LARGE).info()
        large = {"session_id": LARGE, "id": "" if head is None else head.id}
        asked = {
            "a long session, its page": ("/ui/session", {"session_id": LONG}),
            "a long session, more rows": ("/ui/rows", chunk),
            "a large state, as a tree": ("/ui/session", {**large, "view": "state"}),
            "a large state, a list in it is opened": ("/ui/tree", {**large, "path": "/rows"}),
            "a large state, as a chat": ("/ui/session", {**large, "view": "chat"}),
        }
        rows = []
        for name, (address, query) in asked.items():
            times, size = await _asked(app, address, query, sizes)
            row = _row(name, times, has_goal=False, judged=False)
            rows.append(replace(row, measured=f"{row.measured}; {size / 1000:.0f} KB of HTML"))
        return rows


async def _asked(
    app: App, path: str, query: dict[str, str], sizes: Sizes
) -> tuple[list[Times], int]:
    """Return how long each request for a page took, and how many bytes it has."""
    times, size = [], 0
    for _ in range(sizes.repetitions):
        begun = Times.now()
        answer = await ask(app, "GET", path, query)
        times.append(begun.passed())
        size = len(answer.body)
        if answer.status != 200:
            raise RuntimeError(answer.body.decode())
    return times, size


def _terminal(path: Path, sizes: Sizes) -> Iterator[Result]:
    """What `limpet ls` reads, without the start of Python."""
    with limpet.open(f"sqlite:///{path}") as store:
        times = []
        for _ in range(sizes.repetitions):
            begun = Times.now()
            list(overview.sessions(store, limit=50).read())
            times.append(begun.passed())
        yield _row("what `limpet ls` reads", times, has_goal=False, judged=False)


def _row(name: str, times: list[Times], has_goal: bool, judged: bool) -> Result:
    wall, cpu = sorted(each.wall for each in times), median(each.cpu for each in times)
    middle = median(wall)
    low, high = milliseconds(wall[0]), milliseconds(wall[-1])
    return Result(
        name,
        f"{milliseconds(middle)} ({low} to {high}); CPU {milliseconds(cpu)}",
        goal=f"< {milliseconds(FIRST_S_MAX)}" if has_goal else "-",
        met=middle < FIRST_S_MAX if has_goal and judged else None,
    )


if __name__ == "__main__":
    main()
