"""Calls a function when a snapshot changes, from a task of its own."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import cast

from limpet import AsyncStore
from limpet.api.integrations import Backoff
from limpet.errors import InvalidInput, LimpetError, Unavailable
from limpet.model import Snapshot, SnapshotInfo, SnapshotRef

# After this long without a change the snapshot is located again: it may have been deleted before
# it was seen, and saved in another scope.
_RELOCATE_S = 300.0
_PAUSE_S_FIRST = 0.5  # before a storage that did not answer is asked again
_PAUSE_S_MAX = 5.0

_log = logging.getLogger(__name__)
_tasks: set[asyncio.Task[None]] = set()

Locate = Callable[[], Awaitable[SnapshotRef | None]]


class Subscription:
    """Calls a function with a snapshot as it is now, and after each change, until `end`.

    In a task of its own. `locate` finds the snapshot. Until it does, any snapshot of that id below
    `prefix` is watched.
    """

    def __init__(
        self,
        store: AsyncStore,
        snapshot_id: str,
        *,
        prefix: str,
        locate: Locate,
        call: Callable[[Snapshot], object],
    ) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise InvalidInput("there is no event loop to watch in: call this in a task") from None
        self._store = store
        self._id = snapshot_id
        self._prefix = prefix
        self._locate = locate
        self._call = call
        self._seen: tuple[str, str] | None = None  # the scope and the revision
        self._ended = False
        self._calling = False
        self.task = self._loop.create_task(self._run(), name=f"limpet-watch-{snapshot_id}")
        _tasks.add(self.task)  # the loop itself holds only a weak reference
        self.task.add_done_callback(_tasks.discard)

    def end(self) -> None:
        self._ended = True
        with suppress(RuntimeError):  # the loop is closed, and everything in it has ended
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if not self._calling:  # a call that has begun is allowed to finish
            self.task.cancel()

    async def _run(self) -> None:
        clock = self._store.driver.tools.clock
        backoff = Backoff(clock, first_s=_PAUSE_S_FIRST, longest_s=_PAUSE_S_MAX)
        while not self._ended and not self._store.driver.opened.closed:
            try:
                await self._follow()
                backoff.reset()
            except Unavailable:
                await asyncio.sleep(backoff.pause_s() or _PAUSE_S_MAX)
            except LimpetError as error:
                if not self._store.driver.opened.closed:
                    _log.error("watching has ended. snapshot_id=`%s`", self._id, exc_info=error)
                return

    async def _follow(self) -> None:
        """Watch the snapshot until it is deleted or, while it does not exist, until it does."""
        found = await self._locate()
        if found is None:
            # A snapshot of this id that appears may be another tenant's: so locate it again.
            news = self._store.watch(
                snapshot_id=self._id, prefix=self._prefix, timeout_s=_RELOCATE_S
            )
            async with _closing(news):
                async for _ in news:
                    if self._ended or await self._locate() is not None:
                        return
            return
        scope = self._store.scope(*found.scope)
        news = scope.watch(self._id, timeout_s=_RELOCATE_S)
        async with _closing(news):
            async for _ in news:
                loaded = await scope.load(self._id)
                if self._ended:
                    return
                if loaded is not None and (str(loaded.scope), loaded.revision) != self._seen:
                    self._seen = (str(loaded.scope), loaded.revision)
                    await self._report(loaded)

    async def _report(self, snapshot: Snapshot) -> None:
        """Call the function, which may be async. What it raises is logged."""
        self._calling = True
        try:
            answer = self._call(snapshot)
            if inspect.isawaitable(answer):
                await answer
        except (Exception, asyncio.CancelledError) as error:
            if self.task.cancelling():
                raise  # this task itself is cancelled, not something that the function awaited
            _log.error("a callback has failed. snapshot_id=`%s`", self._id, exc_info=error)
        finally:
            self._calling = False


def _closing(news: AsyncIterator[SnapshotInfo]) -> aclosing[AsyncGenerator[SnapshotInfo, None]]:
    return aclosing(cast(AsyncGenerator[SnapshotInfo, None], news))
