"""`save` at turn 500 of the chat against the floor, call by call."""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import partial
from statistics import median

import orjson

import limpet
from benchmarks.deltas.bare import SESSION, floor_save, url_of
from benchmarks.deltas.outcome import (
    CLOCKS,
    NAMES,
    Outcome,
    limit,
    percentile,
    ratios,
    raw_run,
    seconds,
    within,
)
from benchmarks.measuring import SYNC, Bare, Run, Spent, Times, order_of, repeated
from benchmarks.plan import Plan
from benchmarks.report import TIMES, Result, spread
from benchmarks.saving import connect, syncing
from benchmarks.traces import chat

RATIO_MAX = 1.45
SPREAD_MAX = 8.0


def measure(plan: Plan) -> Outcome:
    """Return how `save` of a chat compares with the floor, and how much its times scatter."""
    first, last = plan.turns * 4 // 5, plan.turns * 6 // 5
    run = repeated(partial(_one, plan, first, last), plan.repetitions)
    where = f"at turn {plan.turns} (turns {first + 1} to {last})"
    spreads = {
        clock: [
            percentile(each["save"], clock, 0.99) / each["save"].average(clock)
            for each in run.repetitions
        ]
        for clock in CLOCKS
    }
    wide = any(median(each) > SPREAD_MAX for each in spreads.values())
    goals = [
        Result(
            measure=f"`save` {where} against the floor, CPU",
            goal=limit(RATIO_MAX),
            measured=f"{seconds(run, 'save')} against {seconds(run, 'floor')}",
            ratio=ratios(run, "save", "floor"),
            met=within(run, "save", "floor", RATIO_MAX, ("cpu",)),
            contended=run.contended,
        ),
        Result(
            measure=f"`save` {where}: p99 against p50",
            goal=f"≤ {SPREAD_MAX:g} {TIMES}",
            measured="; ".join(
                f"{NAMES[clock]} p99 {1000 * _p99(run, clock):.2f} ms" for clock in CLOCKS
            ),
            ratio="; ".join(f"{NAMES[clock]} {spread(spreads[clock])}" for clock in CLOCKS),
            met=not wide,
            contended=run.contended,
        ),
    ]
    return Outcome(goals, {"save": raw_run(run), "save_p99_over_p50": spreads})


def _p99(run: Run, clock: str) -> float:
    sides = (each["save"] for each in run.repetitions)
    return median(percentile(each, "cpu" if clock == "cpu" else "wall", 0.99) for each in sides)


def _one(plan: Plan, first: int, last: int) -> Mapping[str, Times]:
    spent = {name: Spent() for name in ("save", "floor", SYNC)}
    with ExitStack() as stack:
        place = stack.enter_context(plan.place())
        scope = stack.enter_context(limpet.open(url_of(place / "ours.db"))).scope(SESSION)
        conn = stack.enter_context(closing(connect(place / "bare.db")))
        sync = stack.enter_context(syncing(place / "sync.bin"))
        for number, step in enumerate(chat(last)):
            changed = orjson.dumps(step.change)
            sides: dict[str, Bare] = {
                "save": partial(scope.save, step.state),
                "floor": partial(floor_save, conn, step.state, changed),
                SYNC: partial(sync, number),
            }
            for side in order_of(list(sides), number):
                if number >= first:
                    spent[side].time(sides[side])
                else:
                    sides[side]()
    return {name: each.times() for name, each in spent.items()}
