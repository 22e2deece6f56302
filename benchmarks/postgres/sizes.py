"""How much is measured."""

from dataclasses import dataclass

CONNECTIONS = 16
STATES: tuple[tuple[str, int], ...] = (
    ("1 KB", 1024),
    ("10 KB", 10 * 1024),
    ("100 KB", 100 * 1024),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one run."""

    repetitions: int = 5
    slice_s: float = 2.0
    """For so long one side has the machine for itself, before the other one has it."""
    warmup_s: float = 0.6
    """First saves and preparing statements are behind each thread then."""
    processes: int = 4
    turns: int = 500
    conversations: int = 8
    """At the same time, of as many turns."""
    trips: int = 100
    """Saves of which the round trips are counted; of other verbs a quarter."""
    sessions: int = 1_000
    saves: int = 8
    """Of each of the sessions at once, in a repetition."""
    stagger: int = 32
    """So many saves the sessions are apart at most, before they are measured."""
    paced_s: float = 3.0
    """For so long the sessions save at a steady pace."""
    quick: bool = False


def quick_sizes(repetitions: int) -> Sizes:
    """Return the sizes of a run of less than a minute."""
    return Sizes(
        repetitions,
        slice_s=0.3,
        warmup_s=0.3,
        processes=2,
        turns=100,
        conversations=2,
        trips=20,
        sessions=200,
        saves=3,
        stagger=4,
        paced_s=0.5,
        quick=True,
    )
