"""Throughput: how many calls several threads make in a given time."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, process_time

Work = Callable[[int], object]
"""One call of a thread, which is given the number of the call."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What a side did while it had the machine for itself."""

    calls: int
    seconds: float
    cpu: float
    """Of this process, all threads: the server's is not in it."""

    @property
    def rate(self) -> float:
        """Return the calls per second."""
        return self.calls / self.seconds

    @property
    def cpu_each(self) -> float:
        """Return the client's seconds of CPU for a call."""
        return self.cpu / self.calls


class Crowd:
    """Threads that work at once; each goes on with its numbers where it stopped."""

    def __init__(self, works: list[Work]) -> None:
        self._works = works
        self._next = [0] * len(works)
        self.failures: list[BaseException] = []

    @property
    def calls(self) -> int:
        """Return how many calls were made in all."""
        return sum(self._next)

    def work(self, seconds: float) -> Slice:
        """Work for a while, and return what was done."""
        before, cpu, start = self.calls, process_time(), perf_counter()
        until = start + seconds
        threads = [
            threading.Thread(target=self._one, args=(number, until))
            for number in range(len(self._works))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failures:
            raise self.failures[0]
        return Slice(self.calls - before, perf_counter() - start, process_time() - cpu)

    def _one(self, thread: int, until: float) -> None:
        work, number = self._works[thread], self._next[thread]
        try:
            while perf_counter() < until:
                work(number)
                number += 1
        except BaseException as failure:
            self.failures.append(failure)
        self._next[thread] = number
