"""Polling: how changes are noticed where the storage sends no notifications."""

from collections.abc import Collection
from queue import Empty, SimpleQueue

from limpet.protocol import Clock


class Notifier:
    """Ends the wait of another thread.

    Unlike `threading.Event` it may be set at any moment, even by the garbage collector inside the
    waiting thread, which may hold the event's lock.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        self._queue.put(None)

    def is_set(self) -> bool:
        return not self._queue.empty()

    def wait(self, seconds: float) -> bool:
        """Wait until it is set; return whether it is. It stays set until `clear`."""
        try:
            self._queue.get(timeout=max(0.0, seconds))
        except Empty:
            return False
        self._queue.put(None)
        return True

    def clear(self) -> bool:
        was_set = False
        try:
            while True:
                self._queue.get_nowait()
                was_set = True
        except Empty:
            return was_set


class Poller:
    """A listener that reports everything as changed: soon after a change, then ever less often.

    A subclass that can compare something cheaply overrides `has_changed`.
    """

    def __init__(self, *, first_s: float, poll_s: float, clock: Clock) -> None:
        """The first interval is `first_s`; they double up to `poll_s`."""
        self._first_s = min(first_s, poll_s)
        self._poll_s = poll_s
        self._clock = clock
        self._interval_s = self._first_s
        self._ends_s: float | None = None  # of the current interval, which a wake interrupts
        self.notifier = Notifier()

    def follow(self, topics: Collection[object]) -> None:
        """Start with short intervals again."""
        self._shorten()

    def _shorten(self) -> None:
        if self._interval_s > self._first_s:
            self._interval_s, self._ends_s = self._first_s, None

    def wait(self, *, active: bool) -> frozenset[str] | None:
        """Wait until everything should be polled (None), or `wake` is called (an empty set)."""
        while not self.pause(active=active):
            if self.has_changed():
                return None
            active = False
        return frozenset()

    def has_changed(self) -> bool:
        return True

    def pause(self, *, active: bool, at_least_s: float = 0.0) -> bool:
        """Wait for one interval; return True if `wake` was called first."""
        if active:
            self._shorten()
        now_s = self._clock.monotonic()
        if self._ends_s is None:
            # Shorter by up to a quarter, so that many processes do not poll all at once.
            interval_s = self._interval_s * (1 - self._clock.jitter() / 4)
            self._ends_s = now_s + max(interval_s, at_least_s)
        self.sleep(self._ends_s - now_s)
        # An interrupted interval is continued by the next call: frequent wakes must not
        # keep it from ending.
        if self._clock.monotonic() < self._ends_s and self.was_woken():
            return True
        self._interval_s, self._ends_s = min(2 * self._interval_s, self._poll_s), None
        return False

    def sleep(self, seconds: float) -> None:
        self.notifier.wait(seconds)

    def was_woken(self) -> bool:
        return self.notifier.clear()

    def wake(self) -> None:
        self.notifier.set()

    def close(self) -> None:
        pass
