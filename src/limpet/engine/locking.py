"""Locks of scopes among the threads of a process. They only save time.

Threads that save to one scope would make each other's knowledge of it old.
"""

import threading
from typing import Final

from limpet.model import ScopeKey

WAIT_S: Final = 1.0
_LOCKS: Final = 1024


class ScopeLocks:
    """A lock for each scope, which several may share."""

    def __init__(self) -> None:
        self._locks = [threading.RLock() for _ in range(_LOCKS)]

    def of(self, key: ScopeKey) -> threading.RLock:
        return self._locks[hash(key) % _LOCKS]

    def renew(self, key: ScopeKey, lock: threading.RLock) -> None:
        """Replace a lock that was not to be had, unless another thread has done so."""
        if self.of(key) is lock:
            self._locks[hash(key) % _LOCKS] = threading.RLock()


class First:
    """Waits for other threads that change a scope, so that none makes the others' knowledge old.

    Nobody waits for long: the other one may hang, or was interrupted.
    """

    __slots__ = ("_is_first", "_key", "_lock", "_locks")

    def __init__(self, locks: ScopeLocks, key: ScopeKey) -> None:
        self._locks, self._key, self._lock = locks, key, locks.of(key)

    def __enter__(self) -> None:
        self._is_first = self._lock.acquire(timeout=WAIT_S)

    def __exit__(self, *error: object) -> None:
        if self._is_first:
            self._lock.release()
        else:
            self._locks.renew(self._key, self._lock)
