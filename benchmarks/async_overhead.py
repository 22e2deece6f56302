"""What the async API adds to a call on SQLite: the switch to a thread and back."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import limpet
from benchmarks.material import state_of
from benchmarks.measuring import Run, Times, order_of
from benchmarks.plan import Plan
from benchmarks.report import NONE, Result, milliseconds, spread
from benchmarks.saving import STATE_BYTES

OVERHEAD_S_MAX = 0.000_15
WARMUP = 30  # also lets the pool start its threads


@dataclass(frozen=True, slots=True)
class Pair:
    """The same verb in both APIs of one store."""

    what: str
    sync: Callable[[], Any]
    aio: Callable[[], Awaitable[Any]]
    judged: bool = True


def measure(plan: Plan) -> Iterator[Result]:
    """Yield how much longer an awaited call takes than the same call of the sync API."""
    with plan.place() as place:
        for durability in ("full", "off"):
            url = f"sqlite:///{place}/{durability}.db"
            with limpet.open(url, synchronous=durability) as store:
                for pair in _pairs(store, durability):
                    yield from _compared(pair, asyncio.run(_take_turns(pair, plan)))


def _pairs(store: limpet.Store, durability: str) -> Iterator[Pair]:
    state = state_of(0, size_bytes=STATE_BYTES)
    scope, twin = store.scope("benchmark"), store.aio.scope("benchmark")
    scope.save(state)
    if durability == "full":
        yield Pair("`info()`", scope.info, twin.info)
        # Not judged: the sync of a durable save varies by more than the difference to measure.
        what = "`save` of 10 KB"
        yield Pair(what, lambda: scope.save(state), lambda: twin.save(state), judged=False)
    else:
        what = "`save` of 10 KB with `synchronous=off`"
        yield Pair(what, lambda: scope.save(state), lambda: twin.save(state))


async def _take_turns(pair: Pair, plan: Plan) -> Run:
    for _ in range(WARMUP):
        pair.sync()
        await pair.aio()
    done = []
    for _ in range(plan.repetitions):
        spent: dict[str, tuple[list[float], list[float]]] = {"sync": ([], []), "aio": ([], [])}
        for number in range(plan.calls):
            for side in order_of(("sync", "aio"), number):
                # All threads: the async API works in one of its pool.
                wall, cpu = time.perf_counter(), time.process_time()
                if side == "sync":
                    pair.sync()
                else:
                    await pair.aio()
                cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
                spent[side][0].append(cpu)
                spent[side][1].append(wall)
        done.append({side: Times(cpu, wall) for side, (cpu, wall) in spent.items()})
    return Run(done)


def _compared(pair: Pair, run: Run) -> Iterator[Result]:
    excess = run.excesses("aio", "sync", "wall")
    aio, sync = (milliseconds(run.seconds(side, "wall")) for side in ("aio", "sync"))
    yield Result(
        measure=f"async overhead of {pair.what}, wall, difference of medians",
        goal=f"≤ {milliseconds(OVERHEAD_S_MAX)}" if pair.judged else NONE,
        measured=f"{spread([1000 * each for each in excess], 'ms', 3)}: {aio} against {sync}",
        ratio=spread(run.ratios("aio", "sync", "wall")),
        met=median(excess) <= OVERHEAD_S_MAX if pair.judged else None,
    )
    cpu = run.excesses("aio", "sync", "cpu")
    yield Result(
        measure=f"async overhead of {pair.what}, CPU of all threads",
        measured=spread([1000 * each for each in cpu], "ms", 3),
        ratio=spread(run.ratios("aio", "sync", "cpu")),
    )
