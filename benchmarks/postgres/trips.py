"""Goal 4: the round trips of a verb, and its time over a slow network."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from time import perf_counter

import limpet
from benchmarks.material import messages, state_of
from benchmarks.postgres.server import place
from benchmarks.postgres.sizes import Sizes
from benchmarks.report import NONE, Result, milliseconds
from tests.servers.pg_proxy import PgProxy
from tests.servers.postgres import Postgres

DELAY_S = 0.001
TRIPS_MAX = 2
STATE_BYTES = 10 * 1024
WARMUP = 5  # the first ones connect, and prepare their statements
RARER = 4  # how much less often the other verbs are called


@dataclass(frozen=True, slots=True)
class Call:
    """What a verb works on: a scope over the slow network, and the snapshot it shows."""

    number: int
    scope: limpet.Scope
    last: limpet.SnapshotInfo


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb, and whether it is a save, of which the goal speaks."""

    name: str
    call: Callable[[Call], object]
    saves: bool = False


@dataclass(frozen=True, slots=True)
class Trips:
    """What the calls of a verb took."""

    counts: Sequence[int]
    seconds: Sequence[float]

    @property
    def typical(self) -> int:
        """Return the round trips of most calls."""
        return Counter(self.counts).most_common(1)[0][0]

    def told(self) -> str:
        """Return the round trips and the time, and what is beyond the typical."""
        more = sorted(count for count in self.counts if count > self.typical)
        text = f"{self.typical} in {milliseconds(median(self.seconds))}"
        if more:
            text += f" (in {len(more)} of {len(self.counts)} calls up to {more[-1]})"
        return text


@cache
def _state(number: int) -> limpet.JSON:
    return state_of(number, size_bytes=STATE_BYTES)


def _changed(found: limpet.Snapshot) -> limpet.Snapshot:
    return found.with_(state={**found.state, "changed": True})


VERBS = (
    Verb("`save`", lambda at: at.scope.save(_state(at.number)), saves=True),
    Verb(
        "`save` with the caller's own id",
        lambda at: at.scope.save(_state(at.number), id=f"own-{at.number}"),
        saves=True,
    ),
    Verb(
        "`save(…, keep=False)`",
        lambda at: at.scope.save(_state(at.number), keep=False),
        saves=True,
    ),
    Verb(
        "`append`",
        lambda at: at.scope.append("messages", [dict(messages()[at.number])]),
        saves=True,
    ),
    Verb("`update` of the head", lambda at: at.scope.update(at.last.id, _changed)),
    Verb("`set_note`", lambda at: at.scope.set_note("todo", {"n": at.number})),
    Verb("`fork` inside the session", lambda at: at.scope.fork(at.last.id)),
    Verb("`delete_snapshot` of the head", lambda at: at.scope.delete_snapshot(at.last.id)),
    Verb("`load()`", lambda at: at.scope.load()),
    Verb("`load(id)`", lambda at: at.scope.load(at.last.id)),
    Verb("`history(limit=20)`", lambda at: list(at.scope.history(limit=20))),
)


def measure(server: Postgres, sizes: Sizes) -> Iterator[Result]:
    """Yield the round trips of each verb, for one who writes alone and for one who does not."""
    with PgProxy(server.url) as proxy, place(server) as url:
        slow = url.replace(server.url, proxy.url)
        with limpet.open(url) as other, limpet.open(slow, connections=1) as store:
            proxy.delay(DELAY_S)
            yield _row("the first `save` of a session", [_first(proxy, store, sizes)], judged=True)
            for verb in VERBS:
                calls = sizes.trips if verb.saves else max(10, sizes.trips // RARER)
                name = f"{verb.name.replace('`', '')} "
                alone = _taken(proxy, verb, calls, store.scope(f"{name} alone"), None)
                company = store.scope(f"{name} in company")
                both = _taken(proxy, verb, calls, company, other.scope(*company.key))
                yield _row(verb.name, [alone, both], judged=verb.saves)
            proxy.delay(0)


def _taken(
    proxy: PgProxy, verb: Verb, calls: int, scope: limpet.Scope, other: limpet.Scope | None
) -> Trips:
    """Call a verb repeatedly. Before each call another writer saves, or the same one."""
    counts, seconds = [], []
    last = scope.save(_state(0))
    for number in range(1, WARMUP + calls + 1):
        if other is not None:
            last = other.save({**_state(number), "other": True})
        elif not verb.saves:
            last = scope.save(_state(number))
        proxy.forget()
        start = perf_counter()
        verb.call(Call(number, scope, last))
        took = perf_counter() - start
        if number > WARMUP:
            seconds.append(took)
            counts.append(proxy.round_trips())
    return Trips(counts, seconds)


def _first(proxy: PgProxy, store: limpet.Store, sizes: Sizes) -> Trips:
    counts, seconds = [], []
    for number in range(WARMUP + sizes.trips // RARER):
        proxy.forget()
        start = perf_counter()
        store.scope(f"session {number}").save(_state(number))
        if number >= WARMUP:
            seconds.append(perf_counter() - start)
            counts.append(proxy.round_trips())
    return Trips(counts, seconds)


def _row(name: str, found: Sequence[Trips], *, judged: bool) -> Result:
    most = max(count for trips in found for count in trips.counts)
    alone = f"{found[0].told()}"
    if len(found) > 1:
        alone = f"alone {alone}; after another writer's save {found[1].told()}"
    return Result(
        measure=f"round trips of {name} over a network of {milliseconds(DELAY_S)} each way",
        goal=f"≤ {TRIPS_MAX}" if judged else NONE,
        measured=alone,
        met=most <= TRIPS_MAX if judged else None,
    )
