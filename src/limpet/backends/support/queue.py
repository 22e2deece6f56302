"""A queue of threads before a lock that is expensive to wait for. For speed alone.

The lock itself is that of a file or of a row, and whoever gets past the queue still takes it. So
nobody waits here for long: the one whose turn it is may hang, may have been interrupted at any
moment, or may be a signal handler's own thread. Who has waited long enough goes on as if there were
no queue, and others form a new one.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_PATIENCE_S = 1.0


class Queue:
    """Lets one thread at a time do something, mostly. A thread may do so inside its own turn."""

    __slots__ = ("__weakref__", "_turn")

    def __init__(self) -> None:
        self._turn = threading.RLock()

    def pass_(self, wait_s: float, action: Callable[[], T]) -> T:
        """Do something when the turn has come, or after so long a wait, or after a second."""
        turn, has = self._turn, False
        try:
            has = turn.acquire(timeout=min(wait_s, _PATIENCE_S))
            if not has and self._turn is turn:
                self._turn = threading.RLock()  # an interrupt may have left the other one locked
            return action()
        finally:
            if has:
                turn.release()
