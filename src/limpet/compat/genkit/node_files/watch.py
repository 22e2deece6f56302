"""Looking at the file of a snapshot again and again, by a task of its own."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from limpet.compat.genkit import rules
from limpet.compat.genkit.node_files.folder import Held, Shelf
from limpet.errors import InvalidInput, LimpetError
from limpet.opening import draw

_log = logging.getLogger(__name__)
_tasks: set[asyncio.Task[None]] = set()


def subscribe(
    shelf: Shelf, id: str, callback: Callable[[Any], object], *, poll_s: float
) -> Callable[[], None]:
    """Call a function with what a snapshot is, and becomes; return what ends that."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidInput(
            "there is no event loop in which to watch: call this in a task"
        ) from None
    return _Subscription(loop, shelf, id, callback, poll_s).end


class _Subscription:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shelf: Shelf,
        id: str,
        callback: Callable[[Any], object],
        poll_s: float,
    ) -> None:
        self._loop = loop
        self._shelf = shelf
        self._id = id
        self._callback = callback
        self._poll_s = poll_s
        self._mark: str | None = None
        self._told: str | None = None  # the version
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None
        task = loop.create_task(self._run(), name=f"limpet-watch-{id}")
        _tasks.add(task)  # the loop itself would let it be collected
        task.add_done_callback(_tasks.discard)

    def end(self) -> None:
        self._ended = True
        with suppress(RuntimeError):  # the loop is closed, and everything in it has ended
            self._loop.call_soon_threadsafe(_let_go, self._waiter)

    async def _run(self) -> None:
        while not self._ended:
            held = await asyncio.to_thread(self._look)
            if held is not None and held.version != self._told and not self._ended:
                self._told = held.version
                await self._tell(held)
            await self._pause()

    async def _pause(self) -> None:
        # Without a task of its own: a loop that is closed meanwhile would complain of two.
        waiter = self._loop.create_future()
        self._waiter = waiter
        timer = self._loop.call_later(self._poll_s, _let_go, waiter)
        try:
            if not self._ended:
                await waiter
        finally:
            timer.cancel()

    def _look(self) -> Held | None:
        """Return the snapshot if its file has changed, and can be read."""
        try:
            mark = self._shelf.mark(self._id)
            if mark is None or mark == self._mark:
                return None
            held = self._shelf.read(self._id)
        except LimpetError:
            return None  # it is looked at again, and `check` tells
        self._mark = mark
        return held

    async def _tell(self, held: Held) -> None:
        try:
            answer = self._callback(rules.as_read(held.row, draw().now))
            if inspect.isawaitable(answer):
                await answer
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # it is this task that is to end, and not something that was awaited
            _log.error("a callback has failed. snapshot_id=`%s`", self._id, exc_info=error)


def _let_go(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
