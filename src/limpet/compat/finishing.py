"""Writes whose outcome is certain when their caller goes on, even if that was cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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
