"""`Store` and `AsyncStore`. The methods are documented on `Store`."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import TracebackType
from typing import TypeVar

from limpet.api import upkeep, verbs
from limpet.api.aio_scope import AsyncScope
from limpet.api.driver import AsyncDriver, Driver, running_loop
from limpet.api.opened import Opened
from limpet.api.scope import Scope
from limpet.core import limits
from limpet.model import Finding, ScopeInfo, SnapshotInfo, SnapshotLike, SnapshotRef, Stats

T = TypeVar("T")


class Store:
    """An opened store: the object that everything starts from. A context manager.

    It may be shared between threads, and used on both sides of a fork.
    """

    def __init__(self, opened: Opened) -> None:
        """Made by `limpet.open`."""
        self.driver = Driver(opened)
        self._aio = AsyncStore(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.driver.opened.url!r})"

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
        """Close the engine and end all threads: watches end, leases are released. Repeatable."""
        self.driver.opened.close()

    def scope(self, session_id: str, scope_id: str = "main", kind: str = "agent") -> "Scope":
        """Return a scope. Checks the ids, does no I/O and creates nothing.

        Args:
            session_id: the conversation or workflow; the unit of deletion.
            scope_id: the name of this line of state inside the session.
            kind: what sort of state it is, such as `agent`, `graph` or `thread`.
        """
        return Scope(self.driver, limits.check_scope(session_id, scope_id, kind))

    def find(self, snapshot_id: SnapshotLike, *, prefix: str = "") -> SnapshotInfo | None:
        """Return the last saved kept snapshot with this id in any scope, or None.

        Only sessions whose id begins with `prefix` are searched.
        """
        return self.driver.run(verbs.find(snapshot_id, prefix))

    def sessions(
        self, *, limit: int | None = None, after: str | None = None, prefix: str = ""
    ) -> Iterator[str]:
        """Yield session ids in text order that begin with `prefix` and are greater than `after`."""
        return self.driver.stream(verbs.sessions(limit=limit, after=after, prefix=prefix))

    def scopes(
        self, session_id: str | None = None, *, kind: str | None = None, prefix: str = ""
    ) -> Iterator[ScopeInfo]:
        """Yield scopes with their heads, ordered by session, kind and scope id.

        A scope is listed if it holds a snapshot, a note or a lease. Limited to one session, to one
        kind, or to sessions whose id begins with `prefix`, if given.
        """
        return self.driver.stream(verbs.scopes(session_id, kind=kind, prefix=prefix))

    def history(
        self,
        *,
        limit: int | None = None,
        after: SnapshotInfo | SnapshotRef | None = None,
        labels: Mapping[str, str] | None = None,
        status: str | None = None,
        prefix: str = "",
    ) -> Iterator[SnapshotInfo]:
        """Yield kept snapshots of all sessions whose id begins with `prefix`, newest first.

        The order is exact within a scope; across scopes it is as good as the clocks of the writers.
        `after`, `labels` and `status` are as in `Scope.history`.
        """
        walk = verbs.history(
            None, limit=limit, after=after, labels=labels, status=status, prefix=prefix
        )
        return self.driver.stream(walk)

    def compact(self) -> int:
        """Give unused space back to the system without blocking others; return the bytes."""
        return self.driver.run(lambda backend: backend.compact())

    def stats(self, session_id: str | None = None) -> Stats:
        """Return the size of the store, or of one session, and its largest parts."""
        return self.driver.run(upkeep.stats(session_id))

    def check(self) -> Iterator[Finding]:
        """Read everything stored and yield what is damaged. Changes nothing."""
        return self.driver.stream(upkeep.check(repair=False))

    def repair(self) -> Iterator[Finding]:
        """Check, and repair what can be repaired without losing anything that can still be read.

        Lazy, as every listing: iterate to the end, or not everything is repaired.
        """
        return self.driver.stream(upkeep.check(repair=True))

    def delete_session(self, session_id: str) -> int:
        """Delete everything of one session; return the number of snapshots. May be repeated."""
        session_id = limits.check_id("session_id", session_id)
        return self.driver.run(lambda backend: backend.delete_session(session_id))

    def watch(
        self,
        *,
        session_id: str | None = None,
        snapshot_id: SnapshotLike | None = None,
        prefix: str = "",
        timeout_s: float | None = None,
    ) -> Iterator[SnapshotInfo]:
        """Yield the heads of many scopes, and again after each change, as `Scope.watch` does.

        Args:
            session_id: only the scopes of this session; ends when it is deleted.
            snapshot_id: instead of heads, the kept snapshot with this id, in any scope, as soon as
                it exists; ends when it is deleted.
            prefix: only sessions whose id begins with this.
            timeout_s: ends when so much time has passed without a change.
        """
        return self.driver.watch(verbs.topic(session_id, snapshot_id, prefix), timeout_s)


class AsyncStore:
    """Async twin of `Store`, over the same engine. An async context manager."""

    def __init__(self, sync: Store) -> None:
        """Made by `limpet.open_async` and `Store.aio`."""
        self.driver = AsyncDriver(sync.driver)
        self._sync = sync

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.driver.opened.url!r})"

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

        # Not in the pool, behind other work; and a cancelled await must not stop it.
        closing = running_loop().run_in_executor(None, self.driver.opened.close)
        await asyncio.shield(closing)

    aclose = close

    async def run(self, fn: Callable[[Store], T]) -> T:
        """Call `fn` with the sync API in a thread of the pool: for several calls at once."""
        return await self.driver.in_pool(fn, self._sync)

    def scope(self, session_id: str, scope_id: str = "main", kind: str = "agent") -> "AsyncScope":
        """Async twin of `Store.scope`; not awaited, since it does no I/O."""
        return AsyncScope(self.driver, limits.check_scope(session_id, scope_id, kind))

    async def find(self, snapshot_id: SnapshotLike, *, prefix: str = "") -> SnapshotInfo | None:
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
        after: SnapshotInfo | SnapshotRef | None = None,
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
        snapshot_id: SnapshotLike | None = None,
        prefix: str = "",
        timeout_s: float | None = None,
    ) -> AsyncIterator[SnapshotInfo]:
        """Async twin of `Store.watch`."""
        return self.driver.watch(verbs.topic(session_id, snapshot_id, prefix), timeout_s)
