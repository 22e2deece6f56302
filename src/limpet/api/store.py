"""`Store` and `AsyncStore`. The methods are documented on `Store`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from limpet.api import upkeep, verbs
from limpet.api.aio_scope import AsyncScope
from limpet.api.driver import AsyncDriver, Driver, awaited, iterated, running_loop
from limpet.api.opened import ScopeContext, Tools
from limpet.api.scope import Scope
from limpet.core import limits
from limpet.model import (
    Finding,
    ScopeInfo,
    ScopeKey,
    SnapshotInfo,
    SnapshotLike,
    SnapshotRef,
    State,
    Stats,
)

T = TypeVar("T")


def context_of(key: ScopeKey, tools: Tools, model: type[Any] | None) -> ScopeContext:
    """Return a scope whose states are those of a class; None: they are JSON."""
    if model is None:
        return ScopeContext(key, tools)
    from limpet.api.typed import TypedModel  # it imports more than most programs need

    return ScopeContext(key, tools, TypedModel(model, tools))


class Store:
    """An opened store: the object that everything starts from. A context manager.

    It may be shared between threads, and used on both sides of a fork.

    Example:
        with limpet.open("sqlite:///agents.db") as store:
            chat = store.scope("chat-42", "planner")
            chat.save({"messages": []})
    """

    def __init__(self, driver: Driver) -> None:
        """Made by `limpet.open`."""
        self.driver = driver
        self._aio = AsyncStore(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.driver.opened.url!r})"

    def __enter__(self) -> "Store":
        self.driver.opened.open()
        return self

    def __exit__(self, *error: object) -> None:
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
        """Close the engine and end all threads: watches end, leases are released. Repeatable.

        Example:
            store.close()  # or: with limpet.open(url) as store
        """
        self.driver.opened.close()

    def scope(
        self,
        session_id: str,
        scope_id: str = "main",
        kind: str = "agent",
        *,
        model: type[State] | None = None,
    ) -> Scope[State]:
        """Return a scope. Checks the ids, does no I/O and creates nothing.

        Example:
            chat = store.scope("chat-42", "planner")

        Args:
            session_id: the conversation or workflow; the unit of deletion.
            scope_id: the name of this line of state inside the session.
            kind: what sort of state it is, such as `agent`, `graph` or `thread`.
            model: the class of the states: a Pydantic model, a dataclass or a TypedDict. What is
                saved must be one, and what is loaded is one. By default states are any JSON.
        """
        key = limits.check_scope(session_id, scope_id, kind)
        return Scope(self.driver, context_of(key, self.driver.tools, model))

    def find(self, snapshot_id: SnapshotLike, *, prefix: str = "") -> SnapshotInfo | None:
        """Return the last saved kept snapshot with this id in any scope, or None.

        Example:
            info = store.find("step-7")

        Args:
            snapshot_id: the id; or an info, snapshot or ref, to find that very snapshot again.
            prefix: search only sessions whose id begins with this.
        """
        return self.driver.run(verbs.find(snapshot_id, prefix))

    def sessions(
        self, *, limit: int | None = None, after: str | None = None, prefix: str = ""
    ) -> Iterator[str]:
        """Yield session ids in text order.

        Example:
            for session_id in store.sessions(prefix="alice/"): print(session_id)

        Args:
            limit: at most so many; by default all.
            after: only ids greater than this text, which need not exist.
            prefix: only ids that begin with this.
        """
        return self.driver.stream(verbs.sessions(limit=limit, after=after, prefix=prefix))

    def scopes(
        self, session_id: str | None = None, *, kind: str | None = None, prefix: str = ""
    ) -> Iterator[ScopeInfo]:
        """Yield scopes with their heads, ordered by session, kind and scope id.

        A scope is listed if it holds a snapshot, a note or a lease.

        Example:
            for each in store.scopes("chat-42"): print(each.key.scope_id, each.head)

        Args:
            session_id: only the scopes of this session.
            kind: only scopes of this kind.
            prefix: only sessions whose id begins with this.
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

        Example:
            for info in store.history(limit=20, status="failed"): print(info.scope, info.id)

        Args:
            limit: at most so many; by default all.
            after: continue after this snapshot, as its info or ref; an id alone is not enough.
            labels: only snapshots that have all of these labels.
            status: only snapshots with this status.
            prefix: only sessions whose id begins with this.
        """
        walk = verbs.history(
            None, limit=limit, after=after, labels=labels, status=status, prefix=prefix
        )
        return self.driver.stream(walk)

    def compact(self) -> int:
        """Give unused space back to the system without blocking others; return the bytes.

        Example:
            print(store.compact(), "bytes given back")
        """
        return self.driver.run(lambda backend: backend.compact())

    def rekey(self) -> int:
        """Encrypt what is stored with the current keys; return how many parts were others.

        For after a new key was added, or the first. Others may write meanwhile, if they have the
        new key. May be interrupted and repeated: only what is left is encrypted again. Open the
        store with `allow_plaintext=True` to encrypt what is not encrypted yet.

        Raises:
            Unavailable: others keep writing with an older key. What was found is encrypted again.

        Example:
            print(store.rekey(), "parts encrypted")
        """
        return self.driver.drive(upkeep.rekey())

    def stats(self, session_id: str | None = None) -> Stats:
        """Return the size of the store, or of one session, and its largest parts.

        Example:
            print(store.stats().stored_bytes, store.stats("chat-42").largest)

        Args:
            session_id: only this session; by default the whole store.
        """
        return self.driver.run(upkeep.stats(session_id))

    def check(self) -> Iterator[Finding]:
        """Read everything stored and yield what is damaged. Changes nothing.

        Example:
            for finding in store.check(): print(finding.severity, finding.message)
        """
        return self.driver.stream(upkeep.check(repair=False))

    def repair(self) -> Iterator[Finding]:
        """Check, and repair what can be repaired without losing anything that can still be read.

        Lazy, as every listing: iterate to the end, or not everything is repaired.

        Example:
            repaired = [finding for finding in store.repair() if finding.repaired]
        """
        return self.driver.stream(upkeep.check(repair=True))

    def delete_session(self, session_id: str) -> int:
        """Delete everything of one session; return the number of snapshots. May be repeated.

        Example:
            store.delete_session("chat-42")

        Args:
            session_id: the whole id; a session of which it is only the beginning stays.
        """
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

        Example:
            for info in store.watch(session_id="chat-42", timeout_s=1): print(info.id)

        Args:
            session_id: only the scopes of this session; ends when it is deleted.
            snapshot_id: instead of heads, the kept snapshot with this id, in any scope, as soon as
                it exists, or the very one that an info or ref names; ends when it is deleted.
            prefix: only sessions whose id begins with this.
            timeout_s: ends when so much time has passed without a change.
        """
        return self.driver.watch(verbs.topic(session_id, snapshot_id, prefix), timeout_s)


class AsyncStore:
    """Async twin of `Store`, over the same engine. An async context manager.

    Methods with one answer are awaited; those with many are used with `async for`.

    Example:
        async with limpet.open_async("sqlite:///agents.db") as store:
            await store.scope("chat-42").save({"messages": []})
            async for session_id in store.sessions(): print(session_id)
    """

    def __init__(self, sync: Store) -> None:
        """Made by `limpet.open_async` and `Store.aio`."""
        self.driver = AsyncDriver(sync.driver)
        self._sync = sync

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.driver.opened.url!r})"

    async def __aenter__(self) -> "AsyncStore":
        await self.driver.offload(self.driver.opened.open)
        return self

    async def __aexit__(self, *error: object) -> None:
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
        """Close the engine and end all threads: watches end, leases are released. Repeatable.

        Async twin of `Store.close`, which explains the arguments.
        """
        if self.driver.opened.closed:
            return
        import asyncio

        # Not in the pool, behind other work; and a cancelled await must not stop it.
        closing = running_loop().run_in_executor(None, self.driver.opened.close)
        await asyncio.shield(closing)

    aclose = close

    async def run(self, fn: Callable[[Store], T]) -> T:
        """Call `fn` with the sync API in a thread of the pool: for several calls at once.

        Example:
            ids = await store.run(lambda sync: list(sync.sessions()))

        Args:
            fn: a function of a `Store`; what it returns is returned.
        """
        return await self.driver.in_pool(fn, self._sync)

    def scope(
        self,
        session_id: str,
        scope_id: str = "main",
        kind: str = "agent",
        *,
        model: type[State] | None = None,
    ) -> AsyncScope[State]:
        """Return a scope. Checks the ids, does no I/O and creates nothing.

        Async twin of `Store.scope`, which explains the arguments; not awaited.
        """
        key = limits.check_scope(session_id, scope_id, kind)
        return AsyncScope(self.driver, context_of(key, self.driver.tools, model))

    find = awaited(Store.find)
    sessions = iterated(Store.sessions)
    scopes = iterated(Store.scopes)
    history = iterated(Store.history)
    compact = awaited(Store.compact)
    rekey = awaited(Store.rekey)
    stats = awaited(Store.stats)
    check = iterated(Store.check)
    repair = iterated(Store.repair)
    delete_session = awaited(Store.delete_session)
    watch = iterated(Store.watch)
