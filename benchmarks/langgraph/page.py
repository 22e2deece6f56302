"""The rows and the page."""

import os
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from benchmarks.compat.page import size
from benchmarks.langgraph.sides import AROUND, LAST, Side
from benchmarks.measuring import Clock
from benchmarks.report import NONE, TIMES, Result, milliseconds, table

DISK_BYTES_MAX = 3_000_000
WALK_FASTER = 8
WALK_MB_MAX = 150
CLOCKS: tuple[tuple[Clock, str], ...] = (("wall", ""), ("cpu", ", CPU"))
PAIRS = (("ours", "sqlite"), ("ours-postgres", "postgres"))
# How many times as fast a turn must be, by its number. The last ones count for the greatest.
TURNS = {5: 1.0, 20: 1.0, 100: 1.5, 500: 4.0}
TURNS_ENCRYPTED = {100: 1 / 1.2, 300: 1.0}

PREFACE = """\
# LangGraph: `LimpetSaver` against its own checkpointers

Written by `make bench` (`python -m benchmarks.langgraph --write`). A graph of one node with
`MessagesState` has a conversation of {turns} turns in one thread: a message of 1 KB and an answer
of 1 KB, both prose. Durability is LangGraph's default, and everything is kept: {count:,}
checkpoints. Each saver is opened as in its documentation, in its own process; they alternated turn
by turn in the same run. Timings differ between machines, so compare the ratios. A goal that is
missed stays in the table, marked **no**.

- **On disk**: the SQLite file after closing; on PostgreSQL `pg_total_relation_size` of all
  tables, including out-of-line storage and indexes.
- **A turn** is one `invoke`: it reads the state, runs the graph, and saves three checkpoints and
  the task writes. *Turn 100* is the median of those around it. Ratios are how many times as fast
  it is; in the last table a figure is the median of {last} turns. *CPU* is that of all threads of
  the process, without the server's; on a busy machine it is the more stable figure.
- **History** is `get_state_history` over all checkpoints in a new process that keeps none of them.
  Repetitions: {repetitions}. *Memory* is the peak of this process, of which {imports:.0f} MB are
  imports. *First* is the time until the first checkpoint is there: LangGraph reads all of them
  from the saver before it yields one. *First of `list`* is that of the saver alone.
- **LangGraph alone** uses a saver that keeps the last checkpoint as an object in memory: the
  minimum for any saver.
- `DeltaChannel` is LangGraph's own remedy against the growth: it requires a change of the graph,
  not only of the saver.
"""
BUSY = """\
**The machine was busy with other work**: on {cores} cores, the load average was {before:.1f} when
the benchmark began and {after:.1f} when it ended. Sizes and memory are exact. Of the times only the
ratios and the CPU are meaningful, and the ratios are blurred by waiting.
"""


def page(
    sides: Mapping[str, Side],
    machine: Sequence[str],
    *,
    turns: int,
    repetitions: int,
    loads: tuple[float, float],
    judged: bool,
) -> str:
    """Return the whole page."""
    preface = PREFACE.format(
        turns=turns,
        count=int(sides["ours"].walked("count")),
        last=LAST,
        repetitions=repetitions,
        imports=median(each["before_mb"] for side in sides.values() for each in side.walk),
    )
    parts = [preface, f"Machine: {'; '.join(machine)}.\n"]
    cores = os.cpu_count() or 1
    if loads[0] > cores / 2:
        parts.append(BUSY.format(cores=cores, before=loads[0], after=loads[1]))
    if not judged:
        parts.append("A quick run: fewer turns than the goals require, so nothing is judged.\n")
    goals = [row for ours, theirs in PAIRS for row in _goals(sides[ours], sides[theirs])]
    goals += _turns(sides["ours-async"], sides["async"], TURNS)
    goals += _turns(sides["ours-encrypted"], sides["encrypted"], TURNS_ENCRYPTED)
    if not judged:
        goals = [Result(row.measure, row.measured, row.goal, row.ratio) for row in goals]
    parts += [f"## Goals\n\n{table(goals)}\n", f"## All savers\n\n{_all(sides)}\n"]
    return "\n".join(parts)


def _goals(ours: Side, theirs: Side) -> Iterator[Result]:
    title = f"{ours.title}, against {theirs.title}"
    yield Result(
        f"on disk; {title}",
        f"{size(ours.bytes)} against {size(theirs.bytes)}",
        f"≤ {size(DISK_BYTES_MAX)}",
        f"{theirs.bytes / ours.bytes:.0f} {TIMES} less",
        ours.bytes <= DISK_BYTES_MAX,
    )
    yield from _turns(ours, theirs, TURNS)
    loads = [median(each["wall"] for each in side.load) for side in (ours, theirs)]
    yield Result(
        f"latest state in a new process; {title}",
        " against ".join(map(milliseconds, loads)),
        "not slower",
        f"{loads[1] / loads[0]:.2f} {TIMES}",
        loads[0] <= loads[1],
    )
    peaks = [each.walked("peak_mb") for each in (ours, theirs)]
    yield Result(
        f"history, memory; {title}",
        " against ".join(f"{peak:,.0f} MB" for peak in peaks),
        f"< {WALK_MB_MAX} MB",
        f"{peaks[1] / peaks[0]:.1f} {TIMES} less",
        peaks[0] < WALK_MB_MAX,
    )
    faster = theirs.walked("wall") / ours.walked("wall")
    yield Result(
        f"history, time; {title}",
        " against ".join(f"{each.walked('wall'):.2f} s" for each in (ours, theirs)),
        f"≥ {WALK_FASTER} {TIMES} faster",
        f"{faster:.1f} {TIMES} faster",
        faster >= WALK_FASTER,
    )
    yield Result(
        f"the same in CPU; {title}",
        " against ".join(f"{each.walked('cpu'):.2f} s" for each in (ours, theirs)),
        ratio=f"{theirs.walked('cpu') / ours.walked('cpu'):.1f} {TIMES} less",
    )


def _turns(ours: Side, theirs: Side, goals: Mapping[int, float]) -> Iterator[Result]:
    title = f"{ours.title}, against {theirs.title}"
    for number, goal in goals.items():
        at = min(number, len(ours.turns) - AROUND)
        for clock, name in CLOCKS:
            figures = [side.turn_at(at, clock) for side in (ours, theirs)]
            faster = figures[1] / figures[0]
            yield Result(
                f"turn {number}{name}; {title}",
                " against ".join(map(milliseconds, figures)),
                f"≥ {goal:.2g} {TIMES}",
                f"{faster:.2f} {TIMES}",
                faster >= goal,
            )


def _all(sides: Mapping[str, Side]) -> str:
    head = (
        "saver",
        "on disk",
        "a turn at the start",
        "at the end",
        "CPU at the end",
        "latest state, new process",
        "first of `list`",
        "history",
        "first",
        "memory",
    )
    rows = [head, ("---",) * len(head), *map(_row, sides.values())]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(side: Side) -> tuple[str, ...]:
    turns = (
        milliseconds(side.turn("wall", last=False)),
        milliseconds(side.turn("wall")),
        milliseconds(side.turn("cpu")),
    )
    if not side.walk:
        return (side.title, NONE, *turns, *[NONE] * 5)
    return (
        side.title,
        size(side.bytes),
        *turns,
        milliseconds(median(each["wall"] for each in side.load)),
        milliseconds(median(each["listed"] for each in side.load)),
        f"{side.walked('wall'):.2f} s",
        milliseconds(side.walked("first")),
        f"{side.walked('peak_mb'):,.0f} MB",
    )
