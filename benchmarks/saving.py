"""`save` against a lower bound: a bare INSERT of the same bytes, equally durable."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median

import limpet
from benchmarks.material import state_of
from benchmarks.measuring import Average, Call, Clock, Run, take_turns
from benchmarks.plan import Plan
from benchmarks.report import TIMES, Result, milliseconds, spread
from limpet.core.codec import encode

RATIO_MAX = 2.0
SYNC_BYTES = 12 * 1024
STATE_BYTES = 10 * 1024
NAMES: dict[Average, str] = {"fast": "fast call", "median": "median", "mean": "mean"}


def connect(path: Path) -> sqlite3.Connection:
    """Open a plain database that promises what Limpet's promises: durable at each commit."""
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute("PRAGMA synchronous = FULL")
    conn.execute("PRAGMA fullfsync = ON")
    conn.execute("PRAGMA foreign_keys = ON")
    conn.execute("CREATE TABLE states (pk INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT")
    return conn


def insert(conn: sqlite3.Connection, body: bytes) -> None:
    """Store encoded bytes as one transaction."""
    conn.execute("BEGIN IMMEDIATE")
    conn.execute("INSERT INTO states (body) VALUES (?)", (body,))
    conn.execute("COMMIT")


@contextmanager
def syncing(path: Path) -> Iterator[Call]:
    """Give a call that appends a few pages to a file and waits until they are on the disk."""
    pages = os.urandom(SYNC_BYTES)
    with path.open("wb", buffering=0) as file:

        def sync(number: int) -> None:
            file.write(pages)
            os.fsync(file.fileno())

        yield sync


def measure(plan: Plan) -> Iterator[Result]:
    """Yield how `save` of a 10 KB state compares, for CPU and wall, in three averages."""
    # Prepared beforehand, so that the bare side is charged for storing alone.
    states = [state_of(number, size_bytes=STATE_BYTES) for number in range(400)]
    bodies = [encode(state) for state in states]
    with ExitStack() as stack:
        place = stack.enter_context(plan.place())
        store = stack.enter_context(limpet.open(f"sqlite:///{place}/ours.db"))
        conn = stack.enter_context(closing(connect(place / "bare.db")))
        scope = store.scope("benchmark")
        sides: dict[str, Call] = {
            "save": lambda number: scope.save(states[number % len(states)]),
            "insert": lambda number: insert(conn, bodies[number % len(bodies)]),
            "sync": stack.enter_context(syncing(place / "sync.bin")),
        }
        run = take_turns(sides, calls=plan.calls, repetitions=plan.repetitions)
        stored = sum(1 for _ in scope.ids())
        ((bare,),) = conn.execute("SELECT count(*) FROM states").fetchall()
    if stored != bare:
        raise AssertionError(f"the two sides did different work: {stored} and {bare}")
    size = median(map(len, bodies))
    clocks: tuple[Clock, ...] = ("cpu", "wall")
    averages: tuple[Average, ...] = ("fast", "median", "mean")
    for average in averages:
        for clock in clocks:
            yield _compared(run, clock, average, size)
    yield _sync(run)


def _compared(run: Run, clock: Clock, average: Average, size: float) -> Result:
    ratios = run.ratios("save", "insert", clock, average)
    ours, bare = (run.seconds(side, clock, average) for side in ("save", "insert"))
    name = "CPU" if clock == "cpu" else "wall"
    met: bool | None = median(ratios) <= RATIO_MAX
    if met and clock == "wall" and run.contended > len(ratios) / 2:
        met = None  # both sides waited for the same thing, which proves nothing
    return Result(
        measure=f"`save` of {size / 1000:.1f} KB on SQLite against a bare INSERT, "
        f"{name}, {NAMES[average]}",
        goal=f"≤ {RATIO_MAX:g} {TIMES}",
        measured=f"{milliseconds(ours)} against {milliseconds(bare)}",
        ratio=spread(ratios),
        met=met,
        contended=run.contended,
    )


def _sync(run: Run) -> Result:
    per_repetition = [each["sync"].average("wall") for each in run.repetitions]
    least, greatest = min(per_repetition), max(per_repetition)
    return Result(
        measure=f"fsync after appending {SYNC_BYTES // 1024} KB to a file, "
        "alternating with the above",
        measured=f"{milliseconds(median(per_repetition))} ({milliseconds(least)} to "
        f"{milliseconds(greatest)})",
        contended=run.contended,
    )
