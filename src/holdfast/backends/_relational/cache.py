"""The last encoded state of each scope, so that the next one can be compared with it.

An entry counts only under the nonce of the write that made it, which the engine knows, so a stale
one is never used. Bounded in bytes; what was not used for longest goes first.
"""

import os
import threading
import weakref
from collections import OrderedDict
from typing import NamedTuple

from holdfast.model import ScopeKey

_ENTRY_BYTES = 512  # what an entry takes beside its body


class Known(NamedTuple):
    """What a process knows of the last body of a scope: it, and the nonce of its write."""

    nonce: str
    body: bytes

    @property
    def cost(self) -> int:
        """The bytes that it takes in a cache."""
        return len(self.body) + _ENTRY_BYTES


class BodyCache:
    """Bodies by scope. Safe for threads, and emptied in a forked child."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._forget()
        _caches.add(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[ScopeKey, Known] = OrderedDict()
        self._bytes = 0

    @property
    def bytes_held(self) -> int:
        """The bytes held now."""
        return self._bytes

    def get(self, scope: ScopeKey) -> Known | None:
        """Return what is known of the last body of a scope."""
        with self._lock:
            entry = self._entries.get(scope)
            if entry is not None:
                self._entries.move_to_end(scope)
            return entry

    def put(self, scope: ScopeKey, nonce: str, body: bytes) -> None:
        """Remember the last body of a scope."""
        with self._lock:
            self._remove(scope)
            known = Known(nonce, body)
            if known.cost > self._bytes_max:
                return
            self._entries[scope] = known
            self._bytes += known.cost
            while self._bytes > self._bytes_max:
                _, oldest = self._entries.popitem(last=False)
                self._bytes -= oldest.cost

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    def _remove(self, scope: ScopeKey) -> None:
        entry = self._entries.pop(scope, None)
        if entry is not None:
            self._bytes -= entry.cost


_caches: "weakref.WeakSet[BodyCache]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # A lock may have been held by a thread that does not exist here.
    for cache in list(_caches):
        cache._forget()


os.register_at_fork(after_in_child=_after_fork_in_child)
