"""Async code for a caller that cannot await: a framework whose interface is sync.

Nothing of it suspends: what would be awaited runs in the caller's thread, also inside an event
loop.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

from limpet import AsyncStore, Store
from limpet.api.integrations import AsyncDriver, Steps

T = TypeVar("T")


class _Here(AsyncDriver):
    async def in_pool(self, fn: Callable[..., T], *args: Any) -> T:
        return fn(*args)

    async def drive(self, verb: Steps[T], left_by: BaseException | None = None) -> T:
        return self.sync.drive(verb, left_by)


def blocking(store: Store | AsyncStore) -> AsyncStore:
    """Return the store with async methods whose coroutines `result_of` can run."""
    here = AsyncStore(store.sync)
    here.driver = _Here(store.sync.driver)
    return here


def result_of(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that uses a `blocking` store and awaits nothing else."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise AssertionError("the coroutine waits for something else than its store")


def awaiting(method: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    """Return the sync twin of a method, for a class whose `_aio` has that method."""

    @wraps(method)
    def twin(self: Any, *args: Any, **options: Any) -> T:
        return result_of(method(self._aio, *args, **options))

    return twin
