"""The engine with segments under seeded interleavings, whole and sabotaged."""

import os

import pytest

from simulation import ASSERTED, SCENARIOS, simulate
from simulation.segments import SABOTAGES, open_segments, sabotaged

RUNS = int(os.environ.get("LIMPET_SIMULATION_RUNS", "24"))  # of each scenario in each mode
SEEDS_MAX = 800  # in which a sabotage must be caught; most are within thirty


@pytest.mark.parametrize("runs", [RUNS // 8, pytest.param(RUNS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ASSERTED)
@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if not SCENARIOS[name].foreign])
def test_every_promise_holds(scenario: str, mode: str, runs: int) -> None:
    for seed in range(runs):
        run = simulate(scenario, mode, seed, open_segments)
        assert not run.broken, run.report()


_SLOWLY = {"fork without check"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.slow) if each in _SLOWLY else each for each in SABOTAGES],
)
def test_a_sabotaged_engine_is_caught(name: str) -> None:
    sabotage = SABOTAGES[name]
    for seed in range(SEEDS_MAX):
        if simulate(sabotage.scenario, sabotage.mode, seed, sabotaged(name)).broken:
            return
    pytest.fail(f"nothing was noticed in {SEEDS_MAX} runs")
