"""The one retry loop: pauses that double, with jitter, until a time limit has passed.

backoff = Backoff(clock, first_s=0.001, longest_s=0.1, wait_s=30)
while True:
    try:
        return attempt()
    except Busy:
        if not backoff.sleep():
            raise
"""

import math

from limpet.protocol import Clock


class Backoff:
    """The pauses between the attempts of one retry loop.

    Each is varied by up to half, so that processes that failed together do not try together again.
    """

    __slots__ = ("_clock", "_deadline_s", "_first_s", "_longest_s", "_next_s")

    def __init__(
        self, clock: Clock, *, first_s: float, longest_s: float, wait_s: float = math.inf
    ) -> None:
        self._clock = clock
        self._first_s = self._next_s = first_s
        self._longest_s = longest_s
        self._deadline_s = clock.monotonic() + wait_s

    def pause_s(self) -> float | None:
        """Return how long to wait before the next attempt; None once the time limit has passed."""
        left_s = self._deadline_s - self._clock.monotonic()
        if left_s <= 0:
            return None
        pause_s = self._next_s * (0.5 + self._clock.jitter())
        self._next_s = min(2 * self._next_s, self._longest_s)
        return min(pause_s, left_s)

    def sleep(self) -> bool:
        """Wait before the next attempt; return False, at once, if the time limit has passed."""
        pause_s = self.pause_s()
        if pause_s is None:
            return False
        self._clock.sleep(pause_s)
        return True

    def reset(self) -> None:
        """Begin with the shortest pause again, after a success."""
        self._next_s = self._first_s
