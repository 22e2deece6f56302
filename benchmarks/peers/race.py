"""Run all peers on the same conversation, one after the other, each in its own process."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.measuring import CONTENDED_S, Clock, calmest
from benchmarks.peers import postgres
from benchmarks.peers.catalogue import ENTRIES, Entry
from benchmarks.peers.venvs import ROOT, NotReady, python_of
from benchmarks.plan import Plan
from benchmarks.traces import conversation

RUN_S_MAX = 900
MARKS = (10, 25, 50, 100, 150, 200, 300, 400, 500)
WINDOW = 20  # a mark's time is the median of so many saves up to it


@dataclass(frozen=True, slots=True)
class Lap:
    """One peer's way through the conversation."""

    saves: Mapping[int, tuple[float, float]]
    """Seconds of CPU and wall of a save, by turn."""
    load: tuple[float, float]
    disk: Mapping[int, int]
    sync: float
    durability: str
    versions: Mapping[str, str]

    @property
    def contended(self) -> bool:
        """Whether a small sync took so long that waiting drowned the work."""
        return self.sync > CONTENDED_S


@dataclass(frozen=True, slots=True)
class Runner:
    """One peer with all its laps, or why there are none."""

    entry: Entry
    laps: Sequence[Lap]
    missing: str = ""

    def save_seconds(self, turn: int, clock: Clock) -> float:
        """Return the seconds of a save at a turn: the median over the laps."""
        return median(_pick(lap.saves[turn], clock) for lap in self.laps)

    def load_seconds(self, clock: Clock) -> float:
        """Return the seconds of a load of the latest: the median over the laps."""
        return median(_pick(lap.load, clock) for lap in self.laps)

    def disk(self, turn: int) -> float:
        """Return the bytes on the disk at a turn."""
        return median(lap.disk[turn] for lap in self.laps)

    @property
    def contended(self) -> int:
        """Return how many laps were contended."""
        return sum(lap.contended for lap in self.laps)


def _pick(both: tuple[float, float], clock: Clock) -> float:
    return both[0] if clock == "cpu" else both[1]


def save_ratios(one: Runner, other: Runner, turn: int, clock: Clock) -> list[float]:
    """Return how many times as long one save took as the other, lap by lap."""
    laps = zip(one.laps, other.laps, strict=True)
    return [_pick(a.saves[turn], clock) / _pick(b.saves[turn], clock) for a, b in laps]


def load_ratios(one: Runner, other: Runner, clock: Clock) -> list[float]:
    """Return how many times as long one load took as the other, lap by lap."""
    laps = zip(one.laps, other.laps, strict=True)
    return [_pick(a.load, clock) / _pick(b.load, clock) for a, b in laps]


def marks_of(plan: Plan) -> list[int]:
    """Return the turns that are measured, including the last one."""
    return [mark for mark in MARKS if mark < plan.turns] + [plan.turns]


def race(plan: Plan, entries: Sequence[Entry] | None = None, dsn: str = "") -> dict[str, Runner]:
    """Run the peers in turn, as often as the plan says; the order moves on each time.

    These are the peers of the catalogue, unless others are given; likewise the PostgreSQL server.
    """
    if entries is None:
        entries = [entry for entry in ENTRIES if entry.quick or not plan.quick]
    laps: dict[str, list[Lap]] = {entry.key: [] for entry in entries}
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        place = stack.enter_context(plan.place())
        text = json.dumps(list(conversation(plan.turns)))
        (place / "conversation.json").write_text(text, encoding="utf-8")
        pythons, dsn = _ready(entries, plan, stack, missing, dsn)
        for repetition in range(plan.repetitions):
            first, start = repetition * 3 % len(entries), perf_counter()
            for entry in [*entries[first:], *entries[:first]]:
                if entry.key not in missing:
                    try:
                        one = partial(_lap, entry, pythons[entry.venv], place, plan, dsn)
                        laps[entry.key].append(calmest(one, lambda lap: lap.sync))
                    except NotReady as cause:
                        missing[entry.key] = str(cause)
            done = f"{repetition + 1} of {plan.repetitions}"
            print(f"peers: repetition {done}, {perf_counter() - start:.0f} s", file=sys.stderr)
    return {
        entry.key: Runner(entry, laps[entry.key], missing.get(entry.key, "")) for entry in entries
    }


def _ready(
    entries: Sequence[Entry], plan: Plan, stack: ExitStack, missing: dict[str, str], dsn: str
) -> tuple[dict[str, Path], str]:
    pythons = {"": Path(sys.executable)}
    for entry in entries:
        try:
            if entry.venv not in pythons:
                pythons[entry.venv] = python_of(entry.venv)
            if entry.postgres and not dsn:
                dsn = stack.enter_context(postgres.running(plan.folder))
        except NotReady as cause:
            missing[entry.key] = str(cause)
    return pythons, dsn


def _lap(entry: Entry, python: Path, place: Path, plan: Plan, dsn: str) -> Lap:
    with plan.place() as folder:
        job = {
            "conversation": str(place / "conversation.json"),
            "folder": str(folder),
            "turns": plan.turns,
            "marks": marks_of(plan),
            "variant": entry.variant,
            "dsn": dsn,
        }
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        command = [str(python), "-m", f"benchmarks.peers.{entry.driver}", str(folder / "job.json")]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
            timeout=RUN_S_MAX,
        )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        print(done.stderr, file=sys.stderr)
        if not entry.venv:
            raise AssertionError(f"our own side failed: {entry.title}: {reason}")
        raise NotReady(f"failed: {reason[:160]}")
    return _read(json.loads(done.stdout.splitlines()[-1]), plan)


def _read(answer: Mapping[str, Any], plan: Plan) -> Lap:
    def middle(pairs: Sequence[Sequence[float]]) -> tuple[float, float]:
        return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)

    saves = answer["saves"]
    return Lap(
        saves={mark: middle(saves[max(0, mark - WINDOW) : mark]) for mark in marks_of(plan)},
        load=middle(answer["loads"]),
        disk=dict(answer["disk"]),
        sync=median(answer["syncs"]),
        durability=answer["durability"],
        versions=answer["versions"],
    )
