"""Writes of an async caller that others disturb: other writers, or a cancellation."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self, TypeVar

from limpet.api.integrations import AsyncDriver, Backoff, Pause, Steps, limits
from limpet.errors import Conflict, Unavailable

T = TypeVar("T")


async def contended(
    driver: AsyncDriver,
    what: str,
    attempt: Callable[[], Awaitable[T]],
    *,
    overtaken: type[Exception] = Conflict,
) -> T:
    """Repeat an attempt while other writers are faster, which it says by raising `overtaken`.

    `what` ends the message of the error: ``snapshot_id=`a```.
    """
    wait_s = limits.CONTENTION_WAIT_S_MAX
    backoff = Backoff(driver.tools.clock, first_s=0.001, longest_s=0.1, wait_s=wait_s)
    while True:
        try:
            return await attempt()
        except overtaken:
            pause_s = backoff.pause_s()
            if pause_s is None:
                raise Unavailable(f"other writers were faster for {wait_s} s. {what}") from None
        await driver.drive(_pause(pause_s))


def _pause(seconds: float) -> Steps[None]:
    yield Pause(seconds)


class AsyncClosing:
    """An async context manager that is closed at the end of its block."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        raise NotImplementedError


async def finished(write: Coroutine[Any, Any, T]) -> T:
    """Return what a write returns; a cancelled caller goes on only when it has finished.

    A write that has begun goes on in any case: what the caller does next must not overtake it.
    """
    task = asyncio.ensure_future(write)
    cancelled = False
    while not task.done():
        try:
            # Not `shield`: its exception would stay in the loop, and keep what it knows alive.
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    try:
        if cancelled:
            raise asyncio.CancelledError
        if error is not None:
            raise error
        return task.result()
    finally:
        del error, task
