"""A store, sync and async. The full promise of each verb stands with the sync one."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import TracebackType
from typing import TypeVar

from limpet.api import upkeep, verbs
from limpet.api.aio_scope import AsyncScope
from limpet.api.driver import AsyncDriver, Driver
from limpet.api.opened import Opened
from limpet.api.scope import Scope
from limpet.core import limits
from limpet.model import Finding, ScopeInfo, SnapshotInfo, Stats

T = TypeVar("T")


class Store:
    """An opened engine: the one object that everything starts from. A context manager.

    May be shared between threads. After a fork both processes may go on using it.
    """

    def __init__(self, opened: Opened) -> None:
        """Made by `limpet.open`."""
        self.driver = Driver(opened)
        self._aio = AsyncStore(self)

    def __enter__(self) -> "Store":
        self.driver.opened.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def sync(self) -> "Store":
        """This store."""
        return self

    @property
    def aio(self) -> "AsyncStore":
        """The async API of the same opened store."""
        return self._aio

    def close(self) -> None:
        """Close the engine, and end the threads of the async API. May be repeated."""
        self.driver.opened.close()

    def scope(self, session_id: str, scope_id: str = "main", kind: str = "agent") -> "Scope":
        """Return one line of state. Checks the ids; touches no storage and creates nothing."""
        return Scope(self.driver, limits.check_scope(session_id, scope_id, kind))

    def find(self, snapshot_id: str, *, prefix: str = "") -> SnapshotInfo | None:
        """Find a kept snapshot by its id in any scope: the last saved match, or None.

        Only sessions whose id begins with `prefix` are seen.
        """
        return self.driver.run(verbs.find(snapshot_id, prefix))

    def sessions(
        self, *, limit: int | None = None, after: str | None = None, prefix: str = ""
    ) -> Iterator[str]:
        """Yield session ids in text order, those greater than `after`, which need not exist."""
        return self.driver.stream(verbs.sessions(limit=limit, after=after, prefix=prefix))

    def scopes(
        self, session_id: str | None = None, *, kind: str | None = None, prefix: str = ""
    ) -> Iterator[ScopeInfo]:
        """Yield the scopes that hold anything, with their heads, by session, kind and scope id."""
        return self.driver.stream(verbs.scopes(session_id, kind=kind, prefix=prefix))

    def history(
        self,
        *,
        limit: int | None = None,
        after: SnapshotInfo | None = None,
        labels: Mapping[str, str] | None = None,
        status: str | None = None,
        prefix: str = "",
    ) -> Iterator[SnapshotInfo]:
        """Yield kept snapshots of all sessions whose id begins with `prefix`, newest first.

        Strictly so within a scope; across scopes as well as the clocks agree.
        """
        walk = verbs.history(
            None, limit=limit, after=after, labels=labels, status=status, prefix=prefix
        )
        return self.driver.stream(walk)

    def compact(self) -> int:
        """Give unused space back to the operating system; return the bytes. Others go on."""
        return self.driver.run(lambda backend: backend.compact())

    def stats(self, session_id: str | None = None) -> Stats:
        """Count what the store, or one session, holds, and name what is biggest in it."""
        return self.driver.run(upkeep.stats(session_id))

    def check(self) -> Iterator[Finding]:
        """Read everything stored and yield what is wrong with it. Changes nothing."""
        return self.driver.stream(upkeep.check(repair=False))

    def repair(self) -> Iterator[Finding]:
        """Check, and mend what can be mended without losing anything that can still be read.

        Lazy as every listing: what is not asked for is not mended.
        """
        return self.driver.stream(upkeep.check(repair=True))

    def delete_session(self, session_id: str) -> int:
        """Remove everything of one session; return how many snapshots that were. Idempotent."""
        session_id = limits.check_id("session_id", session_id)
        return self.driver.run(lambda backend: backend.delete_session(session_id))

    def watch(
        self,
        *,
        session_id: str | None = None,
        snapshot_id: str | None = None,
        prefix: str = "",
        timeout_s: float | None = None,
    ) -> Iterator[SnapshotInfo]:
        """Yield what the scopes of a session show, and again whenever one shows something else.

        With `snapshot_id` it is a kept snapshot, in whatever scope it is or will be saved; without
        either, all sessions. Only those whose id begins with `prefix` are seen. Otherwise as
        `Scope.watch`; ends when the session or the snapshot is deleted.
        """
        return self.driver.watch(verbs.topic(session_id, snapshot_id, prefix), timeout_s)


class AsyncStore:
    """Async twin of `Store`. An async context manager; one engine, one close."""

    def __init__(self, sync: Store) -> None:
        """Made by `limpet.open_async` and `Store.aio`."""
        self.driver = AsyncDriver(sync.driver)
        self._sync = sync

    async def __aenter__(self) -> "AsyncStore":
        await self.driver.offload(self.driver.opened.open)
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
        """The sync API of the same opened store."""
        return self._sync

    @property
    def aio(self) -> "AsyncStore":
        """This store."""
        return self

    async def close(self) -> None:
        """Async twin of `Store.close`."""
        if self.driver.opened.closed:
            return
        import asyncio

        # Not behind the work in the pool, and not stopped by a cancelled await.
        closing = asyncio.get_running_loop().run_in_executor(None, self.driver.opened.close)
        await asyncio.shield(closing)

    async def run(self, fn: Callable[[Store], T]) -> T:
        """Run a function of several synchronous calls with the sync API, in the pool."""
        return await self.driver.in_pool(fn, self._sync)

    def scope(self, session_id: str, scope_id: str = "main", kind: str = "agent") -> "AsyncScope":
        """Async twin of `Store.scope`; not awaited, since it touches no storage."""
        return AsyncScope(self.driver, limits.check_scope(session_id, scope_id, kind))

    async def find(self, snapshot_id: str, *, prefix: str = "") -> SnapshotInfo | None:
        """Async twin of `Store.find`."""
        return await self.driver.run(verbs.find(snapshot_id, prefix))

    def sessions(
        self, *, limit: int | None = None, after: str | None = None, prefix: str = ""
    ) -> AsyncIterator[str]:
        """Async twin of `Store.sessions`."""
        return self.driver.stream(verbs.sessions(limit=limit, after=after, prefix=prefix))

    def scopes(
        self, session_id: str | None = None, *, kind: str | None = None, prefix: str = ""
    ) -> AsyncIterator[ScopeInfo]:
        """Async twin of `Store.scopes`."""
        return self.driver.stream(verbs.scopes(session_id, kind=kind, prefix=prefix))

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
        return self.driver.stream(walk)

    async def compact(self) -> int:
        """Async twin of `Store.compact`."""
        return await self.driver.run(lambda backend: backend.compact())

    async def stats(self, session_id: str | None = None) -> Stats:
        """Async twin of `Store.stats`."""
        return await self.driver.run(upkeep.stats(session_id))

    def check(self) -> AsyncIterator[Finding]:
        """Async twin of `Store.check`."""
        return self.driver.stream(upkeep.check(repair=False))

    def repair(self) -> AsyncIterator[Finding]:
        """Async twin of `Store.repair`."""
        return self.driver.stream(upkeep.check(repair=True))

    async def delete_session(self, session_id: str) -> int:
        """Async twin of `Store.delete_session`."""
        session_id = limits.check_id("session_id", session_id)
        return await self.driver.run(lambda backend: backend.delete_session(session_id))

    def watch(
        self,
        *,
        session_id: str | None = None,
        snapshot_id: str | None = None,
        prefix: str = "",
        timeout_s: float | None = None,
    ) -> AsyncIterator[SnapshotInfo]:
        """Async twin of `Store.watch`."""
        return self.driver.watch(verbs.topic(session_id, snapshot_id, prefix), timeout_s)
