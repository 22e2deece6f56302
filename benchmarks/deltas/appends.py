"""`append` costs what is appended: at turn 5,000 as much as at turn 10."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import limpet
from benchmarks.deltas.bare import SESSION, file_bytes, opened_scope, url_of
from benchmarks.deltas.outcome import Outcome, limit, ratios, raw_run, seconds, within
from benchmarks.measuring import SYNC, Bare, Call, Cold, Run, Times, repeated, take_cold_turns
from benchmarks.plan import Plan
from benchmarks.report import Result
from benchmarks.saving import syncing
from benchmarks.traces import long_conversation

RATIO_MAX = 1.15
EARLY = 10
MESSAGES = "messages"
LOG_APPENDS = 200


@dataclass
class Bench:
    """A long chat and many short ones, each in a file of its own kind."""

    long: Path
    short: Path
    turns: list[list[dict[str, str]]]
    begun: int = 0

    def append(self, scope: limpet.Scope, turn: int) -> None:
        """Append the messages of one turn."""
        items: list[Any] = [*self.turns[turn % len(self.turns)]]
        scope.append(MESSAGES, items)

    def begin_short(self, store: limpet.Store, turns: int) -> limpet.Scope:
        """Begin another short chat, with so many turns."""
        self.begun += 1
        scope = store.scope(f"{SESSION}-{self.begun}")
        for turn in range(turns):
            self.append(scope, turn)
        return scope


def measure(plan: Plan) -> Outcome:
    """Return how late appends compare with early ones, warm and cold."""
    with ExitStack() as stack:
        place = stack.enter_context(plan.place())
        bench = Bench(place / "long.db", place / "short.db", list(long_conversation(2_500)))
        with limpet.open(url_of(bench.long), synchronous="off") as store:
            scope = store.scope(SESSION)
            for turn in range(plan.appends):
                bench.append(scope, turn)
        size = file_bytes(bench.long)
        sync = stack.enter_context(syncing(place / "sync.bin"))
        calls = plan.cold_calls * 5 // 2
        with (
            limpet.open(url_of(bench.long)) as late,
            limpet.open(url_of(bench.short)) as early,
        ):
            # The logs of both reach their full length first: to sync a growing file takes longer.
            for turn in range(LOG_APPENDS):
                bench.append(late.scope(SESSION), turn)
                bench.append(early.scope(SESSION), turn)
            one = partial(_warm, bench, late, early, sync, calls)
            warm = repeated(one, plan.repetitions)
        cold = repeated(partial(_cold, bench, sync, calls), plan.repetitions)
    return Outcome(
        [_row(warm, "warm", plan), _row(cold, "newly opened", plan)],
        {
            "append_warm": raw_run(warm),
            "append_cold": raw_run(cold),
            "append_file_bytes": size,
            "append_turns": plan.appends,
        },
    )


def _row(run: Run, how: str, plan: Plan) -> Result:
    met = within(run, "late", "early", RATIO_MAX)
    return Result(
        measure=f"`append` of a turn from turn {plan.appends:,} on against turn {EARLY}, "
        f"{how}, p50",
        goal=limit(RATIO_MAX, " at turn 5,000" if plan.quick else ""),
        measured=f"{seconds(run, 'late')} against {seconds(run, 'early')}",
        ratio=ratios(run, "late", "early"),
        met=met,
        contended=run.contended,
    )


def _warm(
    bench: Bench, long: limpet.Store, short: limpet.Store, sync: Call, calls: int
) -> Mapping[str, Times]:
    scopes = [bench.begin_short(short, _early(number) - 2) for number in range(calls)]
    chat = long.scope(SESSION)

    @contextmanager
    def warmed(scope: limpet.Scope, number: int) -> Iterator[Bare]:
        bench.append(scope, number)
        yield partial(bench.append, scope, number + 1)

    sides: dict[str, Cold] = {
        "late": lambda number: warmed(chat, number),
        "early": lambda number: warmed(scopes[number], number),
        SYNC: _syncs(sync),
    }
    return take_cold_turns(sides, calls=calls)


def _cold(bench: Bench, sync: Call, calls: int) -> Mapping[str, Times]:
    @contextmanager
    def late(number: int) -> Iterator[Bare]:
        with opened_scope(bench.long) as scope:
            yield partial(bench.append, scope, number)

    @contextmanager
    def early(number: int) -> Iterator[Bare]:
        with limpet.open(url_of(bench.short), synchronous="off") as store:
            session = bench.begin_short(store, _early(number) - 1).session_id
        with opened_scope(bench.short, session) as scope:
            yield partial(bench.append, scope, number)

    return take_cold_turns({"late": late, "early": early, SYNC: _syncs(sync)}, calls=calls)


def _early(number: int) -> int:
    """Return turn 10 or one near it: pages fill up in a rhythm, and each beat shall be met."""
    return EARLY + number % 5 - 2


def _syncs(sync: Call) -> Cold:
    @contextmanager
    def opened(number: int) -> Iterator[Bare]:
        yield partial(sync, number)

    return opened
