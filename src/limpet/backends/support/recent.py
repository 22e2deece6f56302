"""The one bounded cache: what was not used for longest is dropped first."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from limpet.backends.support.forks import renew_after_fork

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def _one(value: object) -> int:
    return 1


class Recent(Generic[K, V]):
    """The values used last, up to a total cost. Safe for threads; empty in a forked child."""

    def __init__(self, cost_max: int, cost: Callable[[V], int] = _one) -> None:
        """Without `cost` the bound is a number of values."""
        self._cost_max = cost_max
        self._cost = cost
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()  # and what it costs
        self.cost_held = 0

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V) -> None:
        """Keep a value in place of the one before; one that costs too much is not kept at all."""
        cost = self._cost(value)
        with self._lock:
            self._pop(key)
            if cost > self._cost_max:
                return
            self._values[key] = value, cost
            self.cost_held += cost
            while self.cost_held > self._cost_max:
                self.cost_held -= self._values.popitem(last=False)[1][1]

    def pop(self, key: K) -> V | None:
        with self._lock:
            return self._pop(key)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self.cost_held = 0

    def drop(self, is_gone: Callable[[K], bool]) -> None:
        with self._lock:
            for key in [key for key in self._values if is_gone(key)]:
                self._pop(key)

    def _pop(self, key: K) -> V | None:
        found = self._values.pop(key, None)
        if found is None:
            return None
        self.cost_held -= found[1]
        return found[0]
