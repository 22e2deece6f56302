"""Many runs at once, in processes of their own."""

from dataclasses import dataclass

from simulation.run import Run, simulate
from simulation.sabotage import ENGINES, sabotaged


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some runs of one scenario in one mode."""

    scenario: str
    mode: str
    first: int
    count: int
    sabotage: str | None
    engine: str = "objects"


def run_one(chunk: Chunk, seed: int) -> Run:
    """Run one of a chunk."""
    opener, options = ENGINES[chunk.engine], f"--engine {chunk.engine} "
    if chunk.sabotage:
        opener, options = sabotaged(chunk.sabotage), f'--sabotage "{chunk.sabotage}" '
    return simulate(chunk.scenario, chunk.mode, seed, opener)._replace(options=options)


def run_chunk(chunk: Chunk) -> tuple[Chunk, list[str], list[tuple[str, str]]]:
    """Run a chunk; return the runs without a verdict, and those that broke a promise.

    Of the first the names, of the others the reports as well.
    """
    runs = [run_one(chunk, chunk.first + at) for at in range(chunk.count)]
    undecided = [run.name for run in runs if run.is_undecided]
    broken = [(run.name, run.report()) for run in runs if run.broken and not run.is_undecided]
    return chunk, undecided, broken
