"""Writes of an async caller that others disturb: other writers, or a cancellation."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Self, TypeVar

from limpet.api.integrations import Driver, Steps, contend

T = TypeVar("T")


def contended(driver: Driver, attempt: Callable[[], T]) -> T:
    """Repeat an attempt while other writers are faster, which it says by raising Conflict."""
    return driver.drive(contend(driver.tools, partial(_once, attempt), lambda _: True))


def _once(attempt: Callable[[], T]) -> Steps[T]:
    result: T = yield lambda _: attempt()
    return result


class AsyncClosing:
    """An async context manager that is closed at the end of its block."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        raise NotImplementedError


class Lasting(asyncio.Future[T]):
    """A future of a write: a caller that is cancelled goes on only when the write has finished.

    A write that has begun goes on in any case: what the caller does next must not overtake it.
    """

    def cancel(self, msg: object = None) -> bool:
        """Return False: the caller's task then raises the cancellation once this has a result."""
        return False


async def finished(write: Coroutine[Any, Any, T]) -> T:
    """Return what a write returns; a cancelled caller goes on only when it has finished."""
    task, done = asyncio.ensure_future(write), Lasting[None]()
    task.add_done_callback(lambda _: done.set_result(None))
    try:
        await done
    finally:
        if not task.cancelled():
            task.exception()  # or asyncio would report one that a cancelled caller leaves
    try:
        return task.result()
    finally:
        del task  # an error refers to this frame
