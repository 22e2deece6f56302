"""Locks of scopes among the threads of a process. They only save time.

Threads that save to one scope would make each other's knowledge of it old.
"""

import threading
from typing import Final

from limpet.model import ScopeKey

LOCKS: Final = 1024
WAIT_S: Final = 1.0


def scope_locks() -> list[threading.RLock]:
    """Return the locks: that of a scope is at `hash(key) % LOCKS`."""
    return [threading.RLock() for _ in range(LOCKS)]


def renew(locks: list[threading.RLock], at: int, lock: threading.RLock) -> None:
    """Replace a lock that was not to be had, unless another thread has done so."""
    if locks[at] is lock:
        locks[at] = threading.RLock()


class First:
    """Waits for other threads that change a scope, so that none makes the others' knowledge old.

    Nobody waits for long: the other one may hang, or was interrupted.
    """

    __slots__ = ("_at", "_is_first", "_lock", "_locks")

    def __init__(self, locks: list[threading.RLock], key: ScopeKey) -> None:
        self._locks, self._at = locks, hash(key) % LOCKS
        self._lock = locks[self._at]

    def __enter__(self) -> None:
        self._is_first = self._lock.acquire(timeout=WAIT_S)

    def __exit__(self, *error: object) -> None:
        if self._is_first:
            self._lock.release()
        else:
            renew(self._locks, self._at, self._lock)
