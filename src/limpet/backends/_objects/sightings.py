"""What this process has seen of leases, and since when, on its own clock."""

import os
import threading
import weakref
from collections import OrderedDict

from limpet.model import ScopeKey

_SCOPES_MAX = 16_384  # that one process waits for at the same time


class Sightings:
    """Since when leases have been seen as they are: of a bounded number of scopes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[ScopeKey, tuple[str, float]] = OrderedDict()
        _all.add(self)

    def first(self, scope: ScopeKey, w: str, *, now_s: float) -> float:
        """Return when a lease was first seen as it is; now, unless it was before."""
        with self._lock:
            seen = self._seen.pop(scope, None)
            if seen is None or seen[0] != w:
                seen = (w, now_s)
            self._seen[scope] = seen
            if len(self._seen) > _SCOPES_MAX:
                self._seen.popitem(last=False)
            return seen[1]


_all: "weakref.WeakSet[Sightings]" = weakref.WeakSet()


def _after_fork() -> None:
    # A thread that the child lacks may have held a lock. The clock is the same in the child.
    for sightings in list(_all):
        sightings._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
