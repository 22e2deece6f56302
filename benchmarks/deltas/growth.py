"""Whether the bytes of a save, and the time of a page of history, grow with the history."""

import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from statistics import fmean
from typing import Any

import limpet
from benchmarks.deltas.bare import SESSION, page_bytes, url_of
from benchmarks.deltas.outcome import Outcome, limit, ratios, raw_run, seconds, within
from benchmarks.measuring import take_turns
from benchmarks.plan import Plan
from benchmarks.reading import build, page
from benchmarks.report import TIMES, Result
from benchmarks.traces import MESSAGE_CHARS, long_conversation

RATIO_MAX = 1.1
PAGE_RATIO_MAX = 2.0
EARLY = 100
REACH = 66  # saves to either side
GROUP = 33  # what is written only now and then comes at most after so many saves


def measure(plan: Plan) -> Outcome:
    """Return how the file of a chat of 2 KB a turn grows late against early."""
    late = plan.growth_turns
    sizes = _sizes(plan, late + REACH + GROUP)
    before, after = slope(sizes, EARLY), slope(sizes, late)
    goal = Result(
        measure=f"growth of the file at turn {late:,} against turn {EARLY}, bytes a save, "
        f"mean over {2 * REACH} saves",
        goal=limit(RATIO_MAX, " at turn 2,000" if plan.quick else ""),
        measured=f"{after:,.0f} against {before:,.0f} for {2 * MESSAGE_CHARS:,} of text",
        ratio=f"{after / before:.2f} {TIMES}",
        met=after / before <= RATIO_MAX,
    )
    return Outcome([goal], {"growth_bytes": {"turns": _thinned(sizes), "at": [before, after]}})


def _sizes(plan: Plan, turns: int) -> list[int]:
    """Save a chat turn by turn; return the bytes of the database after each."""
    sizes, messages = [], list[Any]()
    with ExitStack() as stack:
        path = stack.enter_context(plan.place()) / "ours.db"
        store = stack.enter_context(limpet.open(url_of(path), synchronous="off"))
        conn = stack.enter_context(closing(sqlite3.connect(path)))
        scope = store.scope(SESSION)
        for turn, new in enumerate(long_conversation(turns), 1):
            messages = messages + new
            scope.save({"turn": turn, "messages": messages})
            sizes.append(page_bytes(conn))
    return sizes


def slope(sizes: Sequence[int], turn: int) -> float:
    """Return the bytes of a save around a turn.

    Both ends are means over a group of saves, so that the engine's alternation of small and
    large writes does not matter.
    """
    ends = (turn - REACH, turn + REACH)
    first, last = (fmean(sizes[end - 1 : end - 1 + GROUP]) for end in ends)
    return (last - first) / (2 * REACH)


def _thinned(sizes: Sequence[int]) -> list[tuple[int, int]]:
    return [(turn, sizes[turn - 1]) for turn in range(GROUP, len(sizes) + 1, GROUP)]


def measure_history(plan: Plan) -> Outcome:
    """Return how a page of a long history compares with one of a short history."""
    with ExitStack() as stack:
        place = stack.enter_context(plan.place())
        counts = {"long": plan.long_history, "short": plan.short_history}
        sides = {}
        for name, count in counts.items():
            build(place / f"{name}.db", count)
            store = stack.enter_context(limpet.open(url_of(place / f"{name}.db")))
            sides[name] = partial(page, store.scope("benchmark"))
        run = take_turns(sides, calls=plan.calls, repetitions=plan.repetitions)
    goal = Result(
        measure=f"`history(limit=20)` at {plan.long_history:,} snapshots against "
        f"{plan.short_history:,}",
        goal=limit(PAGE_RATIO_MAX, " at 100,000" if plan.quick else ""),
        measured=f"{seconds(run, 'long')} against {seconds(run, 'short')}",
        ratio=ratios(run, "long", "short"),
        met=within(run, "long", "short", PAGE_RATIO_MAX),
    )
    return Outcome([goal], {"history": raw_run(run)})
