"""What was asked and what was answered: the record that the checker judges."""

from dataclasses import dataclass, field
from typing import Any, Final

from limpet.model import ScopeKey

OK: Final = "ok"
UNKNOWN: Final = "unknown"  # Unavailable, and it may have happened
REFUSED: Final = "refused"  # Unavailable, and it certainly did not happen
CRASH: Final = "crash"
FOREVER: Final = 1 << 60


@dataclass(slots=True)
class Op:
    """One call of one actor, from `begin` to `end` on the scheduler's clock.

    `given` holds the arguments by name. `outcome` is one of the words above or the name of an error
    class; `answer` is what was returned. `settled` says that it was called when all was over: the
    promises that hold only then are asked of it too.
    """

    actor: str
    verb: str
    scope: ScopeKey | None
    given: dict[str, Any]
    begin: int
    end: int = FOREVER
    outcome: str = CRASH
    answer: Any = None
    settled: bool = False
    said: str = field(default="")

    @property
    def ok(self) -> bool:
        """Whether it was acknowledged."""
        return self.outcome == OK

    @property
    def open_ended(self) -> bool:
        """Whether it may have happened without an answer."""
        return self.outcome in (UNKNOWN, CRASH)

    def overlaps(self, other: "Op") -> bool:
        """Return whether neither was over when the other began."""
        return self.begin < other.end and other.begin < self.end


def nonce_of(revision: str) -> str:
    """Return what names one write: the last part of a revision."""
    return revision.rpartition(".")[2]


def seq_of(revision: str) -> int:
    """Return the seq in a revision of a snapshot."""
    return int(revision.partition(".")[0], 16)
