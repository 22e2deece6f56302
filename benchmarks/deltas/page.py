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
# The cost of keeping every step

Written by `make bench` (`python -m benchmarks.deltas --write`); the raw results are in
[deltas.json](deltas.json). Limpet, its peers and a lower bound ran on the same data and the same
disk. Timings differ between machines, so compare the ratios, which are computed within each
repetition: the sides of a comparison alternated, call by call in one process, or (the peers) in
separate processes, one after the other. A figure is the median of {repetitions} repetitions, with
minimum and maximum in brackets. CPU is that of the calling thread; of the peers, that of all their
threads. A goal that is missed stays in the table, marked **no**.

*Contended* counts the repetitions in which the median sync of a small file took more than 1 ms.
Such a repetition is tried up to three times, as long as that helps; the least contended one counts.

- **The floor** is a lower bound for any durable and exact save: `orjson.dumps(state)`,
  `marshal.dumps(state, 4)` (the cheapest exact check of types), one `INSERT` of the changed bytes,
  a commit with `synchronous=FULL`.
- **A whole blob** is the state as one row, `orjson` and zstd level 3, in a newly opened file.
- **Newly opened** means that the store was opened for this call; opening is not timed.
- **Ideal** is zstd level 3 of the JSON of the first state, and of the JSON of each later change,
  without any row, key or id. **Text** is all text of the messages, once.
- The text is prose: the documentation of Python, cut into messages of 1,024 characters. The rows
  beyond turn 700 need more, and also use the documentation and the comments of the installed
  packages; beyond turn 2,900 (`append` at turn 5,000, `fork` of 10 MB) the texts repeat.
"""

PLOTS = """\
## Plots

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
        parts.append(
            "A quick run: everything is smaller than the goals require, so none is judged.\n"
        )
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
    notes = [
        f"- {measure}: {TRIED[start]}"
        for measure in missed
        for start in TRIED
        if measure.startswith(start)
    ]
    return ["What was tried for the missed goals:\n\n" + "\n".join(notes) + "\n"] if notes else []


def _peers(runners: Mapping[str, Runner], plan: Plan) -> str:
    return f"""\
## Peers

A chat of {plan.turns} turns, 1 KB + 1 KB each, with a counter of the turns; everything is kept.
Disk is the size after the last turn. Times are those at turn {plan.turns}: the median of the
last 20 saves, and of 5 loads of the newest state. A ratio is the cost of a store divided by that of
Limpet for the same work (the last column: a store that takes only the new messages is compared with
`append`); where it is bold, Limpet loses.

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
