"""How storage that tells nothing is listened to: it is looked at again and again."""

from collections.abc import Collection
from queue import Empty, SimpleQueue

from limpet.protocol import Clock

# A bell that ends another thread's wait.


class Bell:
    """May be rung at any moment, even by the garbage collector inside the thread that waits.

    An event of `threading` may not: it would wait for a lock that this very thread holds.
    """

    def __init__(self) -> None:
        self._rings: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        """End the wait that is under way, or the next one."""
        self._rings.put(None)

    def is_set(self) -> bool:
        """Tell whether it was rung and nobody has answered yet."""
        return not self._rings.empty()

    def wait(self, seconds: float) -> bool:
        """Wait until it is rung, for some time at most; tell whether it was."""
        try:
            self._rings.get(timeout=max(0.0, seconds))
        except Empty:
            return False
        self._rings.put(None)  # to be answered
        return True

    def answer(self) -> bool:
        """Tell whether it was rung since the last answer."""
        rung = False
        try:
            while True:
                self._rings.get_nowait()
                rung = True
        except Empty:
            return rung


class Poller:
    """Says that everything may have changed: soon after something has, then ever more seldom."""

    def __init__(self, *, first_s: float, poll_s: float, clock: Clock) -> None:
        """The first pause takes `first_s`, none longer than `poll_s`."""
        self._first_s = min(first_s, poll_s)
        self._poll_s = poll_s
        self._clock = clock
        self._pause_s = self._first_s
        self._ends_s: float | None = None  # of the pause under way, which may be interrupted
        self.bell = Bell()

    def follow(self, what: Collection[object], *, awaited: Collection[object] = ()) -> None:
        """Begin with short pauses again."""
        self._shorten()

    def _shorten(self) -> None:
        if self._pause_s > self._first_s:
            self._pause_s, self._ends_s = self._first_s, None

    def wait(self, *, lively: bool) -> frozenset[str] | None:
        """Pause; return None, or no keys if somebody called `wake`."""
        if self.pause(lively=lively):
            return frozenset()
        return None

    def pause(self, *, lively: bool) -> bool:
        """Pause; return whether somebody called `wake`."""
        if lively:
            self._shorten()
        now_s = self._clock.monotonic()
        if self._ends_s is None:
            # Shorter by up to a quarter, so that many processes do not ask all at once.
            self._ends_s = now_s + self._pause_s * (1 - self._clock.jitter() / 4)
        self.sleep(self._ends_s - now_s)
        # It goes on where it was interrupted: those who come must not keep it from its end.
        if self._clock.monotonic() < self._ends_s and self.was_woken():
            return True
        self._pause_s, self._ends_s = min(2 * self._pause_s, self._poll_s), None
        return False

    def sleep(self, seconds: float) -> None:
        """Pause for some time, or until somebody calls `wake`."""
        self.bell.wait(seconds)

    def was_woken(self) -> bool:
        """Tell whether somebody called `wake` since the last time."""
        return self.bell.answer()

    def wake(self) -> None:
        """End a wait."""
        self.bell.ring()

    def close(self) -> None:
        """Nothing is held."""
