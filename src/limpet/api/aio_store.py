"""The async face: the same verbs over the same engine, awaited.

Engines are synchronous. Where one may block, its work is done by a bounded pool of threads that
this face owns; arguments are checked and encoded before that, in the caller's task. A cancelled
await does not stop a write that has begun.
"""

import inspect
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from limpet.api import upkeep, verbs
from limpet.api.aio_scope import AsyncScope
from limpet.api.opened import Engine
from limpet.api.store import Store
from limpet.api.verbs import Ask, Pause, Steps, Walk, Work
from limpet.api.watching import Hub, Watcher
from limpet.core import limits
from limpet.errors import InvalidInput, LimpetError
from limpet.model import (
    Finding,
    ScopeInfo,
    SnapshotInfo,
    Stats,
)
from limpet.protocol import Topic

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

# asyncio and its pools are imported where they are used: they take longer to load than all of
# Limpet, and whoever awaits has them already.


class AsyncStore:
    """Async twin of `Store`. An async context manager; one engine, one close."""

    def __init__(self, engine: Engine, sync: Store) -> None:
        """Made by `limpet.open_async` and `Store.aio`."""
        self._engine = engine
        self._sync = sync
        self._pool: ThreadPoolExecutor | None = None
        self._pool_pid = 0

    async def __aenter__(self) -> "AsyncStore":
        await self._offload(self._engine.open)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def sync(self) -> Store:
        """The synchronous face of the same opened store."""
        return self._sync

    @property
    def aio(self) -> "AsyncStore":
        """This store."""
        return self

    async def close(self) -> None:
        """Async twin of `Store.close`."""
        if self._engine.closed:
            return
        import asyncio

        # Not behind the work in the pool, and not stopped by a cancelled await.
        closing = asyncio.get_running_loop().run_in_executor(None, self._engine.close)
        await asyncio.shield(closing)

    async def run(self, fn: Callable[[Store], T]) -> T:
        """Run a function of several synchronous calls with the synchronous face, in the pool."""
        return await self._in_pool(fn, self._sync)

    def scope(self, session_id: str, scope_id: str = "main", kind: str = "agent") -> "AsyncScope":
        """Async twin of `Store.scope`; not awaited, since it touches no storage."""
        return AsyncScope(self, limits.check_scope(session_id, scope_id, kind))

    async def find(self, snapshot_id: str, *, prefix: str = "") -> SnapshotInfo | None:
        """Async twin of `Store.find`."""
        return await self._run(verbs.find(snapshot_id, prefix))

    def sessions(
        self, *, limit: int | None = None, after: str | None = None, prefix: str = ""
    ) -> AsyncIterator[str]:
        """Async twin of `Store.sessions`."""
        return self._stream(verbs.sessions(limit=limit, after=after, prefix=prefix))

    def scopes(
        self, session_id: str | None = None, *, kind: str | None = None, prefix: str = ""
    ) -> AsyncIterator[ScopeInfo]:
        """Async twin of `Store.scopes`."""
        return self._stream(verbs.scopes(session_id, kind=kind, prefix=prefix))

    def history(
        self,
        *,
        limit: int | None = None,
        after: SnapshotInfo | None = None,
        labels: Mapping[str, str] | None = None,
        status: str | None = None,
        prefix: str = "",
    ) -> AsyncIterator[SnapshotInfo]:
        """Async twin of `Store.history`."""
        walk = verbs.history(
            None, limit=limit, after=after, labels=labels, status=status, prefix=prefix
        )
        return self._stream(walk)

    async def compact(self) -> int:
        """Async twin of `Store.compact`."""
        return await self._run(lambda backend: backend.compact())

    async def stats(self, session_id: str | None = None) -> Stats:
        """Async twin of `Store.stats`."""
        return await self._run(upkeep.stats(session_id))

    def check(self) -> AsyncIterator[Finding]:
        """Async twin of `Store.check`."""
        return self._stream(upkeep.check(repair=False))

    def repair(self) -> AsyncIterator[Finding]:
        """Async twin of `Store.repair`."""
        return self._stream(upkeep.check(repair=True))

    async def delete_session(self, session_id: str) -> int:
        """Async twin of `Store.delete_session`."""
        session_id = limits.check_id("session_id", session_id)
        return await self._run(lambda backend: backend.delete_session(session_id))

    def watch(
        self,
        *,
        session_id: str | None = None,
        snapshot_id: str | None = None,
        prefix: str = "",
        timeout_s: float | None = None,
    ) -> AsyncIterator[SnapshotInfo]:
        """Async twin of `Store.watch`."""
        return self._watch(verbs.topic(session_id, snapshot_id, prefix), timeout_s)

    def _watch(self, topic: Topic, timeout_s: float | None) -> AsyncIterator[SnapshotInfo]:
        if timeout_s is not None:
            timeout_s = limits.check_seconds("timeout_s", timeout_s)
        return self._each_change(topic, timeout_s)

    async def _each_change(
        self, topic: Topic, timeout_s: float | None
    ) -> AsyncIterator[SnapshotInfo]:
        import asyncio

        hub = self._engine.companion(Hub)
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        watcher = Watcher(topic, lambda: loop.call_soon_threadsafe(told.set))
        try:
            hub.join(watcher)
            while True:
                told.clear()
                news, is_over = watcher.take()
                for info in news:
                    yield info
                if is_over:
                    return
                if not news:
                    # Not `wait_for`, which may swallow a cancellation.
                    async with asyncio.timeout(watcher.patience_s(timeout_s)):
                        await told.wait()
        except TimeoutError:
            return
        finally:
            hub.leave(watcher)

    async def _run(self, work: Work[T]) -> T:
        return await self._offload(self._sync._run, work)

    async def _drive(self, verb: Steps[T]) -> T:
        advance: Callable[[Any], Any] = verb.send
        value: Any = None
        while True:
            try:
                step = advance(value)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            try:
                advance, value = verb.send, await self._answer(step)
            except LimpetError as error:
                if isinstance(step, Ask):
                    raise  # the caller's own, whatever its class
                advance, value = verb.throw, error

    async def _answer(self, step: Work[Any] | Ask | Pause) -> Any:
        if isinstance(step, Pause):
            import asyncio

            return await asyncio.sleep(step.seconds)
        if not isinstance(step, Ask):
            return await self._run(step)
        answer = step.function(step.argument)
        return await answer if inspect.isawaitable(answer) else answer

    async def _stream(self, walk: Walk[T]) -> AsyncIterator[T]:
        page: Sequence[T] | None = None
        while True:
            try:
                work = next(walk) if page is None else walk.send(page)
            except StopIteration:
                return
            page = await self._run(work)
            for item in page:
                yield item

    async def _offload(self, fn: Callable[..., T], *args: Any) -> T:
        return await self._in_pool(fn, *args) if self._engine.may_block else fn(*args)

    async def _in_pool(self, fn: Callable[..., T], *args: Any) -> T:
        import asyncio

        loop = asyncio.get_running_loop()
        try:
            under_way = loop.run_in_executor(self._threads(), _without_stop, fn, *args)
        except RuntimeError:
            if self._engine.closed:  # by another thread, since it was asked
                raise InvalidInput("the store is closed") from None
            raise
        return await under_way

    def _threads(self) -> "ThreadPoolExecutor":
        # Threads do not survive a fork, so a child makes a pool of its own.
        if self._pool is None or self._pool_pid != os.getpid():
            from concurrent.futures import ThreadPoolExecutor

            workers = self._engine.tools.workers
            pool = ThreadPoolExecutor(workers, thread_name_prefix="limpet")
            self._pool, self._pool_pid = pool, os.getpid()
            self._engine.at_close(lambda: pool.shutdown(wait=False))
        return self._pool


def _without_stop(fn: Callable[..., T], *args: Any) -> T:
    """Call a function; StopIteration cannot cross into a task, where it would be lost."""
    try:
        return fn(*args)
    except StopIteration as stop:
        raise RuntimeError("the function raised StopIteration") from stop
