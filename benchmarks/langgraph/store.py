"""Measure `LimpetStore` against `SqliteStore`: `python -m benchmarks.langgraph.store [--write]`.

Prints a page of tables; rows below the goal are marked in it. Fails only if something crashes.
"""

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, NamedTuple
from uuid import UUID

from langgraph.store.base import BaseStore, GetOp, PutOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import SqliteStore

import limpet
from benchmarks.objects.disk import folder_on_disk
from benchmarks.peers.venvs import ROOT
from benchmarks.report import TIMES, facts
from limpet.compat.langgraph import LimpetStore

PAGE = ROOT / "docs" / "benchmarks" / "langgraph_store.md"
GOAL = 0.9
SIZES = (10, 1_000, 10_000)
DIMS = 384
PLACE = ("memories", "alice")
BATCH = 100

PREFACE = """\
# LangGraph: `LimpetStore` against `SqliteStore`

Written by `python -m benchmarks.langgraph.store --write`. One namespace with 10, 1,000 and 10,000
items of 130 bytes (by meaning: with a vector of {dims} numbers), keys are UUIDs, in a SQLite file.
Both sync each commit to the disk: `LimpetStore` as it is opened by default (write-ahead log,
`synchronous=FULL`); `SqliteStore` with the same settings, and below also as its documentation opens
it (rollback journal, `FULL`). They alternate, {rounds} times {seconds:g} s each; the best round
counts. *CPU* is the ratio by the CPU time of the process: on a busy machine the more stable one.
The goal is {goal} {times} the throughput; a row below it by both measures is marked **no**.

A search returns 10 items, the last updated first. *Equal*: a text that one in ten items has; *at
least*: a number that the last tenth has; *nothing matches*: every item is tested. *By meaning* is
against `InMemoryStore`, since `SqliteStore` needs a Python that loads extensions of SQLite.

Machine: {machine}.
"""


class Row(NamedTuple):
    """One comparison: operations per second of both, and the ratio by CPU time."""

    what: str
    size: int
    ours: float
    theirs: float
    cpu: float

    def cells(self) -> tuple[str, ...]:
        ratio = self.ours / self.theirs
        verdict = "yes" if max(ratio, self.cpu) >= GOAL else "**no**"
        rates = (f"{self.ours:,.0f}", f"{self.theirs:,.0f}")
        return (self.what, f"{self.size:,}", *rates, f"{ratio:.2f}", f"{self.cpu:.2f}", verdict)


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.langgraph.store")
    parser.add_argument("--quick", action="store_true", help="a quick run of half a minute")
    parser.add_argument("--write", action="store_true", help=f"write docs/benchmarks/{PAGE.name}")
    options = parser.parse_args()
    rounds, seconds = (1, 0.1) if options.quick else (5, 0.3)
    sizes = SIZES[:2] if options.quick else SIZES
    *about, load = facts()
    package = f"langgraph-checkpoint-sqlite {version('langgraph-checkpoint-sqlite')}"
    with TemporaryDirectory(dir=folder_on_disk()) as place:
        rows = [row for size in sizes for row in _measured(Path(place), size, rounds, seconds)]
    machine = "; ".join((*about, package, load))
    text = PREFACE.format(
        dims=DIMS, rounds=rounds, seconds=seconds, goal=GOAL, times=TIMES, machine=machine
    )
    text += _table(rows)
    print(text)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")


def _table(rows: list[Row]) -> str:
    heads = ("operation", "items", "ours, per s", "theirs, per s", "ratio", "CPU", f"≥ {GOAL}")
    lines = [heads, ("---",) * len(heads), *(row.cells() for row in sorted(rows, key=_order))]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


_WHATS: list[str] = []


def _order(row: Row) -> tuple[int, int]:
    if row.what not in _WHATS:
        _WHATS.append(row.what)
    return _WHATS.index(row.what), row.size


def key_of(number: int) -> str:
    return str(UUID(int=random.Random(number).getrandbits(128)))


def value_of(number: int) -> dict[str, Any]:
    text = f"the user likes item {number} very much, and said so"
    return {"kind": f"k{number % 10}", "n": number, "text": text, "tags": ["a", "b"]}


def embed(texts: Any) -> list[list[float]]:
    """Return vectors that depend on the texts alone."""
    return [[each.gauss(0, 1) for _ in range(DIMS)] for each in map(random.Random, texts)]


def _measured(folder: Path, size: int, rounds: int, seconds: float) -> Iterator[Row]:
    with ExitStack() as stack:
        store = stack.enter_context(limpet.open(f"sqlite:///{folder}/ours-{size}.db"))
        ours = LimpetStore(store)
        same, plain = (
            stack.enter_context(_theirs(f"{folder}/{name}-{size}.db", wal=name == "same"))
            for name in ("same", "plain")
        )
        for each in (ours, same, plain):
            _fill(each, size)
        for what, make in _operations(size).items():
            yield _compared(what, size, make, ours, same, rounds, seconds)
        for what in ("put", f"{BATCH} puts"):
            make = _operations(size)[what]
            yield _compared(f"{what}, journal", size, make, ours, plain, rounds, seconds)
    if size > SIZES[0]:
        yield _by_meaning(folder, size, rounds, seconds)


@contextmanager
def _theirs(path: str, *, wal: bool) -> Iterator[SqliteStore]:
    """Open a `SqliteStore` as its documentation does, or with a write-ahead log."""
    with SqliteStore.from_conn_string(path) as store:
        if wal:
            store.conn.execute("PRAGMA journal_mode = WAL")
        store.conn.execute("PRAGMA synchronous = FULL")
        store.setup()
        yield store


def _fill(store: BaseStore, size: int) -> None:
    for at in range(0, size, 500):
        numbers = range(at, min(size, at + 500))
        store.batch([PutOp(PLACE, key_of(each), value_of(each)) for each in numbers])


Operation = Callable[[BaseStore, int], Any]


def _operations(size: int) -> dict[str, Operation]:
    keys = [key_of(number) for number in range(size)]

    def some(count: int) -> list[str]:
        return [keys[(count * BATCH + each) % size] for each in range(BATCH)]

    return {
        "get": lambda store, n: store.get(PLACE, keys[n % size]),
        f"{BATCH} gets": lambda store, n: store.batch([GetOp(PLACE, key) for key in some(n)]),
        "put": lambda store, n: store.put(PLACE, keys[n % size], value_of(n % size)),
        f"{BATCH} puts": lambda store, n: store.batch(
            [PutOp(PLACE, key, value_of(at)) for at, key in enumerate(some(n))]
        ),
        "search": lambda store, n: store.search(PLACE),
        "search, equal": lambda store, n: store.search(PLACE, filter={"kind": f"k{n % 10}"}),
        "search, at least": lambda store, n: store.search(
            PLACE, filter={"n": {"$gte": size - size // 10}}
        ),
        "search, nothing matches": lambda store, n: store.search(PLACE, filter={"kind": "none"}),
    }


def _by_meaning(folder: Path, size: int, rounds: int, seconds: float) -> Row:
    index: Any = {"dims": DIMS, "embed": embed, "fields": ["text"]}
    with limpet.open(f"sqlite:///{folder}/ours-meaning-{size}.db") as store:
        ours, theirs = LimpetStore(store, index=index), InMemoryStore(index=index)
        for each in (ours, theirs):
            _fill(each, size)
        return _compared("search by meaning", size, _near, ours, theirs, rounds, seconds)


def _near(store: BaseStore, number: int) -> Any:
    return store.search(PLACE, query=f"query {number % 3}")


def _compared(
    what: str,
    size: int,
    run: Operation,
    ours: BaseStore,
    theirs: BaseStore,
    rounds: int,
    seconds: float,
) -> Row:
    best: dict[int, tuple[float, float]] = {}
    for _ in range(rounds):
        for side, store in enumerate((ours, theirs)):
            wall, cpu = _rates(run, store, seconds)
            before = best.get(side, (0.0, 0.0))
            best[side] = (max(before[0], wall), max(before[1], cpu))
    print(what, size, best, file=sys.stderr)
    return Row(what, size, best[0][0], best[1][0], best[0][1] / best[1][1])


def _rates(run: Operation, store: BaseStore, seconds: float) -> tuple[float, float]:
    count = 0
    start, cpu = perf_counter(), process_time()
    while perf_counter() - start < seconds:
        run(store, count)
        count += 1
    return count / (perf_counter() - start), count / (process_time() - cpu)


if __name__ == "__main__":
    main()
