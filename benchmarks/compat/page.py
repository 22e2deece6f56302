"""The page that the benchmark prints and writes."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from benchmarks.compat.checkpoints import Listed
from benchmarks.compat.counting import Lap, Tally
from benchmarks.compat.sizes import Sizes
from benchmarks.report import NONE, TIMES, Result, milliseconds, spread, table

PREFACE = """\
# Integrations: what they cost over Limpet

Written by `make bench` (`python -m benchmarks.compat --write`). The sides did the same work and
alternated, step by step, in the same run, so compare the ratios. Repetitions: {repetitions}. A
figure is their median, with minimum and maximum in brackets.

- **Stored** is the size of all files after closing; on PostgreSQL that of the tables and their
  indexes. An empty SQLite file and the empty tables of PostgreSQL count too.
- **Written** are the bytes that the process passes to the kernel, over all steps and the closing:
  with SQLite the pages of its log, and again when they are moved into the file. On PostgreSQL it is
  the server's write-ahead log. Opening an empty store is not counted.
- **CPU** is that of all threads of the process, a mean over the steps, without the PostgreSQL
  server.
- Limpet syncs each save to the disk before it returns. The SDKs and the Go store never do:
  a power cut loses acknowledged saves. Wall times compare them as they are.
- A goal that is missed stays in the table, marked **no**.
"""


def page(
    parts: Sequence[str], goals: Sequence[Result], machine: Sequence[str], sizes: Sizes
) -> str:
    """Return the whole page."""
    text = [PREFACE.format(repetitions=sizes.repetitions), f"Machine: {'; '.join(machine)}.\n"]
    if sizes.quick:
        text.append("A quick run: few steps and small states, so nothing is judged.\n")
    if goals:
        text.append(f"## Goals\n\n{table(goals)}\n")
    return "\n".join([*text, *parts])


def size(count: float) -> str:
    """Return bytes with three digits that count."""
    for unit, one in (("MB", 1e6), ("KB", 1e3)):
        if count >= one:
            value = count / one
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{count:.0f} B"


def middle(laps: Sequence[Lap], name: str, figure: Callable[[Tally], float]) -> float:
    """Return a figure of one side: the median over the repetitions."""
    return median(figure(lap[name]) for lap in laps)


def ratios(
    laps: Sequence[Lap], name: str, base: str, figure: Callable[[Tally], float]
) -> list[float]:
    """Return how many times as much one side took as the other, in each repetition."""
    return [figure(lap[name]) / figure(lap[base]) for lap in laps if figure(lap[base])]


def loading(tally: Tally) -> float:
    """Return the seconds of a load, in the median."""
    return median(tally.loads) if tally.loads else 0.0


def figures(laps: Sequence[Lap], *, base: str, step: str, whole: int, of: str) -> str:
    """Return a row for each side, compared with one of them, and its bytes with the whole."""
    has_loads = any(each.loads for each in laps[0].values())
    head = ["side", "stored", f"of {of}", "written", f"of {of}", step, "against", f"CPU, {step}"]
    rows = [head + ["load"] * has_loads]
    rows.append(["---"] * len(rows[0]))
    for name in laps[0]:
        stored = middle(laps, name, lambda each: each.stored)
        written = middle(laps, name, lambda each: each.written)
        compared = ratios(laps, name, base, lambda each: each.step_s)
        row = [
            name,
            size(stored) if stored else NONE,
            f"{stored / whole:.2f} {TIMES}" if stored else NONE,
            size(written) if written else NONE,
            f"{written / whole:.1f} {TIMES}" if written else NONE,
            milliseconds(middle(laps, name, lambda each: each.step_s)),
            NONE if name == base else spread(compared),
            milliseconds(middle(laps, name, lambda each: each.cpu_s)),
        ]
        rows.append(row + [milliseconds(middle(laps, name, loading))] * has_loads)
    return _markdown(rows)


def ids_table(spent: Mapping[str, Sequence[float]], ids: int) -> str:
    """Return what it takes to list ids."""
    rows = [["side", f"`list_snapshot_ids` of {ids:,}", "minimum", "maximum"], ["---"] * 4]
    for name, seconds in spent.items():
        rows.append([name, *map(milliseconds, (median(seconds), min(seconds), max(seconds)))])
    return _markdown(rows)


def runs_table(found: Mapping[str, Listed]) -> str:
    """Return what it takes to list runs."""
    rows = [["side", "stored", "read", "of stored", "`list`", "CPU"], ["---"] * 6]
    for name, each in found.items():
        share = f"{each.read / each.stored:.1%}"
        times = (milliseconds(each.wall), milliseconds(each.cpu))
        rows.append([name, size(each.stored), size(each.read), share, *times])
    return _markdown(rows)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
