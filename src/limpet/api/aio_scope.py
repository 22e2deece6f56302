"""`AsyncScope` and `AsyncLease`: the async API of a scope. `scope.py` documents the methods."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType

from limpet.api import branching, leases, upkeep, verbs
from limpet.api.driver import AsyncDriver
from limpet.api.opened import ScopeBase
from limpet.core import prepare
from limpet.errors import Conflict, InvalidInput, Unavailable
from limpet.model import (
    ANY,
    HEAD,
    JSON,
    Diff,
    Expect,
    Note,
    Parent,
    Pruned,
    ScopeKey,
    Snapshot,
    SnapshotInfo,
    SnapshotLike,
    SnapshotRef,
)


class AsyncScope(ScopeBase):
    """Async twin of `Scope`."""

    def __init__(self, driver: AsyncDriver, key: ScopeKey) -> None:
        """Made by `AsyncStore.scope`, which checks the key."""
        super().__init__(key)
        self.driver = driver
        self._tools = driver.tools
        self._fence: str | None = None  # the key of the lease that a `Lease` writes under

    async def save(
        self,
        state: JSON,
        *,
        id: str | None = None,
        parent: Parent | SnapshotLike = HEAD,
        keep: bool = True,
        head: bool = True,
        overwrite: bool = False,
        status: str = "",
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        created_at: datetime | None = None,
        forked_from: SnapshotRef | None = None,
        expect: Expect = ANY,
    ) -> SnapshotInfo:
        """Async twin of `Scope.save`."""
        encode = partial(
            prepare.save,
            self._key,
            state,
            id=id,
            parent=parent,
            keep=keep,
            head=head,
            overwrite=overwrite,
            status=status,
            labels=labels,
            metadata=metadata,
            created_at=created_at,
            forked_from=forked_from,
            expect=expect,
            fence=self._fence,
            stamp=self._tools.draw(),
            state_bytes_max=self._tools.state_bytes_max,
            default=self._tools.default,
        )
        commit = await self.driver.encoded(state, encode)
        return await self.driver.run(verbs.save(commit))

    async def append(
        self,
        key: str,
        items: list[JSON],
        *,
        keep: bool = True,
        status: str | None = None,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        expect: Expect = ANY,
    ) -> SnapshotInfo:
        """Async twin of `Scope.append`."""
        encode = partial(
            prepare.append,
            self._key,
            key,
            items,
            keep=keep,
            status=status,
            labels=labels,
            metadata=metadata,
            expect=expect,
            fence=self._fence,
            stamp=self._tools.draw(),
            state_bytes_max=self._tools.state_bytes_max,
            default=self._tools.default,
        )
        commit = await self.driver.encoded(items, encode)
        return await self.driver.run(verbs.save(commit))

    async def load(self, id: SnapshotLike | None = None) -> Snapshot | None:
        """Async twin of `Scope.load`."""
        return await self.driver.run(verbs.load(self._key, id))

    def load_many(self, ids: Iterable[SnapshotLike]) -> AsyncIterator[Snapshot]:
        """Async twin of `Scope.load_many`."""
        return self.driver.stream(verbs.load_many(self._key, ids))

    async def info(self, id: SnapshotLike | None = None) -> SnapshotInfo | None:
        """Async twin of `Scope.info`."""
        return await self.driver.run(verbs.info(self._key, id))

    def history(
        self,
        *,
        limit: int | None = None,
        after: SnapshotLike | None = None,
        labels: Mapping[str, str] | None = None,
        status: str | None = None,
    ) -> AsyncIterator[SnapshotInfo]:
        """Async twin of `Scope.history`."""
        walk = verbs.history(self._key, limit=limit, after=after, labels=labels, status=status)
        return self.driver.stream(walk)

    def ids(
        self, *, after: SnapshotLike | None = None, limit: int | None = None
    ) -> AsyncIterator[str]:
        """Async twin of `Scope.ids`."""
        return self.driver.stream(verbs.list_ids(self._key, after=after, limit=limit))

    async def update(
        self,
        id: SnapshotLike,
        fn: Callable[[Snapshot], Snapshot | Awaitable[Snapshot | None] | None],
    ) -> SnapshotInfo | None:
        """Async twin of `Scope.update`; `fn` may be async and runs in the caller's task."""
        return await self.driver.drive(
            verbs.update(self._tools, self._key, id, fn, fence=self._fence)
        )

    def ancestors(self, id: SnapshotLike) -> AsyncIterator[SnapshotInfo]:
        """Async twin of `Scope.ancestors`."""
        return self.driver.stream(branching.ancestors(self._key, id))

    def leaves(self) -> AsyncIterator[SnapshotInfo]:
        """Async twin of `Scope.leaves`."""
        return self.driver.stream(branching.leaves(self._key))

    async def diff(self, a: SnapshotLike, b: SnapshotLike) -> Diff:
        """Async twin of `Scope.diff`."""
        return await self.driver.run(branching.difference(self._key, a, b))

    async def restore(
        self,
        id: SnapshotLike,
        *,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        expect: Expect = ANY,
    ) -> SnapshotInfo:
        """Async twin of `Scope.restore`."""
        work = branching.restore(
            self._tools,
            self._key,
            id,
            labels=labels,
            metadata=metadata,
            expect=expect,
            fence=self._fence,
        )
        return await self.driver.run(work)

    async def fork(
        self,
        id: SnapshotLike,
        *,
        to: str | None = None,
        scope_id: str | None = None,
        patch: Mapping[str, JSON] | Callable[[JSON], JSON | Awaitable[JSON]] | None = None,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> "AsyncScope":
        """Async twin of `Scope.fork`; a function may be async and runs in the caller's task."""
        verb = branching.fork(
            self._tools,
            self._key,
            id,
            to=to,
            scope_id=scope_id,
            patch=patch,
            labels=labels,
            metadata=metadata,
        )
        return AsyncScope(self.driver, await self.driver.drive(verb))

    async def prune(
        self,
        *,
        keep_last: int | None = None,
        older_than: timedelta | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Async twin of `Scope.prune`."""
        verb = upkeep.prune(
            self._tools,
            self._key,
            keep_last=keep_last,
            older_than=older_than,
            dry_run=dry_run,
            fence=self._fence,
        )
        return await self.driver.drive(verb)

    async def delete_snapshot(self, id: SnapshotLike) -> int:
        """Async twin of `Scope.delete_snapshot`."""
        found = prepare.snapshot_id("id", id, self._key)
        return await self.driver.run(
            lambda backend: backend.delete_snapshots(self._key, [found], fence=self._fence).count
        )

    async def delete(self, *, expect: Expect = ANY) -> int:
        """Async twin of `Scope.delete`."""
        expect = prepare.check_expect(expect)
        return await self.driver.run(
            lambda backend: backend.delete_scope(self._key, expect=expect, fence=self._fence)
        )

    async def note(self, name: str, *, on: SnapshotLike | None = None) -> Note | None:
        """Async twin of `Scope.note`."""
        return await self.driver.run(verbs.note(self._key, name, on))

    def notes(
        self, *, on: SnapshotLike | Iterable[SnapshotLike] | None = None
    ) -> AsyncIterator[Note]:
        """Async twin of `Scope.notes`."""
        return self.driver.stream(verbs.notes(self._key, on))

    def noted_ids(
        self, *, after: SnapshotLike | None = None, limit: int | None = None
    ) -> AsyncIterator[str]:
        """Async twin of `Scope.noted_ids`."""
        return self.driver.stream(verbs.noted_ids(self._key, after=after, limit=limit))

    async def set_note(
        self,
        name: str,
        value_or_fn: JSON | Callable[[JSON], JSON | Awaitable[JSON]],
        *,
        on: SnapshotLike | None = None,
        expect: Expect = ANY,
    ) -> Note | None:
        """Async twin of `Scope.set_note`; a function may be async and runs in the caller's task."""
        verb = verbs.set_note(
            self._tools, self._key, name, value_or_fn, on=on, expect=expect, fence=self._fence
        )
        return await self.driver.drive(verb)

    async def delete_note(self, name: str, *, on: SnapshotLike | None = None) -> int:
        """Async twin of `Scope.delete_note`."""
        name, owner = prepare.note_address(self._key, name, on)
        return await self.driver.run(
            lambda backend: backend.delete_note(self._key, name, on=owner, fence=self._fence)
        )

    def watch(
        self, id: SnapshotLike | None = None, *, timeout_s: float | None = None
    ) -> AsyncIterator[SnapshotInfo]:
        """Async twin of `Scope.watch`."""
        return self.driver.watch(verbs.scope_topic(self._key, id), timeout_s)

    def claim(
        self, *, owner: str, ttl_s: float = 30, wait_s: float = 0
    ) -> AbstractAsyncContextManager["AsyncLease"]:
        """Async twin of `Scope.claim`: `async with scope.claim(owner="worker-1") as lease:`."""
        wanted = leases.prepare(self._tools, self._key, owner, ttl_s, wait_s)
        return AsyncClaimed(hold(self, wanted))


@asynccontextmanager
async def hold(scope: AsyncScope, wanted: leases.Wanted) -> AsyncIterator["AsyncLease"]:
    """Async twin of `scope.hold`."""
    driver, renewals = scope.driver, scope.driver.opened.service(leases.Renewals)
    try:
        term = await driver.drive(leases.claim(driver.tools, wanted))
    except Conflict:
        raise
    except BaseException:
        # It may still be granted: a cancelled await does not stop a call.
        renewals.abandon(wanted.claim)
        raise
    try:
        renewals.add(term)
        yield AsyncLease(driver, term)
    finally:
        renewals.remove(term)
        try:
            await driver.run(leases.release(driver.tools, term))
        except (Unavailable, InvalidInput):
            pass  # the lease ends by itself
        except BaseException:
            renewals.abandon(wanted.claim)  # cancelled, perhaps before the call began
            raise


class AsyncLease(leases.LeaseProperties, AsyncScope):
    """Async twin of `Lease`."""

    def __init__(self, driver: AsyncDriver, term: leases.Term) -> None:
        """Made by `AsyncScope.claim`."""
        super().__init__(driver, term.claim.scope)
        self._term = term
        self._fence = term.claim.key


class AsyncClaimed(leases.NotEntered):
    """Async twin of `Claimed`."""

    _block = "async with scope.claim(owner=…) as lease:"
    _lease = AsyncLease

    def __init__(self, holding: AbstractAsyncContextManager[AsyncLease]) -> None:
        self._holding = holding

    async def __aenter__(self) -> AsyncLease:
        return await self._holding.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._holding.__aexit__(kind, error, trace)
