"""How much is measured, and of what size."""

from dataclasses import dataclass

STATES: tuple[tuple[str, int], ...] = (
    ("2 KB", 2 * 1024),
    ("100 KB", 100 * 1024),
    ("1 MB", 1024 * 1024),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one run."""

    repetitions: int = 5
    calls: tuple[int, int, int] = (150, 80, 20)
    """In each repetition, for each size of state."""
    history: int = 10_000
    page: int = 1_000
    lookups: int = 20
    processes: int = 8
    updates: int = 50
    quick: bool = False

    def calls_of(self, size_bytes: int) -> int:
        """Return how many calls of a state of this size a repetition has."""
        return next(
            calls for (_, size), calls in zip(STATES, self.calls, strict=True) if size == size_bytes
        )


def quick_sizes(repetitions: int) -> Sizes:
    """Return the sizes of a run of less than half a minute."""
    return Sizes(
        repetitions,
        calls=(10, 6, 4),
        history=300,
        page=200,
        lookups=5,
        processes=4,
        updates=5,
        quick=True,
    )
