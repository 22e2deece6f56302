"""How a bucket that tells nothing is listened to: it is looked at again and again."""

import threading
from collections.abc import Collection

from holdfast.protocol import Clock


class Poller:
    """Says that everything may have changed: soon after something has, then ever more seldom."""

    def __init__(self, *, first_s: float, poll_s: float, clock: Clock) -> None:
        """The first pause takes `first_s`, none longer than `poll_s`."""
        self._first_s = min(first_s, poll_s)
        self._poll_s = poll_s
        self._clock = clock
        self._pause_s = self._first_s
        self.woken = threading.Event()

    def follow(self, folders: Collection[str], *, awaited: Collection[str] = ()) -> None:
        """Begin with short pauses again."""
        self._pause_s = self._first_s

    def wait(self, *, lively: bool) -> frozenset[str] | None:
        """Pause; return None, or no keys if somebody called `wake`."""
        if self.pause(lively=lively):
            return frozenset()
        return None

    def pause(self, *, lively: bool) -> bool:
        """Pause; return whether somebody called `wake`."""
        if lively:
            self._pause_s = self._first_s
        # Shorter by up to a quarter, so that many processes do not ask all at once.
        self.sleep(self._pause_s * (1 - self._clock.jitter() / 4))
        if self.was_woken():
            return True
        self._pause_s = min(2 * self._pause_s, self._poll_s)
        return False

    def sleep(self, seconds: float) -> None:
        """Pause for some time, or until somebody calls `wake`."""
        self.woken.wait(seconds)

    def was_woken(self) -> bool:
        """Tell whether somebody called `wake` since the last time."""
        if not self.woken.is_set():
            return False
        self.woken.clear()
        return True

    def wake(self) -> None:
        """End a wait."""
        self.woken.set()

    def close(self) -> None:
        """Nothing is held."""
