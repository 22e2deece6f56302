"""Measure what keeping every step costs: `python -m benchmarks.deltas [--quick] [--write]`.

Prints a page of tables; goals that are missed are marked in it. Fails only if something crashes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.deltas import appends, forks, growth, peertable, saves, tracetable, tracing
from benchmarks.deltas.outcome import Outcome
from benchmarks.deltas.page import Findings, page
from benchmarks.deltas.tracing import Traced
from benchmarks.peers.race import Runner, race
from benchmarks.peers.venvs import ROOT, NotReady, python_of
from benchmarks.plan import Plan, quick_plan
from benchmarks.report import Result, facts

FOLDER = ROOT / "docs" / "benchmarks"
QUICK_REPETITIONS = 2


class Measured:
    """Collects what the parts find."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.goals: list[Result] = []
        self.raw: dict[str, Any] = {}
        self.traces: list[Traced] = []
        self.runners: dict[str, Runner] = {}

    def measure_traces(self, plan: Plan) -> Outcome:
        """Walk all traces."""
        self.traces = list(tracing.measure(plan))
        return tracetable.judge(self.traces, plan)

    def measure_peers(self, plan: Plan) -> Outcome:
        """Let the peers run."""
        self.runners = race(plan)
        return peertable.judge(self.runners, plan)

    def add(self, name: str, part: Callable[[Plan], Outcome]) -> None:
        """Measure one part."""
        start = perf_counter()
        outcome = part(self.plan)
        # Nothing in a quick run is as large as the goals speak of.
        self.goals += (
            [replace(each, met=None) for each in outcome.goals]
            if self.plan.quick
            else outcome.goals
        )
        self.raw |= outcome.raw
        print(f"{name}: {perf_counter() - start:.1f} s", file=sys.stderr)


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    options = _options()
    folder = options.dir or Path(tempfile.gettempdir())
    make = quick_plan if options.quick else Plan
    plan = make(folder, options.repetitions or (QUICK_REPETITIONS if options.quick else 5))
    machine, start = list(facts()), perf_counter()
    measured = Measured(plan)
    parts: dict[str, Callable[[Plan], Outcome]] = {
        "traces": measured.measure_traces,
        "saves": saves.measure,
        "peers": measured.measure_peers,
        "appends": appends.measure,
        "forks": forks.measure,
        "growth": growth.measure,
        "history": growth.measure_history,
    }
    for name, part in parts.items():
        if not options.only or name in options.only:
            measured.add(name, part)
    found = Findings(measured.goals, measured.traces, measured.runners, machine)
    text = page(found, plan)
    print(text)
    print(f"measured in {perf_counter() - start:.0f} s", file=sys.stderr)
    if options.write:
        _write(
            text, {"machine": machine, "goals": [asdict(g) for g in found.goals], **measured.raw}
        )


def _write(text: str, raw: dict[str, Any]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "deltas.md").write_text(text, encoding="utf-8")
    rows = (
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in raw.items()
    )
    (FOLDER / "deltas.json").write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    try:
        python = python_of("plots")
    except NotReady as cause:
        print(f"no plots: matplotlib {cause}", file=sys.stderr)
        return
    command = [
        str(python),
        "-m",
        "benchmarks.deltas.plots",
        str(FOLDER / "deltas.json"),
        str(FOLDER),
    ]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "MPLBACKEND": "Agg"})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deltas")
    parser.add_argument("--quick", action="store_true", help="a quick run of about a minute")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks/deltas.*")
    parser.add_argument("--repetitions", type=int, help="number of repetitions")
    parser.add_argument("--only", nargs="+", metavar="PART", help="measure only these parts")
    # Where /tmp is in memory a sync costs nothing, and the comparison says little.
    parser.add_argument("--dir", type=Path, help="a directory on the disk to measure")
    return parser.parse_args()


if __name__ == "__main__":
    main()
