"""What goes wrong: the modes, and the fault that the dice give to one request."""

from enum import Enum
from typing import Final, NamedTuple

from simulation.dice import Dice


class Crash(BaseException):
    """The process dies here. No engine catches it, and nothing after it runs."""


class Fault(Enum):
    """What happens to a request instead of an answer."""

    CRASH_BEFORE = "crash, not executed"
    CRASH_AFTER = "crash, executed"
    LOST_BEFORE = "no answer, not executed"
    LOST_AFTER = "no answer, executed"
    REFUSED = "refused, not executed"
    LATE = "no answer, to be executed later"
    FALSE_REFUSAL = "executed, answered 412"  # something on the way has sent it twice


class Mode(NamedTuple):
    """How often what goes wrong, in a thousand requests.

    `late_deletes` lets unconditional deletes arrive late as well, and a sign that a line was begun
    each time that it is written: no engine survives that without conditional deletes
    (docs/format.md, not promised: 4). So it is not for modes in which promises are asserted.
    """

    name: str
    crash: int = 0
    lost: int = 0
    late: int = 0
    late_deletes: bool = False

    @property
    def faulty(self) -> bool:
        """Whether anything goes wrong at all."""
        return bool(self.crash or self.lost or self.late)


MODES: Final = {
    mode.name: mode
    for mode in (
        Mode("none"),
        Mode("crash", crash=40),
        Mode("lost", lost=120),
        Mode("both", crash=25, lost=90),
        Mode("delayed", lost=50, late=90),
        Mode("unsafe", lost=50, late=90, late_deletes=True),
    )
}
"""By name. `unsafe` is not asserted: what it finds is known and documented."""

ASSERTED: Final = tuple(name for name in MODES if name != "unsafe")
CRASHES_MAX: Final = 2  # of one run: what never comes to an end proves nothing

_LOST_WRITES: Final = (Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.LOST_AFTER, Fault.REFUSED)
_LOST_PUTS: Final = (*_LOST_WRITES, Fault.FALSE_REFUSAL)


class Faults:
    """The faults of one run."""

    def __init__(self, mode: Mode, dice: Dice) -> None:
        self.mode = mode
        self.active = False
        self._dice = dice
        self._crashes = 0

    def of_write(self, *, in_time: bool, is_conditional: bool) -> Fault | None:
        """Return what happens to a write, None if nothing does.

        One that must come `in_time` arrives late only in a mode that allows late deletes.
        """
        if not self.active or not self.mode.faulty:
            return None
        throw = self._dice.below(1000)
        mode = self.mode
        if throw < mode.crash:
            if self._crashes >= CRASHES_MAX:
                return None
            self._crashes += 1
            return self._dice.choice((Fault.CRASH_BEFORE, Fault.CRASH_AFTER))
        throw -= mode.crash
        if throw < mode.lost:
            return self._dice.choice(_LOST_PUTS if is_conditional else _LOST_WRITES)
        throw -= mode.lost
        if throw < mode.late and (mode.late_deletes or not in_time):
            return Fault.LATE
        return None

    def of_read(self) -> Fault | None:
        """Return what happens to a read, None if nothing does."""
        # Rarer than for writes: a read that fails ends most operations before they get anywhere.
        if self.active and self.mode.lost and self._dice.below(4000) < self.mode.lost:
            return Fault.REFUSED
        return None
