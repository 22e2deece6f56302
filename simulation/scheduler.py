"""Who goes next: actors are threads that hand on one baton, so that a seed decides everything.

An actor calls `step` before everything that others can see. There it keeps the baton or hands it
on, as the dice say: mostly in bursts, and sometimes an actor is put aside for long, as processes
are that wait for a network. Nothing else ever runs, and no real time passes.
"""

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from limpet.protocol import Clock
from simulation.dice import Dice
from simulation.history import Op

_BURSTS: Final = (0, 0, 0, 0, 1, 1, 2, 3, 5, 9, 20)
_PAUSES: Final = (5, 10, 20, 40, 100)
_PAUSE_PER_MILLE: Final = 150
STEPS_MAX: Final = 20_000  # of one run; far more than any run that makes progress
_STEP_US: Final = 1_000


class Stuck(BaseException):
    """A run takes so many steps that an actor is not making progress; it unwinds every actor."""


class Event(NamedTuple):
    """One line of a trace."""

    time: int
    actor: str
    what: str
    key: str
    outcome: str
    about: bytes | Op | None = None


class _Worker:
    """A thread that waits for work, so that a run need not start its own."""

    idle: Final[list["_Worker"]] = []

    def __init__(self) -> None:
        self.baton = threading.Lock()
        self.baton.acquire()
        self.work: Callable[[], None] = lambda: None
        threading.Thread(target=self._loop, name="simulated", daemon=True).start()

    def _loop(self) -> None:
        while True:
            self.baton.acquire()
            self.work()


class _Actor:
    """A thread that the scheduler lets run, one at a time."""

    def __init__(self, name: str, worker: _Worker) -> None:
        self.name = name
        self.worker = worker
        self.aside_until = 0


class Scheduler:
    """The time of one run, its trace, and which actor runs."""

    def __init__(self, dice: Dice) -> None:
        self.time = 0
        self.waited_us = 0
        self.trace: list[Event] = []
        self.stuck = False
        self._dice = dice
        self._actors: list[_Actor] = []
        self._current: _Actor | None = None
        self._burst = 0
        self._steps = 0
        self._done = threading.Lock()
        self._done.acquire()
        self._failures: list[BaseException] = []

    def tick(self) -> int:
        """Return the time; it never returns the same twice."""
        self.time += 1
        return self.time

    @property
    def now_us(self) -> int:
        """The time as a clock on the wall would show it, from the beginning of the run."""
        return self.time * _STEP_US + self.waited_us

    def note(
        self, actor: str, what: str, key: str, outcome: str, about: bytes | Op | None = None
    ) -> None:
        """Add a line to the trace; it is `about` a call, or what was read or written."""
        self.trace.append(Event(self.time, actor, what, key, outcome, about))

    def clock(self, dice: Dice) -> Clock:
        """Return a clock whose pauses take no time of ours, and let others go first."""

        def sleep(seconds: float) -> None:
            self.waited_us += int(seconds * 1_000_000)
            self.step()

        return Clock(lambda: self.now_us / 1_000_000, sleep, lambda: dice.below(1000) / 1000)

    def step(self) -> None:
        """Hand on the baton, or keep it. Outside `run` there is no other actor."""
        self.time += 1
        actor = self._current
        if actor is None:
            return
        self._steps += 1
        if self._steps > STEPS_MAX:
            self.stuck = True
        if self.stuck:
            raise Stuck
        if self._burst > 0:
            self._burst -= 1
            return
        if len(self._actors) > 1 and self._dice.chance(_PAUSE_PER_MILLE):
            actor.aside_until = self.time + self._dice.choice(_PAUSES)
        following = self._choose()
        if following is not actor:
            following.worker.baton.release()
            actor.worker.baton.acquire()

    def _choose(self) -> _Actor:
        ready = [each for each in self._actors if each.aside_until <= self.time] or self._actors
        chosen = self._dice.choice(ready)
        self._burst = self._dice.choice(_BURSTS)
        self._current = chosen
        return chosen

    def run(self, programs: dict[str, Callable[[], None]]) -> BaseException | None:
        """Run programs side by side until all have ended; return what one of them raised."""
        for name, program in programs.items():
            worker = _Worker.idle.pop() if _Worker.idle else _Worker()
            actor = _Actor(name, worker)
            worker.work = self._work(actor, program)
            self._actors.append(actor)
        workers = [each.worker for each in self._actors]
        self._choose().worker.baton.release()
        self._done.acquire()
        self._current = None
        _Worker.idle.extend(workers)
        return self._failures[0] if self._failures else None

    def _work(self, actor: _Actor, program: Callable[[], None]) -> Callable[[], None]:
        def work() -> None:
            try:
                program()
            except Stuck:
                pass
            except BaseException as failure:  # whatever it is, the run reports it
                self._failures.append(failure)
                self.stuck = True
            actor.worker.work = lambda: None
            self._actors.remove(actor)
            if self._actors:
                self._choose().worker.baton.release()
            else:
                self._done.release()

        return work
