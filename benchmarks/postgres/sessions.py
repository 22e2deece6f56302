"""Goal 5: a thousand sessions at once, awaited: threads behind the async face, or asyncio alone."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from time import perf_counter, process_time

import holdfast
from benchmarks.material import state_of
from benchmarks.measuring import order_of
from benchmarks.postgres.native import open_native
from benchmarks.postgres.server import schema
from benchmarks.postgres.sizes import CONNECTIONS, Sizes
from benchmarks.report import NONE, Result, milliseconds, spread
from tests.servers.postgres import Postgres

SHARE_MIN = 0.7
STATE_BYTES = 10 * 1024
STATES = 200
APART = 7
TICK_S = 0.01
SINGLE = 300
POOLED, NATIVE = "pooled", "native"
Save = Callable[[holdfast.ScopeKey, holdfast.JSON], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Load:
    """What a side did, with what its callers waited for."""

    rate: float
    waits: Sequence[float]
    cpu_each: float
    late: Sequence[float]
    """By how much others on the loop were held up, at each tick."""

    def wait(self, share: float) -> float:
        """Return what so large a share of the calls did not exceed."""
        return _at(self.waits, share)


def _at(values: Sequence[float], share: float) -> float:
    return sorted(values)[ceil(share * len(values)) - 1]


def measure(server: Postgres, sizes: Sizes) -> Iterator[Result]:
    """Yield how the faces compare."""
    with schema(server) as pooled, schema(server) as native:
        crowd, single = asyncio.run(_measure(server.url, pooled, native, sizes))
    yield from _rows(crowd, single, sizes)


async def _measure(
    dsn: str, pooled: str, native: str, sizes: Sizes
) -> tuple[list[Mapping[str, Load]], list[Mapping[str, Load]]]:
    states = [state_of(number, size_bytes=STATE_BYTES) for number in range(STATES)]
    keys = [holdfast.ScopeKey(f"session {number}", "main") for number in range(sizes.sessions)]
    options = {"schema": pooled, "workers": CONNECTIONS, "connections": CONNECTIONS}
    async with (
        holdfast.open_async(dsn, **options) as store,
        open_native(dsn, native, CONNECTIONS) as prototype,
    ):

        async def save(key: holdfast.ScopeKey, state: holdfast.JSON) -> object:
            return await store.scope(*key).save(state)

        sides: dict[str, Save] = {POOLED: save, NATIVE: prototype.save}
        done = dict.fromkeys(sides, 0)

        async def take(side: str, some: Sequence[holdfast.ScopeKey], saves: int) -> Load:
            done[side] += saves
            return await _load(sides[side], some, states, done[side] - saves, saves)

        for side in sides:
            await take(side, keys, 2)  # the first of a session, and one more
        crowd = [
            {side: await take(side, keys, sizes.saves) for side in order_of(list(sides), number)}
            for number in range(sizes.repetitions)
        ]
        single = [
            {side: await take(side, keys[:1], SINGLE) for side in order_of(list(sides), number)}
            for number in range(sizes.repetitions)
        ]
    return crowd, single


async def _load(
    save: Save,
    keys: Sequence[holdfast.ScopeKey],
    states: Sequence[holdfast.JSON],
    first: int,
    saves: int,
) -> Load:
    waits: list[float] = []
    late: list[float] = []

    async def session(number: int, key: holdfast.ScopeKey) -> None:
        for turn in range(first, first + saves):
            start = perf_counter()
            await save(key, states[(turn + number * APART) % len(states)])
            waits.append(perf_counter() - start)

    async def tick() -> None:
        while True:
            start = perf_counter()
            await asyncio.sleep(TICK_S)
            late.append(perf_counter() - start - TICK_S)

    ticking = asyncio.create_task(tick())
    cpu, start = process_time(), perf_counter()
    await asyncio.gather(*(session(number, key) for number, key in enumerate(keys)))
    seconds, cpu = perf_counter() - start, process_time() - cpu
    ticking.cancel()
    return Load(len(waits) / seconds, waits, cpu / len(waits), late)


def _rows(
    crowd: Sequence[Mapping[str, Load]], single: Sequence[Mapping[str, Load]], sizes: Sizes
) -> Iterator[Result]:
    shares = [each[POOLED].rate / each[NATIVE].rate for each in crowd]
    what = f"async `save` of 10 KB, {sizes.sessions:,} sessions at once, {CONNECTIONS} connections"
    yield Result(
        measure=f"throughput of {what}, threads against asyncio alone",
        goal="≥ 70 %",
        measured=" against ".join(_told(crowd, side) for side in (POOLED, NATIVE)),
        ratio=spread([100 * share for share in shares], "%", 0),
        met=median(shares) >= SHARE_MIN,
    )
    for share, name in ((0.5, "median"), (0.99, "p99")):
        yield _waits(crowd, share, f"a caller waits, {what}, {name}")
    for share, name in ((0.5, "median"), (0.99, "p99")):
        yield _waits(single, share, f"a caller waits, one session alone, {name}")
    held = [
        milliseconds(median(_at(each[side].late, 0.99) for each in crowd))
        for side in (POOLED, NATIVE)
    ]
    yield Result(f"others on the event loop are held up, {what}, p99", " against ".join(held))


def _told(loads: Sequence[Mapping[str, Load]], side: str) -> str:
    rate = median(each[side].rate for each in loads)
    cpu = median(each[side].cpu_each for each in loads)
    return f"{rate:,.0f}/s ({milliseconds(cpu)} CPU)"


def _waits(loads: Sequence[Mapping[str, Load]], share: float, what: str) -> Result:
    seconds = [
        milliseconds(median(each[side].wait(share) for each in loads)) for side in (POOLED, NATIVE)
    ]
    ratios = [each[POOLED].wait(share) / each[NATIVE].wait(share) for each in loads]
    return Result(what, " against ".join(seconds), NONE, spread(ratios))
