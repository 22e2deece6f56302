"""The tables of the peers: ratios to Limpet, and the settings of each."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.deltas.outcome import CLOCKS, NAMES, Outcome
from benchmarks.peers.race import Runner, load_ratios, marks_of, save_ratios
from benchmarks.plan import Plan
from benchmarks.report import NONE, TIMES, Result, milliseconds, spread
from benchmarks.traces import conversation

FASTER_MIN = 6.0
LANGGRAPH = "langgraph-sqlite"
HEAD = (
    *("store", "disk", f"{TIMES} text", f"{TIMES} Limpet"),
    *("save, CPU", f"{TIMES} Limpet", "save, wall", f"{TIMES} Limpet"),
    *("load, wall", f"{TIMES} Limpet", "against"),
)


def text_bytes(turns: int) -> int:
    """Return the bytes of the messages of so many turns, and of nothing else."""
    return sum(len(each["content"].encode()) for turn in conversation(turns) for each in turn)


def judge(runners: Mapping[str, Runner], plan: Plan) -> Outcome:
    """Return the goal that a peer is part of, and all laps as raw results."""
    return Outcome([_faster(runners, plan)], {"peers": _raw(runners, plan)})


def _faster(runners: Mapping[str, Runner], plan: Plan) -> Result:
    measure = f"`save` at turn {plan.turns} against LangGraph `SqliteSaver.put`: speedup"
    goal = f"≥ {FASTER_MIN:g} {TIMES}" + (" at turn 500" if plan.quick else "")
    ours, theirs = runners["save"], runners[LANGGRAPH]
    if ours.missing or theirs.missing:
        return Result(measure, f"not measured: {theirs.missing or ours.missing}", goal)
    ratios = {clock: save_ratios(theirs, ours, plan.turns, clock) for clock in CLOCKS}
    contended = ours.contended + theirs.contended
    met: bool | None = all(median(each) >= FASTER_MIN for each in ratios.values())
    if not met and median(ratios["cpu"]) >= FASTER_MIN and contended > len(ours.laps):
        met = None  # both waited for the same disk
    return Result(
        measure,
        f"{_both(ours, plan.turns)} against {_both(theirs, plan.turns)}",
        goal,
        "; ".join(f"{NAMES[clock]} {spread(each, digits=1)}" for clock, each in ratios.items()),
        met,
        contended,
    )


def _both(runner: Runner, turn: int) -> str:
    cpu, wall = (milliseconds(runner.save_seconds(turn, clock)) for clock in CLOCKS)
    return f"{cpu} CPU, {wall} wall"


def table(runners: Mapping[str, Runner], plan: Plan) -> str:
    """Return all peers with their ratios to Limpet, as a Markdown table."""
    text = text_bytes(plan.turns)
    rows: list[Sequence[str]] = [HEAD, ["---", *["---:"] * (len(HEAD) - 2), "---"]]
    for runner in runners.values():
        ours = runners[runner.entry.against]
        if runner.missing or ours.missing:
            rows.append([runner.entry.title, runner.missing or ours.missing, *[NONE] * 9])
        else:
            rows.append(_row(runner, ours, plan.turns, text))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(runner: Runner, ours: Runner, turn: int, text: int) -> list[str]:
    disk = runner.disk(turn)
    cells = [runner.entry.title, f"{disk / 1e6:.2f} MB", f"{disk / text:.2f}"]
    cells.append(_ratio([disk / ours.disk(turn)], runner is ours))
    for clock in CLOCKS:
        cells.append(milliseconds(runner.save_seconds(turn, clock)))
        cells.append(_ratio(save_ratios(runner, ours, turn, clock), runner is ours))
    cells.append(milliseconds(runner.load_seconds("wall")))
    cells.append(_ratio(load_ratios(runner, ours, "wall"), runner is ours))
    mark = f" (contended: {runner.contended})" if runner.contended else ""
    return [*cells, f"`{runner.entry.against}`{mark}"]


def _ratio(ratios: Sequence[float], itself: bool) -> str:
    """Return a ratio; where the other one wins it is bold."""
    ratio = median(ratios)
    text = f"{ratio:.3g}" if ratio < 100 else f"{ratio:.0f}"
    if itself:
        return "1"
    return f"**{text}**" if ratio < 1 else text


def settings(runners: Mapping[str, Runner]) -> str:
    """Return versions, durability, and what is measured of each, as a Markdown table."""
    rows = ["| store | versions | durability in effect | what is measured |", "| --- " * 4 + "|"]
    for runner in runners.values():
        if not runner.missing:
            lap = runner.laps[0]
            versions = ", ".join(f"{name} {found}" for name, found in lap.versions.items())
            cells = (runner.entry.title, versions, lap.durability, runner.entry.about)
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _raw(runners: Mapping[str, Runner], plan: Plan) -> dict[str, Any]:
    raw: dict[str, Any] = {}
    for key, runner in runners.items():
        raw[key] = {"title": runner.entry.title, "against": runner.entry.against}
        if runner.missing:
            raw[key]["missing"] = runner.missing
            continue
        laps = runner.laps
        raw[key] |= {
            "versions": dict(laps[0].versions),
            "durability": laps[0].durability,
            "turns": marks_of(plan),
            "disk_bytes": [round(runner.disk(mark)) for mark in marks_of(plan)],
            "load_ms": [[round(1000 * each, 3) for each in lap.load] for lap in laps],
            "sync_ms": [round(1000 * lap.sync, 3) for lap in laps],
        }
        for at, clock in enumerate(CLOCKS):
            raw[key][f"save_{clock}_ms"] = [
                [round(1000 * lap.saves[mark][at], 3) for mark in marks_of(plan)] for lap in laps
            ]
    return raw
