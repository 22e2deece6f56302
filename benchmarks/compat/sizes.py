"""How much is measured: everything, or a quick run."""

from typing import NamedTuple


class Sizes(NamedTuple):
    """The sizes of one run."""

    repetitions: int = 3
    turns: int = 40
    long_turns: int = 120
    steps: int = 200
    small_bytes: int = 10_000
    large_bytes: int = 200_000
    loads: int = 20
    ids: int = 2_500
    iterations: int = 200
    runs: int = 200
    run_bytes: int = 430_000
    lists: int = 5
    quick: bool = False


QUICK = Sizes(
    repetitions=1,
    turns=6,
    long_turns=12,
    steps=6,
    loads=3,
    ids=100,
    iterations=20,
    runs=20,
    run_bytes=43_000,
    lists=3,
    quick=True,
)
