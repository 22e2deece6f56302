"""Goal 5: a thousand sessions at once, awaited: the threads of the async API, or asyncio alone."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple

import limpet
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
SINGLE = 300  # saves of a session that is alone
PACE = 200  # saves a second, which leaves both sides time to spare
POOLED, NATIVE = "pooled", "native"
Save = Callable[[limpet.ScopeKey, limpet.JSON], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Load:
    """What a side did, with what its callers waited for."""

    rate: float
    waits: Sequence[float]
    cpu_each: float
    late: Sequence[float]
    """By how much others on the loop were held up, at each tick."""


def _at(values: Sequence[float], share: float) -> float:
    return sorted(values)[ceil(share * len(values)) - 1]


def measure(server: Postgres, sizes: Sizes) -> Iterator[Result]:
    """Yield how the two compare."""
    with schema(server) as pooled, schema(server) as native:
        found = asyncio.run(_measure(server.url, pooled, native, sizes))
    yield from _rows(found, sizes)


class Found(NamedTuple):
    """The repetitions of each way to load the two sides."""

    crowd: Sequence[Mapping[str, Load]]
    paced: Sequence[Mapping[str, Load]]
    single: Sequence[Mapping[str, Load]]


async def _measure(dsn: str, pooled: str, native: str, sizes: Sizes) -> Found:
    options: dict[str, Any] = {"schema": pooled, "workers": CONNECTIONS, "connections": CONNECTIONS}
    async with (
        limpet.open_async(dsn, **options) as store,
        open_native(dsn, native, CONNECTIONS) as prototype,
    ):

        async def save(key: limpet.ScopeKey, state: limpet.JSON) -> object:
            return await store.scope(*key).save(state)

        sides = {POOLED: Side(save, sizes.sessions), NATIVE: Side(prototype.save, sizes.sessions)}
        for side in sides.values():
            await side.begin(sizes.stagger)

        async def repeated(way: Callable[[Side], Awaitable[Load]]) -> list[Mapping[str, Load]]:
            return [
                {name: await way(sides[name]) for name in order_of(list(sides), number)}
                for number in range(sizes.repetitions)
            ]

        return Found(
            await repeated(lambda side: side.crowd(sizes.sessions, sizes.saves)),
            await repeated(lambda side: side.paced(sizes.paced_s)),
            await repeated(lambda side: side.crowd(1, SINGLE)),
        )


class Side:
    """One way to save, and sessions that go on where they were."""

    def __init__(self, save: Save, sessions: int) -> None:
        self._save = save
        self._states = [state_of(number, size_bytes=STATE_BYTES) for number in range(STATES)]
        self._keys = [limpet.ScopeKey(f"session {number}", "main") for number in range(sessions)]
        self._turns = [number * APART for number in range(sessions)]
        self._waits: list[float] = []

    async def begin(self, stagger: int) -> None:
        """Save each session a few times, one more often than the other.

        Now and then a save packs those before it. That must not happen to all at once.
        """

        async def session(number: int) -> None:
            for _ in range(2 + number % stagger):
                await self._one(number)

        await asyncio.gather(*(session(number) for number in range(len(self._keys))))

    async def crowd(self, sessions: int, saves: int) -> Load:
        """Let sessions save one state after the other, all at once."""

        async def session(number: int) -> None:
            for _ in range(saves):
                await self._one(number)

        async def work() -> None:
            await asyncio.gather(*(session(number) for number in range(sessions)))

        return await self._loaded(work)

    async def paced(self, seconds: float) -> Load:
        """Let the sessions save in turn, so many a second, even if some still wait."""

        async def work() -> None:
            start, tasks = perf_counter(), []
            for number in range(round(PACE * seconds)):
                await asyncio.sleep(max(0.0, start + number / PACE - perf_counter()))
                tasks.append(asyncio.create_task(self._one(number % len(self._keys))))
            await asyncio.gather(*tasks)

        return await self._loaded(work)

    async def _one(self, number: int) -> None:
        state = self._states[self._turns[number] % STATES]
        self._turns[number] += 1
        start = perf_counter()
        await self._save(self._keys[number], state)
        self._waits.append(perf_counter() - start)

    async def _loaded(self, work: Callable[[], Awaitable[None]]) -> Load:
        self._waits = []
        late: list[float] = []

        async def tick() -> None:
            while True:
                start = perf_counter()
                await asyncio.sleep(TICK_S)
                late.append(perf_counter() - start - TICK_S)

        ticking = asyncio.create_task(tick())
        cpu, start = process_time(), perf_counter()
        await work()
        seconds, cpu = perf_counter() - start, process_time() - cpu
        ticking.cancel()
        calls = len(self._waits)
        return Load(calls / seconds, self._waits, cpu / calls, late or [0.0])


def _rows(found: Found, sizes: Sizes) -> Iterator[Result]:
    crowd = found.crowd
    shares = [each[POOLED].rate / each[NATIVE].rate for each in crowd]
    who = f"{sizes.sessions:,} sessions at once"
    yield Result(
        measure=f"throughput of async `save` of 10 KB, {who}, {CONNECTIONS} connections, "
        "threads against asyncio alone",
        goal="≥ 70 %",
        measured=" against ".join(_told(crowd, side) for side in (POOLED, NATIVE)),
        ratio=spread([100 * share for share in shares], "%", 0),
        met=median(shares) >= SHARE_MIN,
    )
    ways = (
        (who, crowd),
        (f"{PACE} saves a second of as many sessions", found.paced),
        ("one session alone", found.single),
    )
    for name, loads in ways:
        for share, average in ((0.5, "median"), (0.99, "p99")):
            what = f"an async `save` of 10 KB takes, {name}, {average}, threads against asyncio"
            yield _compared(what, [_waits(each, share) for each in loads])
    for name, loads in ways[:2]:
        what = f"delay of other tasks on the event loop, {name}, p99"
        held = [{side: _at(each[side].late, 0.99) for side in each} for each in loads]
        yield replace(_compared(what, held), ratio=NONE)


def _told(loads: Sequence[Mapping[str, Load]], side: str) -> str:
    rate = median(each[side].rate for each in loads)
    cpu = median(each[side].cpu_each for each in loads)
    return f"{rate:,.0f}/s ({milliseconds(cpu)} CPU)"


def _waits(loads: Mapping[str, Load], share: float) -> Mapping[str, float]:
    return {side: _at(load.waits, share) for side, load in loads.items()}


def _compared(what: str, found: Sequence[Mapping[str, float]]) -> Result:
    seconds = [milliseconds(median(each[side] for each in found)) for side in (POOLED, NATIVE)]
    ratios = [each[POOLED] / max(each[NATIVE], 1e-6) for each in found]
    return Result(what, " against ".join(seconds), NONE, spread(ratios))
