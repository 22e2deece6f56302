"""Goal 2: a long conversation on one server, saved by Limpet and by LangGraph."""

from collections.abc import Iterator, Mapping
from statistics import median

from benchmarks.deltas.outcome import CLOCKS, NAMES
from benchmarks.peers.catalogue import Entry
from benchmarks.peers.race import Runner, race, save_ratios
from benchmarks.plan import Plan
from benchmarks.report import NONE, TIMES, Result, milliseconds, spread
from tests.servers.postgres import Postgres

FASTER_MIN = 10.0
OURS, APPEND, THEIRS, THEIR_DELTA = "save", "append", "langgraph", "langgraph-delta"
ENTRIES = (
    Entry(OURS, "Limpet `save`", "ours_postgres", "", "save", postgres=True),
    Entry(THEIRS, "LangGraph `put`", "langgraph_put", "", "postgres", "langgraph", postgres=True),
    Entry(APPEND, "Limpet `append`", "ours_postgres", "", "append", postgres=True),
    Entry(
        THEIR_DELTA,
        "LangGraph, DeltaChannel",
        "langgraph_delta",
        "",
        "postgres",
        "langgraph",
        postgres=True,
    ),
)


def run(plan: Plan, server: Postgres) -> Mapping[str, Runner]:
    """Let all have the conversation, in turn, each in a process of its own."""
    return race(plan, ENTRIES[:2] if plan.quick else ENTRIES, server.url)


def rows(runners: Mapping[str, Runner], turns: int) -> Iterator[Result]:
    """Yield what a save takes at the last turn."""
    save = f"`save` at turn {turns} against LangGraph `PostgresSaver.put`"
    yield _faster(runners[OURS], runners[THEIRS], save, turns, f"≥ {FASTER_MIN:g} {TIMES}, wall")
    if APPEND in runners:
        append = f"`append` at turn {turns} against LangGraph `PostgresSaver` with a DeltaChannel"
        yield _faster(runners[APPEND], runners[THEIR_DELTA], append, turns, NONE)


def _faster(ours: Runner, theirs: Runner, what: str, turn: int, goal: str) -> Result:
    measure = f"{what}: speedup"
    if ours.missing or theirs.missing:
        return Result(measure, f"not measured: {theirs.missing or ours.missing}", goal)
    ratios = {clock: save_ratios(theirs, ours, turn, clock) for clock in CLOCKS}
    contended = ours.contended + theirs.contended
    met: bool | None = median(ratios["wall"]) >= FASTER_MIN
    if not met and contended > len(ours.laps):
        met = None  # both waited for the same disk
    return Result(
        measure,
        f"{_both(ours, turn)} against {_both(theirs, turn)}",
        goal,
        "; ".join(f"{NAMES[clock]} {spread(each, digits=1)}" for clock, each in ratios.items()),
        None if goal == NONE else met,
        contended,
    )


def _both(runner: Runner, turn: int) -> str:
    cpu, wall = (milliseconds(runner.save_seconds(turn, clock)) for clock in CLOCKS)
    return f"{cpu} CPU, {wall} wall"
