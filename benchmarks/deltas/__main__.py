"""Measure what keeping every step costs: `python -m benchmarks.deltas [--quick] [--write]`.

Prints a page of tables; goals that are missed are marked in it. Fails only if something crashes.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.deltas import appends, forks, growth, peertable, saves, tracetable, tracing
from benchmarks.deltas.outcome import Outcome
from benchmarks.deltas.page import Findings, page
from benchmarks.deltas.tracing import Traced
from benchmarks.harness import PAGES, Benchmark, machine
from benchmarks.peers.race import Runner, race
from benchmarks.peers.venvs import ROOT, NotReady, python_of
from benchmarks.plan import Plan, quick_plan
from benchmarks.report import Result

PARTS = ("traces", "saves", "peers", "appends", "forks", "growth", "history")
QUICK_REPETITIONS = 2


class Measured:
    """Collects what the parts find."""

    def __init__(self, run: Benchmark, plan: Plan) -> None:
        self.run = run
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
        with self.run.part(name):
            outcome = part(self.plan)
        self.goals += self.run.judged(outcome.goals)
        self.raw |= outcome.raw


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    run = Benchmark("deltas", "about a minute", "--repetitions", "--dir", only=PARTS)
    folder = run.folder or Path(tempfile.gettempdir())
    make = quick_plan if run.quick else Plan
    plan = make(folder, run.repetitions or (QUICK_REPETITIONS if run.quick else 5))
    about = machine()
    measured = Measured(run, plan)
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
        if name in run.only:
            measured.add(name, part)
    found = Findings(measured.goals, measured.traces, measured.runners, about)
    run.publish(page(found, plan))
    if run.write:
        _write({"machine": about, "goals": [asdict(g) for g in found.goals], **measured.raw})


def _write(raw: dict[str, Any]) -> None:
    """Write the figures, and draw them."""
    rows = (
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in raw.items()
    )
    (PAGES / "deltas.json").write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    try:
        python = python_of("plots")
    except NotReady as cause:
        print(f"no plots: matplotlib {cause}", file=sys.stderr)
        return
    command = [
        str(python),
        "-m",
        "benchmarks.deltas.plots",
        str(PAGES / "deltas.json"),
        str(PAGES),
    ]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "MPLBACKEND": "Agg"})


if __name__ == "__main__":
    main()
