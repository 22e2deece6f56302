"""How much is measured: everything, or a quick run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of one run, and the folder on the disk that is measured."""

    folder: Path
    repetitions: int = 5
    calls: int = 300
    long_history: int = 100_000
    short_history: int = 1_000
    processes: int = 8
    updates: int = 200
    turns: int = 500
    trace_saves: int | None = None  # all
    growth_turns: int = 2_000
    appends: int = 5_000
    cold_calls: int = 24
    quick: bool = False

    @contextmanager
    def place(self) -> Iterator[Path]:
        """Give an empty folder, which is removed afterwards."""
        with TemporaryDirectory(dir=self.folder, prefix="limpet-bench-") as name:
            yield Path(name)


def quick_plan(folder: Path, repetitions: int) -> Plan:
    """Return a plan for a run of well under a minute."""
    return Plan(
        folder,
        repetitions,
        calls=60,
        long_history=10_000,
        processes=8,
        updates=25,
        turns=120,
        trace_saves=120,
        growth_turns=300,
        appends=500,
        cold_calls=8,
        quick=True,
    )
