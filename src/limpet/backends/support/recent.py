"""What a process remembers of the scopes it uses, so that the next save need not ask.

An entry counts only under a mark that the engine compares (the nonce of a write, the stamps of a
scope), so a stale one is never used. Bounded in bytes; what was not used for longest goes first.
"""

import os
import threading
import weakref
from collections import OrderedDict
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from limpet.model import ScopeKey

_ENTRY_BYTES = 512  # what an entry takes beside its body


class Entry(Protocol):
    """Something to be remembered of a scope."""

    @property
    def cost(self) -> int:
        """The bytes that it takes in a cache."""
        ...


E = TypeVar("E", bound=Entry)


class Recent(Generic[E]):
    """Entries by scope. Safe for threads, and emptied in a forked child."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._forget()
        _caches.add(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[ScopeKey, E] = OrderedDict()
        self._bytes = 0

    @property
    def bytes_held(self) -> int:
        """The bytes held now."""
        return self._bytes

    def get(self, scope: ScopeKey) -> E | None:
        """Return what is known of a scope."""
        with self._lock:
            entry = self._entries.get(scope)
            if entry is not None:
                self._entries.move_to_end(scope)
            return entry

    def keep(self, scope: ScopeKey, entry: E | None) -> None:
        """Remember something of a scope in place of what was known of it; None: nothing."""
        with self._lock:
            before = self._entries.pop(scope, None)
            self._bytes -= 0 if before is None else before.cost
            if entry is None or entry.cost > self._bytes_max:
                return
            self._entries[scope] = entry
            self._bytes += entry.cost
            while self._bytes > self._bytes_max:
                _, oldest = self._entries.popitem(last=False)
                self._bytes -= oldest.cost

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0


class Known(NamedTuple):
    """What a process knows of the last body of a scope: it, and the nonce of its write."""

    nonce: str
    body: bytes

    @property
    def cost(self) -> int:
        """The bytes that it takes in a cache."""
        return len(self.body) + _ENTRY_BYTES


class BodyCache(Recent[Known]):
    """The last encoded state of each scope, so that the next one can be compared with it."""

    def put(self, scope: ScopeKey, nonce: str, body: bytes) -> None:
        """Remember the last body of a scope."""
        self.keep(scope, Known(nonce, body))


_caches: "weakref.WeakSet[Recent[Any]]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # A lock may have been held by a thread that does not exist here.
    for cache in list(_caches):
        cache._forget()


os.register_at_fork(after_in_child=_after_fork_in_child)
