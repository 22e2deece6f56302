"""All eight traces: the size of the file, `save` against the floor, `load` against a whole blob."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import orjson

import limpet
from benchmarks.deltas.bare import (
    SESSION,
    file_bytes,
    floor_save,
    opened_blob,
    opened_scope,
    url_of,
    write_blob,
)
from benchmarks.measuring import (
    SYNC,
    Bare,
    Clock,
    Run,
    Spent,
    Times,
    order_of,
    repeated,
    take_cold_turns,
)
from benchmarks.plan import Plan
from benchmarks.saving import connect, syncing
from benchmarks.traces import TRACES, Size, Trace

SYNC_EVERY = 5


@dataclass(frozen=True, slots=True)
class Traced:
    """What one trace came to."""

    trace: Trace
    size: Size
    files: Sequence[int]
    """The bytes of the closed file, of each repetition."""
    saves: Run
    """`save` and `floor` over the last quarter of the trace."""
    loads: Run
    """`head` and `old` of a newly opened store, and `whole`: one compressed blob."""

    @property
    def file(self) -> int:
        """The bytes of the closed file."""
        return round(median(self.files))

    def old_over_head(self, clock: Clock) -> tuple[float, float]:
        """Return how an old snapshot compares with the head: the median one, and the worst."""
        calls = zip(*(_seconds(each["old"], clock) for each in self.loads.repetitions), strict=True)
        head = self.loads.seconds("head", clock)
        each = [median(times) / head for times in calls]
        return median(each), max(each)


def _seconds(times: Times, clock: Clock) -> Sequence[float]:
    return times.cpu if clock == "cpu" else times.wall


def measure(plan: Plan) -> Iterator[Traced]:
    """Yield what each trace comes to."""
    for trace in TRACES.values():
        yield _measured(trace, plan)


def _measured(trace: Trace, plan: Plan) -> Traced:
    files: list[int] = []
    with ExitStack() as stack:
        place = stack.enter_context(plan.place())
        path, blob = place / "ours.db", place / "blob.db"

        def walk() -> Mapping[str, Times]:
            for each in place.iterdir():
                each.unlink()
            times = _walked(trace, plan, place)
            files.append(file_bytes(path))
            return times

        saves = repeated(walk, plan.repetitions)
        sample = _sample(trace, plan, path)
        write_blob(blob, _checked(path, blob, sample))
        old = [id for id, _ in sample[:-1]]
        sides = {
            "head": lambda number: _opened_load(path, None),
            "old": lambda number: _opened_load(path, old[number % len(old)]),
            "whole": lambda number: opened_blob(blob),
        }
        one = partial(take_cold_turns, sides, calls=len(old))
        one()  # everything is in the cache of the file system now
        loads = repeated(one, plan.repetitions)
    return Traced(trace, trace.size(plan.trace_saves), files, saves, loads)


def _walked(trace: Trace, plan: Plan, place: Path) -> Mapping[str, Times]:
    """Save a whole trace, and do the floor's work for it; return the times of the last quarter."""
    spent = {name: Spent() for name in ("save", "floor", SYNC)}
    count = 0
    with ExitStack() as stack:
        scope = stack.enter_context(limpet.open(url_of(place / "ours.db"))).scope(SESSION)
        conn: sqlite3.Connection = stack.enter_context(closing(connect(place / "bare.db")))
        sync = stack.enter_context(syncing(place / "sync.bin"))
        for count, step in enumerate(trace.steps(plan.trace_saves), 1):
            changed = orjson.dumps(step.change)
            sides: dict[str, Bare] = {
                "save": partial(scope.save, step.state),
                "floor": partial(floor_save, conn, step.state, changed),
            }
            for side in order_of(list(sides), count):
                spent[side].time(sides[side])
            if count % SYNC_EVERY == 0:
                spent[SYNC].time(partial(sync, count))
    return {name: each.times(None if name == SYNC else count // 4) for name, each in spent.items()}


def _sample(trace: Trace, plan: Plan, path: Path) -> list[tuple[str, Any]]:
    """Return the ids and states of some snapshots all along the trace; the last is the head's."""
    with limpet.open(url_of(path)) as store:
        ids = [info.id for info in store.scope(SESSION).history()][::-1]
    chosen = {round(at * (len(ids) - 1) / plan.cold_calls) for at in range(plan.cold_calls)}
    chosen.add(len(ids) - 1)
    steps = enumerate(trace.steps(plan.trace_saves))
    return [(ids[number], step.state) for number, step in steps if number in chosen]


def _checked(path: Path, blob: Path, sample: Sequence[tuple[str, Any]]) -> Any:
    """Return the state of the head, if everything in the sample is read as it was saved."""
    with opened_scope(path) as scope:
        for id, state in sample:
            found = scope.load(id)
            if found is None or orjson.dumps(found.state) != orjson.dumps(state):
                raise AssertionError(f"what was loaded is not what was saved: {id}")
    return sample[-1][1]


@contextmanager
def _opened_load(path: Path, id: str | None) -> Iterator[Bare]:
    with opened_scope(path) as scope:
        yield partial(scope.load, id)
