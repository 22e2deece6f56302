"""Histories of any length: the first page costs the same, and walking all of it needs no memory."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import limpet
from benchmarks.material import messages
from benchmarks.measuring import Clock, Run, take_turns
from benchmarks.plan import Plan
from benchmarks.report import TIMES, Result, milliseconds, spread

RATIO_MAX = 2.0
GROWTH_BYTES_MAX = 50_000_000
PAGE = 20
RARE = 1_000  # one snapshot in so many carries the label that is searched for
MARK = {"mark": "rare"}


def url_of(path: Path) -> str:
    """Return the address of a database."""
    return f"sqlite:///{path}"


def build(path: Path, count: int) -> float:
    """Save a history of small states, not durably; return the seconds of one save."""
    prose = messages()
    start = perf_counter()
    with limpet.open(url_of(path), synchronous="off") as store:
        scope = store.scope("benchmark")
        for number in range(count):
            state = {"step": number, "last": prose[number % len(prose)]["content"][:60]}
            scope.save(state, labels=MARK if number % RARE == 0 else None)
    return (perf_counter() - start) / count


def measure(plan: Plan) -> Iterator[Result]:
    """Yield how a page of a long history compares with one of a short history, and the walk."""
    with ExitStack() as stack:
        place = stack.enter_context(plan.place())
        build(place / "short.db", plan.short_history)
        each = build(place / "long.db", plan.long_history)
        short, long = (
            stack.enter_context(limpet.open(url_of(place / name))).scope("benchmark")
            for name in ("short.db", "long.db")
        )
        run = take_turns(
            {"short": partial(page, short), "long": partial(page, long)},
            calls=plan.calls,
            repetitions=plan.repetitions,
        )
        clocks: tuple[Clock, ...] = ("cpu", "wall")
        for clock in clocks:
            yield _compared(run, clock, plan)
        yield from _informed(long, plan)
        yield from _walked(place / "long.db", plan)
    yield Result(
        measure=f"`save` of a small state with `synchronous=off`, mean over {plan.long_history:,}",
        measured=f"{milliseconds(each)} wall",
    )


def page(scope: limpet.Scope, number: int) -> None:
    """Read the newest snapshots of a history, and check that they are there."""
    found = sum(1 for _ in scope.history(limit=PAGE))
    if found != PAGE:
        raise AssertionError(f"a page of history is not full: {found}")


def _at(plan: Plan) -> str:
    """Say of which length the goals speak when that is not what is measured."""
    return " at 100,000" if plan.quick else ""


def _compared(run: Run, clock: Clock, plan: Plan) -> Result:
    ratios = run.ratios("long", "short", clock)
    long, short = (milliseconds(run.seconds(side, clock)) for side in ("long", "short"))
    return Result(
        measure=f"`history(limit={PAGE})` on {plan.long_history:,} snapshots against "
        f"{plan.short_history:,}, {'CPU' if clock == 'cpu' else 'wall'}, median",
        goal=f"≤ {RATIO_MAX:g} {TIMES}" + _at(plan),
        measured=f"{long} against {short}",
        ratio=spread(ratios),
        met=None if plan.quick else median(ratios) <= RATIO_MAX,
    )


def _informed(long: limpet.Scope, plan: Plan) -> Iterator[Result]:
    for deep in long.history(limit=plan.long_history // 2):
        middle = deep
    run = take_turns(
        {
            "middle": lambda number: list(long.history(limit=PAGE, after=middle)),
            "labels": lambda number: list(long.history(limit=PAGE, labels=MARK)),
        },
        calls=max(5, plan.calls // 20),
        repetitions=plan.repetitions,
        warmup=2,
    )
    for side, what in (
        ("middle", f"`history(limit={PAGE}, after=…)` from the middle of them"),
        ("labels", f"`history(limit={PAGE}, labels=…)`, a label on one in {RARE:,} of them"),
    ):
        yield Result(
            f"{what}, median",
            f"{milliseconds(run.seconds(side, 'cpu'))} CPU, "
            f"{milliseconds(run.seconds(side, 'wall'))} wall",
        )


def _walked(path: Path, plan: Plan) -> Iterator[Result]:
    grown, seconds = [], []
    for _ in range(1 if plan.quick else 3):
        command = [sys.executable, "-m", "benchmarks.walking", url_of(path)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        if int(answer[0]) != plan.long_history:
            raise AssertionError(f"the walk saw {answer[0]} of {plan.long_history} snapshots")
        grown.append(int(answer[1]))
        seconds.append(float(answer[2]))
    yield Result(
        measure=f"growth of memory by walking {plan.long_history:,} entries of history",
        goal=f"< {GROWTH_BYTES_MAX / 1e6:g} MB" + _at(plan),
        measured=f"{max(grown) / 1e6:.1f} MB (maximum of {len(grown)} new processes)",
        met=None if plan.quick else max(grown) < GROWTH_BYTES_MAX,
    )
    yield Result("that walk, per entry", f"{1e6 * median(seconds) / plan.long_history:.1f} µs wall")
