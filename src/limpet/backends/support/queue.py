"""A queue of threads in front of a lock that is expensive to wait for. It only saves time.

The real lock is on a file or a row, and every thread that leaves the queue still has to take it. So
no thread waits here for long: the first one may hang, may have been interrupted, or may be waiting
for a thread behind it. A thread that has waited long enough goes on as if there were no queue.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_WAIT_S_MAX = 1.0


class ThreadQueue:
    """Lets one thread at a time through, mostly. Reentrant."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()

    @contextmanager
    def first(self, wait_s: float) -> Iterator[bool]:
        """Wait to be the first of the queue, for `wait_s` or one second; say whether it is.

        With 0 it does not wait, and who holds the lock is left alone.
        """
        lock, has = self.lock, False
        try:
            has = lock.acquire(timeout=min(wait_s, _WAIT_S_MAX))
            if not has and wait_s and self.lock is lock:
                self.lock = threading.RLock()  # an interrupt may have left the other one locked
            yield has
        finally:
            if has:
                lock.release()
