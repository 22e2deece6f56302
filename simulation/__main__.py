"""Run many simulations: `python -m simulation --runs 100000 --jobs 2`."""

import argparse
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from simulation.faults import ASSERTED, MODES
from simulation.many import Chunk, run_chunk, run_one
from simulation.sabotage import ENGINES, SABOTAGES
from simulation.scenarios import SCENARIOS

_CHUNK = 100
_SHOWN_MAX = 5


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m simulation")
    parser.add_argument("--runs", type=int, default=1000, help="over all scenarios and modes")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--engine", choices=list(ENGINES), default="objects")
    parser.add_argument("--scenario", choices=list(SCENARIOS), help="only this one")
    parser.add_argument("--mode", choices=list(MODES), help="only this one")
    parser.add_argument("--seed", type=int, help="only this run, or the first one")
    parser.add_argument("--trace", action="store_true", help="print every step of the run --seed")
    parser.add_argument("--sabotage", choices=list(SABOTAGES), help="break the engine")
    return parser.parse_args()


def _chunks(given: argparse.Namespace) -> Iterator[Chunk]:
    scenarios = [given.scenario] if given.scenario else list(SCENARIOS)
    modes = [given.mode] if given.mode else list(ASSERTED)
    each = max(1, given.runs // (len(scenarios) * len(modes)))
    start = given.seed or 0
    # Scenarios alternate, so that a run that is stopped early has covered all of them.
    for first in range(start, start + each, _CHUNK):
        count = min(_CHUNK, start + each - first)
        for scenario in scenarios:
            for mode in modes:
                yield Chunk(scenario, mode, first, count, given.sabotage, given.engine)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _one(given: argparse.Namespace) -> int:
    chunk = Chunk(given.scenario, given.mode, 0, 1, given.sabotage, given.engine)
    run = run_one(chunk, given.seed)
    _say(run.report() if run.broken or given.trace else f"no promise is broken: {run.name}")
    return 1 if run.broken else 0


def main() -> int:
    """Run what was asked for; return 1 if a promise was broken."""
    given = _arguments()
    if given.trace:
        if not given.scenario or not given.mode or given.seed is None:
            _say("--trace needs --scenario, --mode and --seed")
            return 2
        return _one(given)
    done: Counter[tuple[str, str]] = Counter()
    broken: Counter[tuple[str, str]] = Counter()
    shown, undecided = 0, 0
    # Not forked: the threads of the scheduler would not come along.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.jobs, mp_context=context) as pool:
        try:
            for future in as_completed(pool.submit(run_chunk, chunk) for chunk in _chunks(given)):
                chunk, tangled, reports = future.result()
                undecided += len(tangled)
                for name in tangled:
                    _say(f"no verdict: {name}")
                done[chunk.scenario, chunk.mode] += chunk.count
                broken[chunk.scenario, chunk.mode] += len(reports)
                for name, report in reports:
                    _say(f"{report}\n" if shown < _SHOWN_MAX else f"broken: {name}")
                    shown += 1
        except KeyboardInterrupt:  # what is done counts
            pool.shutdown(wait=False, cancel_futures=True)
    for scenario, mode in sorted(done):
        count, bad = done[scenario, mode], broken[scenario, mode]
        _say(f"{scenario} {mode:<8} {count:>8} runs {bad:>6} broken  {SCENARIOS[scenario].title}")
    _say(f"{done.total()} runs, {broken.total()} broken, {undecided} without a verdict")
    return 1 if broken.total() else 0


if __name__ == "__main__":
    sys.exit(main())
