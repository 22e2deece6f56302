"""The page that the benchmark prints and writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.deltas import peertable, tracetable
from benchmarks.deltas.tracing import Traced
from benchmarks.deltas.tried import TRIED
from benchmarks.peers.race import Runner
from benchmarks.plan import Plan
from benchmarks.report import Result, table

PREFACE = """\
# What keeping every step costs

Written by `make bench` (`python -m benchmarks.deltas --write`); the raw results are in
[deltas.json](deltas.json). Limpet, its peers and the bare floor ran side by side, on the same
data and the same disk. Timings differ from machine to machine, so what counts are the ratios, which
are formed inside each repetition: the sides of a comparison took turns, call by call in one
process, or (the peers) lap by lap in processes of their own. A figure is the median of
{repetitions} repetitions; in brackets stand the least and the greatest of them. CPU is that of the
calling thread; of the peers, that of all threads of their process. A goal that is missed stays in
the table, marked **no**.

*Contended* counts the repetitions in which the sync of a small file took more than 1 ms in the
median. Such a repetition is tried three times at most, and only once while that does not help; the
calmest counts.

- **The floor** is what no durable and exact save can go below: `orjson.dumps(state)`,
  `marshal.dumps(state, 4)` (the cheapest exact check of types), one `INSERT` of the changed bytes,
  a commit with `synchronous=FULL`.
- **A whole blob** is the state as one row, `orjson` and zstd level 3, in a newly opened file.
- **Newly opened** means that the store was opened for this call; opening is not timed.
- **Ideal** is zstd level 3 of the JSON of the first state, and of the JSON of each later change by
  itself, without any row, key or id. **Text** is all text that came in, once.
- The text is prose: the documentation of Python, cut into messages of 1,024 characters. The rows
  beyond turn 700 need more, and take the documentation and the comments of the installed packages
  as well; beyond turn 2,900 (`append` at turn 5,000, `fork` of 10 MB) the texts come again.
"""

PLOTS = """\
## In pictures

![Disk against turns](deltas-disk.png)

![Time of a save against turns](deltas-save.png)

![File against ideal](deltas-traces.png)
"""


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that was measured."""

    goals: Sequence[Result]
    traces: Sequence[Traced]
    runners: Mapping[str, Runner]
    machine: Sequence[str]


def page(found: Findings, plan: Plan) -> str:
    """Return the whole page."""
    parts = [
        PREFACE.format(repetitions=plan.repetitions),
        f"Machine: {'; '.join(found.machine)}.\n",
    ]
    if plan.quick:
        parts.append("A quick run: nothing is as large as the goals speak of, so none is judged.\n")
    if found.goals:
        parts.append(f"## Goals\n\n{table(found.goals)}\n")
    parts += _tried(found.goals)
    if found.runners:
        parts.append(_peers(found.runners, plan))
    if found.traces:
        parts.append(_traces(found.traces))
    if not plan.quick:
        parts.append(PLOTS)
    return "\n".join(parts)


def _tried(goals: Sequence[Result]) -> list[str]:
    missed = [each.measure for each in goals if each.met is False]
    told = [
        f"- {measure}: {TRIED[start]}"
        for measure in missed
        for start in TRIED
        if measure.startswith(start)
    ]
    return ["What was tried where a goal is missed:\n\n" + "\n".join(told) + "\n"] if told else []


def _peers(runners: Mapping[str, Runner], plan: Plan) -> str:
    return f"""\
## Peers

A chat of {plan.turns} turns, 1 KB + 1 KB each, with a counter of the turns; everything is kept.
Disk is what is there after the last turn. Times are those at turn {plan.turns}: the median of the
last 20 saves, and of 5 loads of the newest state. A ratio says how many times as much a store needs
as Limpet does for the same work (the last column: what is given only the new messages is compared
with `append`); where it is bold, Limpet loses.

{peertable.table(runners, plan)}

{peertable.settings(runners)}
"""


def _traces(traces: Sequence[Traced]) -> str:
    return f"""\
## Traces

{tracetable.abouts(traces)}

Sizes are bytes. `save/floor` is over the last quarter of the trace; `head/whole` is a load of the
head against one compressed blob, `old/head` one of an old snapshot against the head (the median
snapshot), all newly opened; these three are ratios of CPU.

{tracetable.table(traces)}
"""
