"""Rolls in a thread of their own, so that no save waits for one."""

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from limpet.backends.support import logs
from limpet.core import limits
from limpet.model import ScopeKey

_WAITING_MAX: Final = 1024


class Roller:
    """Rolls one scope after the other in a daemon thread, which the first request starts.

    A scope waits once at most. What is not rolled is asked for again by the next save, so requests
    may be dropped: beyond a limit, at the end, and in a forked child, which has no such thread.
    """

    def __init__(self, roll: Callable[[ScopeKey], None]) -> None:
        self._roll = weakref.WeakMethod(roll)
        self._queue: SimpleQueue[ScopeKey | None] = SimpleQueue()
        self._waiting: set[ScopeKey] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = weakref.finalize(self, self._queue.put, None)

    def ask(self, key: ScopeKey) -> None:
        if key in self._waiting or len(self._waiting) >= _WAITING_MAX:
            return
        with self._lock:
            if self._thread is None:
                given = (self._queue, self._waiting, self._roll)
                thread = threading.Thread(
                    target=_work, args=given, name="limpet-rolls", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:
                    return  # the system allows no more, or the interpreter ends: asked again later
                self._thread = thread
        self._waiting.add(key)
        self._queue.put(key)

    def close(self) -> None:
        """Wait for the roll under way, and drop the others."""
        self._waiting.clear()
        self._stop()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(limits.RETRY_S_MAX)


def _work(
    queue: "SimpleQueue[ScopeKey | None]",
    waiting: set[ScopeKey],
    method: "weakref.WeakMethod[Callable[[ScopeKey], None]]",
) -> None:
    while (key := queue.get()) is not None:
        roll = method()
        if roll is not None and key in waiting:
            waiting.discard(key)  # before it is read: a save from now on asks again
            try:
                roll(key)
            except Exception as cause:
                logs.warning("a roll failed: the states stay in the tail", error=repr(type(cause)))
        del roll  # an engine that nobody uses may go
