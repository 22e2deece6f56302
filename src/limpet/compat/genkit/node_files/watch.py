"""Polls the file of a snapshot, from a task of its own."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from limpet.compat.genkit import rules
from limpet.compat.genkit.node_files.folder import FileRow, TenantFolder
from limpet.compat.genkit.watching import call_back, running_loop, start_task
from limpet.errors import LimpetError
from limpet.opening import draw


class FileSubscription:
    """Calls a function with a snapshot as it is now, and after each change, until `end`."""

    def __init__(
        self, folder: TenantFolder, id: str, callback: Callable[[Any], object], *, poll_s: float
    ) -> None:
        self._loop = running_loop()
        self._folder = folder
        self._id = id
        self._callback = callback
        self._poll_s = poll_s
        self._fingerprint: str | None = None
        self._version: str | None = None
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None
        start_task(self._loop, self._run(), id)

    def end(self) -> None:
        self._ended = True
        with suppress(RuntimeError):  # the loop is closed, and everything in it has ended
            self._loop.call_soon_threadsafe(_wake, self._waiter)

    async def _run(self) -> None:
        while not self._ended:
            found = await asyncio.to_thread(self._read_changed)
            if found is not None and found.version != self._version and not self._ended:
                self._version = found.version
                await call_back(self._callback, rules.as_read(found.row, draw().now), self._id)
            await self._pause()

    async def _pause(self) -> None:
        # Without a task of its own: a loop that is closed meanwhile would complain of two.
        waiter = self._waiter = self._loop.create_future()
        timer = self._loop.call_later(self._poll_s, _wake, waiter)
        try:
            if not self._ended:
                await waiter
        finally:
            timer.cancel()

    def _read_changed(self) -> FileRow | None:
        """Return the snapshot if its file has changed and can be read."""
        try:
            fingerprint = self._folder.fingerprint(self._id)
            if fingerprint is None or fingerprint == self._fingerprint:
                return None
            found = self._folder.read(self._id)
        except LimpetError:
            return None  # the next poll tries again, and `check` reports damage
        self._fingerprint = fingerprint
        return found


def _wake(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
