"""`AsyncScope` and `AsyncLease`: the async API of a scope. `scope.py` documents the methods."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Generic

from limpet.api import branching, leases, redacting, upkeep, verbs
from limpet.api.driver import AsyncDriver
from limpet.api.opened import JSON_MODEL, JsonModel, ScopeBase
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
    Redacted,
    ScopeKey,
    Snapshot,
    SnapshotInfo,
    SnapshotLike,
    SnapshotRef,
    State,
)


class AsyncScope(ScopeBase, Generic[State]):
    """One line of state inside a session, with its history. Async twin of `Scope`.

    Example:
        chat = store.scope("chat-42", "planner")  # not awaited
        await chat.save({"messages": []})
        async for info in chat.history(): print(info.id)
    """

    def __init__(self, driver: AsyncDriver, key: ScopeKey, model: JsonModel = JSON_MODEL) -> None:
        """Made by `AsyncStore.scope`, which checks the key."""
        super().__init__(key, model)
        self.driver = driver
        self._tools = driver.tools
        self._fence: str | None = None  # the key of the lease that a `Lease` writes under

    async def save(
        self,
        state: State,
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
        """Save a state as a new snapshot. Atomic, and durable when it returns.

        Async twin of `Scope.save`, which explains the arguments.
        """
        encode = partial(
            prepare.save,
            self._key,
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
        commit = await self.driver.encoded(state, lambda: encode(self._model.dump(state)))
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
        """Save the head's state with `items` appended to the list under the top-level `key`.

        Async twin of `Scope.append`, which explains the arguments.
        """
        encode = partial(
            prepare.append,
            self._key,
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
        commit = await self.driver.encoded(
            items, lambda: encode(*self._model.dump_member(key, items))
        )
        return await self.driver.run(verbs.save(commit))

    async def load(self, id: SnapshotLike | None = None) -> Snapshot[State] | None:
        """Return a snapshot with its state; None if there is none.

        Async twin of `Scope.load`, which explains the arguments.
        """
        return await self.driver.run(verbs.load(self._key, id, self._model))

    def load_many(self, ids: Iterable[SnapshotLike]) -> AsyncIterator[Snapshot[State]]:
        """Yield snapshots with their states; missing ones are skipped.

        Async twin of `Scope.load_many`, which explains the arguments.
        """
        return self.driver.stream(verbs.load_many(self._key, ids, self._model))

    async def info(self, id: SnapshotLike | None = None) -> SnapshotInfo | None:
        """Return a snapshot without its state; None if there is none.

        Async twin of `Scope.info`, which explains the arguments.
        """
        return await self.driver.run(verbs.info(self._key, id))

    def history(
        self,
        *,
        limit: int | None = None,
        after: SnapshotLike | None = None,
        labels: Mapping[str, str] | None = None,
        status: str | None = None,
    ) -> AsyncIterator[SnapshotInfo]:
        """Yield kept snapshots, the last saved first. Lazy: one query per page.

        Async twin of `Scope.history`, which explains the arguments.
        """
        walk = verbs.history(self._key, limit=limit, after=after, labels=labels, status=status)
        return self.driver.stream(walk)

    def ids(
        self, *, after: SnapshotLike | None = None, limit: int | None = None
    ) -> AsyncIterator[str]:
        """Yield kept ids in text order.

        Async twin of `Scope.ids`, which explains the arguments.
        """
        return self.driver.stream(verbs.list_ids(self._key, after=after, limit=limit))

    async def update(
        self,
        id: SnapshotLike,
        fn: Callable[[Snapshot[State]], Snapshot[State] | Awaitable[Snapshot[State] | None] | None],
    ) -> SnapshotInfo | None:
        """Change one snapshot in place, atomically: read, call `fn`, compare-and-set.

        Async twin of `Scope.update`, which explains the arguments; `fn` may be
        async and runs in the caller's task.
        """
        return await self.driver.drive(
            verbs.update(self._tools, self._key, id, fn, self._model, fence=self._fence)
        )

    def ancestors(self, id: SnapshotLike) -> AsyncIterator[SnapshotInfo]:
        """Yield a snapshot, its parent, and so on, up to a root or a missing parent.

        Async twin of `Scope.ancestors`, which explains the arguments.
        """
        return self.driver.stream(branching.ancestors(self._key, id))

    def leaves(self) -> AsyncIterator[SnapshotInfo]:
        """Yield the kept snapshots without kept children, the last saved first.

        Async twin of `Scope.leaves`, which explains the arguments.
        """
        return self.driver.stream(branching.leaves(self._key))

    async def diff(self, a: SnapshotLike, b: SnapshotLike) -> Diff:
        """Return the changes from the state of `a` to that of `b`; falsy if there are none.

        Async twin of `Scope.diff`, which explains the arguments.
        """
        return await self.driver.run(branching.difference(self._key, a, b))

    async def restore(
        self,
        id: SnapshotLike,
        *,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        expect: Expect = ANY,
    ) -> SnapshotInfo:
        """Save the state of an earlier snapshot as a new head, with that snapshot as parent.

        Async twin of `Scope.restore`, which explains the arguments.
        """
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
        patch: Mapping[str, JSON] | Callable[[State], State | Awaitable[State]] | None = None,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> "AsyncScope[State]":
        """Begin a new scope with the state of an existing snapshot.

        Async twin of `Scope.fork`, which explains the arguments; a function may be
        async and runs in the caller's task.
        """
        verb = branching.fork(
            self._tools,
            self._key,
            id,
            self._model,
            to=to,
            scope_id=scope_id,
            patch=patch,
            labels=labels,
            metadata=metadata,
        )
        return AsyncScope(self.driver, await self.driver.drive(verb), self._model)

    async def prune(
        self,
        *,
        keep_last: int | None = None,
        older_than: timedelta | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Delete snapshots outside the newest `keep_last` **and** older than `older_than`.

        Async twin of `Scope.prune`, which explains the arguments.
        """
        verb = upkeep.prune(
            self._tools,
            self._key,
            keep_last=keep_last,
            older_than=older_than,
            dry_run=dry_run,
            fence=self._fence,
        )
        return await self.driver.drive(verb)

    async def redact(
        self, what: str | Callable[[str, JSON], bool], *, replacement: JSON = None
    ) -> Redacted:
        """Replace content everywhere: in this scope, in its forks, and in what it was forked from.

        Async twin of `Scope.redact`, which explains the arguments; the function is not async.
        """
        verb = redacting.redact(
            self._tools, self._key, what, replacement=replacement, fence=self._fence
        )
        return await self.driver.drive(verb)

    async def delete_snapshot(self, id: SnapshotLike) -> int:
        """Delete one snapshot and the notes on its id; return 1, or 0 if there was none.

        Async twin of `Scope.delete_snapshot`, which explains the arguments.
        """
        found = prepare.snapshot_id("id", id, self._key)
        return await self.driver.run(
            lambda backend: backend.delete_snapshots(self._key, [found], fence=self._fence).count
        )

    async def delete(self, *, expect: Expect = ANY) -> int:
        """Delete the whole scope with its notes; return the number of snapshots.

        Async twin of `Scope.delete`, which explains the arguments.
        """
        expect = prepare.check_expect(expect)
        return await self.driver.run(
            lambda backend: backend.delete_scope(self._key, expect=expect, fence=self._fence)
        )

    async def note(self, name: str, *, on: SnapshotLike | None = None) -> Note | None:
        """Return a note; None if there is none.

        Async twin of `Scope.note`, which explains the arguments.
        """
        return await self.driver.run(verbs.note(self._key, name, on))

    def notes(
        self, *, on: SnapshotLike | Iterable[SnapshotLike] | None = None
    ) -> AsyncIterator[Note]:
        """Yield notes, by name.

        Async twin of `Scope.notes`, which explains the arguments.
        """
        return self.driver.stream(verbs.notes(self._key, on))

    def noted_ids(
        self, *, after: SnapshotLike | None = None, limit: int | None = None
    ) -> AsyncIterator[str]:
        """Yield the snapshot ids that have notes, in text order. The snapshots need not exist.

        Async twin of `Scope.noted_ids`, which explains the arguments.
        """
        return self.driver.stream(verbs.noted_ids(self._key, after=after, limit=limit))

    async def set_note(
        self,
        name: str,
        value_or_fn: JSON | Callable[[JSON], JSON | Awaitable[JSON]],
        *,
        on: SnapshotLike | None = None,
        expect: Expect = ANY,
    ) -> Note | None:
        """Write a note: a small document beside the scope, or beside a snapshot.

        Async twin of `Scope.set_note`, which explains the arguments; a function may be
        async and runs in the caller's task.
        """
        verb = verbs.set_note(
            self._tools, self._key, name, value_or_fn, on=on, expect=expect, fence=self._fence
        )
        return await self.driver.drive(verb)

    async def delete_note(self, name: str, *, on: SnapshotLike | None = None) -> int:
        """Delete a note; return 1, or 0 if there was none.

        Async twin of `Scope.delete_note`, which explains the arguments.
        """
        name, owner = prepare.note_address(self._key, name, on)
        return await self.driver.run(
            lambda backend: backend.delete_note(self._key, name, on=owner, fence=self._fence)
        )

    def watch(
        self, id: SnapshotLike | None = None, *, timeout_s: float | None = None
    ) -> AsyncIterator[SnapshotInfo]:
        """Yield the head, or the snapshot `id`, and again after each change by any process.

        Async twin of `Scope.watch`, which explains the arguments.
        """
        return self.driver.watch(verbs.scope_topic(self._key, id), timeout_s)

    def claim(
        self, *, owner: str, ttl_s: float = 30, wait_s: float = 0
    ) -> AbstractAsyncContextManager["AsyncLease[State]"]:
        """Hold the lease of this scope for a `with` block.

        Async twin of `Scope.claim`, which explains the arguments.
        """
        wanted = leases.prepare(self._tools, self._key, owner, ttl_s, wait_s)
        return leases.AsyncClaimed(hold(self, wanted), AsyncLease)


@asynccontextmanager
async def hold(
    scope: AsyncScope[State], wanted: leases.Wanted
) -> AsyncIterator["AsyncLease[State]"]:
    """Async twin of `leases.hold`."""
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
        yield AsyncLease(driver, term, scope._model)
    finally:
        renewals.remove(term)
        try:
            await driver.run(leases.release(driver.tools, term))
        except (Unavailable, InvalidInput):
            pass  # the lease ends by itself
        except BaseException:
            renewals.abandon(wanted.claim)  # cancelled, perhaps before the call began
            raise


class AsyncLease(leases.LeaseProperties, AsyncScope[State]):
    """A scope whose every write carries a lease. Async twin of `Lease`.

    Example:
        async with chat.claim(owner="worker-1") as lease:
            await lease.save({"step": 1})
    """

    def __init__(self, driver: AsyncDriver, term: leases.Term, model: JsonModel) -> None:
        """Made by `AsyncScope.claim`."""
        super().__init__(driver, term.claim.scope, model)
        self._term = term
        self._fence = term.claim.key
