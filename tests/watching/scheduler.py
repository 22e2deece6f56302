"""A deterministic scheduler: real threads of which exactly one runs, chosen by a seed.

Locks, conditions, events and queues are replaced by ones that hand over to the scheduler, and time
passes only when it says so. A run is replayed by its seed.
"""

import threading
from collections import deque
from collections.abc import Callable
from queue import Empty
from random import Random
from typing import Any

from limpet.protocol import Clock

_STEPS_MAX = 200_000
_STEP_S = 0.0002


class Stuck(AssertionError):
    """Every task waits, and none has a time limit: a wake-up was missed."""


class _Stopped(BaseException):
    """Ends the tasks of a run that has failed."""


class Task:
    """One simulated thread."""

    def __init__(self, scheduler: "Scheduler", run: Callable[[], None], name: str) -> None:
        self.name = name
        self.is_done = False
        self.ready: Callable[[], bool] = lambda: True
        self.deadline_s = float("inf")
        self.baton = threading.Semaphore(0)
        self._scheduler = scheduler
        self._run = run
        self.thread = threading.Thread(target=self._main, name=name, daemon=True)
        self.thread.start()

    def _main(self) -> None:
        self.baton.acquire()
        try:
            if self._scheduler.failure is None:
                self._run()
        except _Stopped:
            pass
        except BaseException as error:
            self._scheduler.fail(error)
        self.is_done = True
        self._scheduler.finished(self)

    def is_alive(self) -> bool:
        return not self.is_done

    def join(self, timeout_s: float | None = None) -> None:
        self._scheduler.pause(lambda: self.is_done, timeout_s)


class Scheduler:
    """Runs tasks one at a time until all have ended."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now_s = 0.0
        self.failure: BaseException | None = None
        self.tasks: list[Task] = []
        self._current: Task | None = None
        self._steps = 0
        self._over = threading.Event()
        self.clock = Clock(lambda: self.now_s, self._sleep, self.chance.random)

    def spawn(self, run: Callable[[], None], name: str) -> Task:
        task = Task(self, run, name)
        self.tasks.append(task)
        return task

    def current(self) -> Task | None:
        return self._current

    def run(self) -> None:
        """Run all tasks to their end; raise what one of them raised."""
        self._next().baton.release()
        self._over.wait()
        for task in self.tasks:
            task.baton.release()
            task.thread.join()
        if self.failure is not None:
            raise self.failure

    def switch(self) -> None:
        """Let any task go on, perhaps this one."""
        self.pause(lambda: True)

    def pause(self, ready: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Let others go on until `ready`; return False if the time was over first."""
        task = self._current
        if task is None or self.failure is not None:
            raise _Stopped
        task.ready = ready
        task.deadline_s = float("inf") if timeout_s is None else self.now_s + timeout_s
        try:
            chosen = self._next()
        except AssertionError as error:
            self.fail(error)
            raise _Stopped from None
        if chosen is not task:
            chosen.baton.release()
            task.baton.acquire()
            if self.failure is not None:
                raise _Stopped
        return ready()

    def finished(self, task: Task) -> None:
        if self.failure is None and not all(each.is_done for each in self.tasks):
            try:
                self._next().baton.release()
            except AssertionError as error:
                self.fail(error)
        else:
            self._over.set()

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self._over.set()

    def _next(self) -> Task:
        self._steps += 1
        assert self._steps < _STEPS_MAX, "the run does not come to an end"
        self.now_s += self.chance.random() * _STEP_S
        waiting = [each for each in self.tasks if not each.is_done]
        able = [each for each in waiting if each.ready() or each.deadline_s <= self.now_s]
        if not able:
            next_s = min(each.deadline_s for each in waiting)
            if next_s == float("inf"):
                raise Stuck(f"all tasks wait for ever: {[each.name for each in waiting]}")
            self.now_s = next_s
            able = [each for each in waiting if each.deadline_s <= next_s]
        self._current = self.chance.choice(able)
        return self._current

    def _sleep(self, seconds: float) -> None:
        self.pause(lambda: False, seconds)


class Threading:
    """Stands in for the module `threading` in the modules under test."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.current_thread = scheduler.current
        self.Lock = self.RLock = lambda: FakeCondition(scheduler)
        self.Condition = lambda lock: lock
        self.Event = lambda: FakeEvent(scheduler)


class FakeCondition:
    """A lock, and a condition over it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_held = False
        self._notified = 0

    def __enter__(self) -> None:
        self._scheduler.pause(lambda: not self._is_held)
        self._is_held = True

    def __exit__(self, *error: object) -> None:
        self._is_held = False
        if error[0] is None:
            self._scheduler.switch()

    def wait(self, timeout_s: float | None = None) -> bool:
        before, self._is_held = self._notified, False
        notified = self._scheduler.pause(lambda: self._notified > before, timeout_s)
        self.__enter__()
        return notified

    def wait_for(self, condition: Callable[[], Any], timeout_s: float) -> Any:
        ends_s = self._scheduler.now_s + timeout_s
        while not condition() and self._scheduler.now_s < ends_s:
            self.wait(ends_s - self._scheduler.now_s)
        return condition()

    def notify_all(self) -> None:
        self._notified += 1


class FakeEvent:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False

    def set(self) -> None:
        self._is_set = True
        self._scheduler.switch()

    def clear(self) -> None:
        self._is_set = False
        self._scheduler.switch()

    def wait(self, timeout_s: float | None = None) -> bool:
        return self._scheduler.pause(lambda: self._is_set, timeout_s)


class FakeQueue:
    """Stands in for `SimpleQueue`. `put` never switches: it may be called under a real lock."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self, timeout: float | None = None) -> Any:
        if not self._scheduler.pause(lambda: bool(self._items), timeout):
            raise Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        if not self._items:
            raise Empty
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items
