"""The goals that the traces must reach, and their table."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.deltas.outcome import CLOCKS, Outcome, raw_run
from benchmarks.deltas.tracing import Traced
from benchmarks.plan import Plan
from benchmarks.report import TIMES, Result, milliseconds

TEXT_MAX = 0.6
IDEAL_MAX = 2.0
SAVE_BYTES = 250
FIXED_BYTES = 64 * 1024
LARGE_BYTES = 1_000_000
WHOLE_MAX = 1.35
EXCESS_S_MAX = 0.002
OLD_MAX = 2.0
HEAD = (
    *("trace", "saves", "state", "text", "ideal", "file", "file/text", "file/ideal"),
    *("of the limit", "save/floor", "head/whole", "old/head"),
)


def bound(traced: Traced) -> int:
    """Return how large the file of a trace may be; the chat has a goal of its own."""
    size = traced.size
    if traced.trace.name == "chat":
        return round(TEXT_MAX * size.text)
    return round(IDEAL_MAX * size.ideal + SAVE_BYTES * size.saves + FIXED_BYTES)


def judge(found: Sequence[Traced], plan: Plan) -> Outcome:
    """Return the goals of sizes and loads over all traces."""
    goals = [_chat(found[0], plan), _others(found[1:]), *_heads(found), _old(found)]
    return Outcome(goals, {"traces": [_raw(each) for each in found]})


def _chat(chat: Traced, plan: Plan) -> Result:
    ratio = chat.file / chat.size.text
    return Result(
        measure=f"SQLite file incl. indexes, {chat.size.saves} turns of 1 KB + 1 KB, "
        "everything kept, against the text",
        goal=f"≤ {TEXT_MAX} {TIMES}" + (" at 500 turns" if plan.quick else ""),
        measured=f"{chat.file:,} bytes against {chat.size.text:,}",
        ratio=f"{ratio:.2f} {TIMES}",
        met=None if plan.quick and ratio > TEXT_MAX else ratio <= TEXT_MAX,
    )


def _others(found: Sequence[Traced]) -> Result:
    uses = {each.trace.name: each.file / bound(each) for each in found}
    worst = max(uses, key=lambda name: uses[name])
    return Result(
        measure=f"SQLite file of the {len(found)} other traces; the worst of them is `{worst}`",
        goal=f"≤ {IDEAL_MAX:g} {TIMES} ideal + {SAVE_BYTES} B a save + {FIXED_BYTES // 1024} KB",
        measured="; ".join(f"{name} {use:.2f}" for name, use in uses.items()),
        ratio=f"{uses[worst]:.2f} {TIMES} the limit",
        met=uses[worst] <= 1,
    )


def _heads(found: Sequence[Traced]) -> list[Result]:
    large = [each for each in found if each.size.last >= LARGE_BYTES]
    small = [each for each in found if each.size.last < LARGE_BYTES]
    goals = []
    if large:
        ratios = {each.trace.name: _whole_ratios(each) for each in large}
        worst = max(ratios, key=lambda name: max(ratios[name]))
        cells = (f"{name} CPU {cpu:.2f}, wall {wall:.2f}" for name, (cpu, wall) in ratios.items())
        goals.append(
            Result(
                measure="`load` of the head, newly opened, states of 1 MB and more, against "
                f"one compressed blob; the worst is `{worst}`",
                goal=f"≤ {WHOLE_MAX:g} {TIMES}",
                measured="; ".join(cells),
                ratio=f"{max(ratios[worst]):.2f} {TIMES}",
                met=max(ratios[worst]) <= WHOLE_MAX,
            )
        )
    excesses = {each.trace.name: _excess(each) for each in small}
    worst = max(excesses, key=lambda name: excesses[name])
    cells = (f"{name} {milliseconds(excess)}" for name, excess in excesses.items())
    goals.append(
        Result(
            measure="`load` of the head, newly opened, smaller states: difference to one "
            f"compressed blob, wall; the worst is `{worst}`",
            goal=f"≤ {milliseconds(EXCESS_S_MAX)}",
            measured="; ".join(cells),
            ratio=milliseconds(excesses[worst]),
            met=excesses[worst] <= EXCESS_S_MAX,
        )
    )
    return goals


def _whole_ratios(traced: Traced) -> tuple[float, float]:
    cpu, wall = (median(traced.loads.ratios("head", "whole", clock)) for clock in CLOCKS)
    return cpu, wall


def _excess(traced: Traced) -> float:
    return median(traced.loads.excesses("head", "whole", "wall"))


def _old(found: Sequence[Traced]) -> Result:
    medians = {each.trace.name: each.old_over_head("wall") for each in found}
    worst = max(medians, key=lambda name: medians[name][0])
    cells = (f"{name} {mid:.2f} (worst {most:.2f})" for name, (mid, most) in medians.items())
    return Result(
        measure="`load` of an old snapshot against the head, both newly opened, wall, median over "
        f"the snapshots of a trace; the worst is `{worst}`",
        goal=f"≤ {OLD_MAX:g} {TIMES}",
        measured="; ".join(cells),
        ratio=f"{medians[worst][0]:.2f} {TIMES}",
        met=medians[worst][0] <= OLD_MAX,
    )


def table(found: Sequence[Traced]) -> str:
    """Return what each trace came to, as a Markdown table."""
    rows: list[Sequence[str]] = [HEAD, ["---", *["---:"] * (len(HEAD) - 1)]]
    for each in found:
        size = each.size
        cpu = {
            name: median(run.ratios(side, base, "cpu"))
            for name, run, side, base in (
                ("save", each.saves, "save", "floor"),
                ("head", each.loads, "head", "whole"),
            )
        }
        rows.append(
            [
                f"`{each.trace.name}`",
                f"{size.saves}",
                f"{size.last:,}",
                f"{size.text:,}",
                f"{size.ideal:,}",
                f"{each.file:,}",
                f"{each.file / size.text:.2f}",
                f"{each.file / size.ideal:.2f}",
                f"{each.file / bound(each):.2f}",
                f"{cpu['save']:.2f}" + (" (contended)" if each.saves.contended else ""),
                f"{cpu['head']:.2f}",
                f"{each.old_over_head('cpu')[0]:.2f}",
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def abouts(found: Sequence[Traced]) -> str:
    """Return what the traces are, as a list."""
    return "\n".join(f"- `{each.trace.name}`: {each.trace.about}" for each in found)


def _raw(traced: Traced) -> dict[str, Any]:
    size = traced.size
    old = {clock: [round(each, 3) for each in traced.old_over_head(clock)] for clock in CLOCKS}
    return {
        "name": traced.trace.name,
        "saves": size.saves,
        "state_bytes": size.last,
        "text_bytes": size.text,
        "ideal_bytes": size.ideal,
        "allowed_bytes": bound(traced),
        "file_bytes": list(traced.files),
        "save_ms": raw_run(traced.saves),
        "load_ms": raw_run(traced.loads),
        "old_over_head_median_and_worst": old,
    }
