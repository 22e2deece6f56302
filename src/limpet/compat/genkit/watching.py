"""A function that is called with a snapshot when it changes, by a task of its own."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import cast

from limpet.api.store import AsyncStore
from limpet.errors import InvalidInput, LimpetError, Unavailable
from limpet.model import Snapshot, SnapshotInfo, SnapshotRef

_PAUSE_S = 1.0  # before a storage that did not answer is asked again
_PATIENCE_S = 300.0  # without news: it may have been deleted before it was seen, and be elsewhere

_log = logging.getLogger(__name__)

Locate = Callable[[], Awaitable[SnapshotRef | None]]


def subscribe(
    store: AsyncStore,
    snapshot_id: str,
    *,
    prefix: str,
    locate: Locate,
    call: Callable[[Snapshot], object],
) -> Callable[[], None]:
    """Call a function with what a snapshot is, and becomes; return what ends that.

    `locate` finds the snapshot; until it does, whatever has that id below `prefix` is watched.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidInput("there is no event loop to watch in: call this in a task") from None
    return _Subscription(store, snapshot_id, prefix, locate, call).end


class _Subscription:
    def __init__(
        self,
        store: AsyncStore,
        snapshot_id: str,
        prefix: str,
        locate: Locate,
        call: Callable[[Snapshot], object],
    ) -> None:
        self._store = store
        self._id = snapshot_id
        self._prefix = prefix
        self._locate = locate
        self._call = call
        self._told: tuple[str, str] | None = None  # where, and the revision
        self._ended = False
        self._calling = False
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name=f"limpet-watch-{snapshot_id}")
        _tasks.add(self._task)  # the loop itself would let it be collected
        self._task.add_done_callback(_tasks.discard)

    def end(self) -> None:
        self._ended = True
        with suppress(RuntimeError):  # the loop is closed, and everything in it has ended
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if not self._calling:  # a call that is under way comes to its end
            self._task.cancel()

    async def _run(self) -> None:
        while not self._ended and not self._store.driver.opened.closed:
            try:
                await self._follow()
            except Unavailable:
                await asyncio.sleep(_PAUSE_S)
            except LimpetError as error:
                if not self._store.driver.opened.closed:
                    _log.error("watching has ended. snapshot_id=`%s`", self._id, exc_info=error)
                return

    async def _follow(self) -> None:
        """Watch the snapshot until it is deleted or, while there is none, until it is there."""
        found = await self._locate()
        if found is None:
            # What is seen may be somebody else's: it only says that it is time to look again.
            news = self._store.watch(
                snapshot_id=self._id, prefix=self._prefix, timeout_s=_PATIENCE_S
            )
            async with _closing(news):
                async for _ in news:
                    if self._ended or await self._locate() is not None:
                        return
            return
        scope = self._store.scope(*found.scope)
        news = scope.watch(self._id, timeout_s=_PATIENCE_S)
        async with _closing(news):
            async for _ in news:
                loaded = await scope.load(self._id)
                if loaded is not None:
                    await self._tell(loaded)
                if self._ended:
                    return

    async def _tell(self, loaded: Snapshot) -> None:
        told = (str(loaded.scope), loaded.revision)
        if self._ended or told == self._told:
            return
        self._told = told
        self._calling = True
        try:
            answer = self._call(loaded)
            if inspect.isawaitable(answer):
                await answer
        except (Exception, asyncio.CancelledError) as error:
            if self._task.cancelling():
                raise
            _log.error("a callback has failed. snapshot_id=`%s`", self._id, exc_info=error)
        finally:
            self._calling = False


def _closing(news: AsyncIterator[SnapshotInfo]) -> aclosing[AsyncGenerator[SnapshotInfo, None]]:
    return aclosing(cast(AsyncGenerator[SnapshotInfo, None], news))


_tasks: set[asyncio.Task[None]] = set()
