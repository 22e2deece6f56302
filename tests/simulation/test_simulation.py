"""The engine over buckets under seeded interleavings: every promise holds in every one of them."""

import os
import subprocess
import sys

import pytest

from simulation import ASSERTED, ENGINES, SABOTAGES, SCENARIOS, sabotaged, simulate
from simulation.many import Chunk, run_chunk
from simulation.words import lines_of
from tests.cases import for_each
from tests.effort import slowly, times

RUNS = int(os.environ.get("LIMPET_SIMULATION_RUNS", "24"))  # of each scenario in each mode
SEEDS_MAX = 200  # in which a sabotage must be caught; all are within sixty


# The mode `both` holds the two that are left out as well.
@pytest.mark.parametrize("mode", slowly(ASSERTED, but={*ASSERTED} - {"crash", "lost"}))
@pytest.mark.parametrize("engine", ENGINES)
@for_each("scenario", SCENARIOS)
def test_every_promise_holds(engine: str, scenario: str, mode: str) -> None:
    for seed in range(times(RUNS // 6, full=RUNS)):
        run = simulate(scenario, mode, seed, ENGINES[engine])
        assert not run.broken, run.report()


@pytest.mark.slow
@pytest.mark.parametrize("name", SABOTAGES)
def test_a_sabotaged_engine_is_caught(name: str) -> None:
    sabotage = SABOTAGES[name]
    opener = sabotaged(name)
    for seed in range(sabotage.seed, sabotage.seed + SEEDS_MAX):
        run = simulate(sabotage.scenario, sabotage.mode, seed, opener)
        if run.broken and not run.is_undecided:
            honest = ENGINES[sabotage.engine]
            assert not simulate(sabotage.scenario, sabotage.mode, seed, honest).broken
            return
    pytest.fail(f"nothing was noticed in {SEEDS_MAX} runs")


@for_each(
    "scenario, mode, seed",
    [
        ("S", "crash", 700165),  # a deletion removed the pointer to a line begun meanwhile
        ("D", "both", 700838),  # a roll was written to the line after the one that it was for
        ("G", "none", 700719),  # a repair removed the pointer of a label that was about to be given
        ("I", "delayed", 700797),  # a claim that came after a deletion had no sign of its line
        ("D", "lost", 700797),  # a repair removed the pointer of a draft that was about to be kept
        ("D", "lost", 700432),  # a save was refused that had been stored, and deleted since
        ("A", "delayed", 335),  # a lost first attempt was stored, and answered with another id
        ("H", "delayed", 776),  # a fork whose first attempt came late ended with its source
        ("H", "delayed", 1683),  # a fork came into being after its source was deleted
        ("D", "delayed", 671),  # a repair removed the pointers of a line that was about to begin
        ("S", "both", 856),  # a repair beside a deletion that was interrupted looked like damage
        ("A", "delayed", 39),  # an attempt removed a segment that the head of an earlier one named
        ("C", "lost", 59),  # a deletion from the tail left bytes in the segment of a killed roll
        ("D", "lost", 34),  # after an interrupted deletion a scope was not found by its ids
        ("D", "lost", 278),  # the removal of a scope by another process was taken for the own one
        ("F", "crash", 260),  # notes were missing from a listing while their page was written again
        ("S", "both", 1040),  # a roll beside an interrupted deletion made it look like damage
        ("T", "delayed", 10000),  # a fork was refused, and stored later
        ("S", "lost", 413),  # a deletion removed the head of a line begun meanwhile, not its signs
        ("D", "lost", 20050),  # a first save left its sign behind in a scope deleted meanwhile
        ("H", "lost", 511),  # a check took a source that did not answer for a damaged head
        ("C", "none", 10010),  # a check beside writers reported a head that had moved
        ("T", "delayed", 740037),  # a late sign that a line was begun looked like damage
        ("I", "delayed", 1015040),  # a save that was stored and deleted was refused, as it may be
        ("Z", "none", 1025025),  # an id was minted that was too small, as it may be
    ],
)
def test_what_was_broken_once(scenario: str, mode: str, seed: int) -> None:
    assert not simulate(scenario, mode, seed).broken


@for_each(
    "scenario, mode, seed",
    [
        ("T", "delayed", 950068),  # what was made for one attempt was done to the next one
        ("H", "delayed", 4000224),  # a late first attempt was seen by its id alone, as it may be
        ("H", "delayed", 4000262),  # it came after a late deletion, as it may
    ],
)
def test_what_was_broken_once_in_scopes(scenario: str, mode: str, seed: int) -> None:
    assert not simulate(scenario, mode, seed, ENGINES["scopes"]).broken


@for_each("scenario", "DZ")
def test_a_seed_replays_exactly(scenario: str) -> None:
    for seed in range(5):
        first, second = (simulate(scenario, "both", seed) for _ in range(2))
        assert lines_of(first.trace) == lines_of(second.trace)
        assert first.broken == second.broken


def test_a_failure_tells_what_happened_and_how_to_replay_it() -> None:
    opener = sabotaged("blind head")
    runs = (simulate("A", "none", seed, opener) for seed in range(SEEDS_MAX))
    run = next(run for run in runs if run.broken)
    report = run.report()
    assert run.name == f"--scenario A --mode none --seed {run.seed}"
    assert f"python -m simulation {run.name} --trace" in report
    assert "> commit" in report
    assert "put any" in report


def test_what_fails_while_a_run_is_judged_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("simulation.run.violations")
    chunk = Chunk("A", "lost", first=7, count=1, sabotage=None, engine="scopes")
    ((name, report),) = run_chunk(chunk)[2]
    assert name == "--engine scopes --scenario A --mode lost --seed 7"
    assert "NameError" in report
    assert f"python -m simulation {name} --trace" in report


def test_the_command_runs_and_counts_and_replays() -> None:
    for arguments, code, last in (
        (["--runs", f"{len(SCENARIOS)}", "--mode", "none"], 0, "0 broken, 0 without a verdict\n"),
        (["--scenario", "A", "--mode", "none", "--seed", "1", "--trace"], 0, "> commit"),
        (["--runs", "20", "--scenario", "A", "--mode", "none", "--sabotage", "blind head"], 1,
         'replay: python -m simulation --sabotage "blind head" --scenario A'),
    ):  # fmt: skip
        command = [sys.executable, "-m", "simulation", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert last in done.stdout
