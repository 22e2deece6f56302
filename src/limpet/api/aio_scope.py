"""`AsyncScope` and `AsyncLease`: the async API of a scope. `scope.py` documents the methods."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Generic

from limpet.api import branching, leases, verbs
from limpet.api.driver import AsyncClaimed, AsyncDriver, awaited, iterated
from limpet.api.opened import ScopeBase
from limpet.api.scope import Scope
from limpet.core import prepare
from limpet.model import (
    ANY,
    JSON,
    Expect,
    Note,
    Snapshot,
    SnapshotInfo,
    SnapshotLike,
    State,
)
from limpet.protocol import Commit


class AsyncScope(ScopeBase, Generic[State]):
    """One line of state inside a session, with its history. Async twin of `Scope`.

    Example:
        chat = store.scope("chat-42", "planner")  # not awaited
        await chat.save({"messages": []})
        async for info in chat.history(): print(info.id)
    """

    driver: AsyncDriver

    async def _save(self, state: State, **options: Any) -> SnapshotInfo:
        context = self._context
        encode: Callable[..., Commit] = partial(
            prepare.save, self._key, **context.of_write(), **options
        )
        return await self._commit(state, lambda: encode(context.model.dump(state)))

    async def _append(self, key: str, items: list[JSON], **options: Any) -> SnapshotInfo:
        context = self._context
        encode: Callable[..., Commit] = partial(
            prepare.append, self._key, **context.of_write(), **options
        )
        return await self._commit(items, lambda: encode(*context.model.dump_member(key, items)))

    async def _commit(self, value: JSON, encode: Callable[[], Commit]) -> SnapshotInfo:
        return await self.driver.run(verbs.save(await self.driver.encoded(value, encode)))

    async def _load(self, id: SnapshotLike | None = None) -> Snapshot[State] | None:
        return await self.driver.run(verbs.load(self._key, id, self._context.model))

    # Encoded in the pool if that takes long; the sync methods save every call that they can.
    save = awaited(Scope[State].save, body=_save)
    append = awaited(Scope[State].append, body=_append)
    load = awaited(Scope[State].load, body=_load)
    load_many = iterated(Scope[State].load_many)
    info = awaited(Scope[State].info)
    history = iterated(Scope[State].history)
    ids = iterated(Scope[State].ids)
    ancestors = iterated(Scope[State].ancestors)
    leaves = iterated(Scope[State].leaves)
    diff = awaited(Scope[State].diff)
    restore = awaited(Scope[State].restore)
    prune = awaited(Scope[State].prune)
    redact = awaited(Scope[State].redact)
    delete_snapshot = awaited(Scope[State].delete_snapshot)
    delete = awaited(Scope[State].delete)
    note = awaited(Scope[State].note)
    notes = iterated(Scope[State].notes)
    noted_ids = iterated(Scope[State].noted_ids)
    delete_note = awaited(Scope[State].delete_note)
    watch = iterated(Scope[State].watch)

    async def update(
        self,
        id: SnapshotLike,
        fn: Callable[[Snapshot[State]], Snapshot[State] | Awaitable[Snapshot[State] | None] | None],
    ) -> SnapshotInfo | None:
        """Change one snapshot in place, atomically: read, call `fn`, compare-and-set.

        Async twin of `Scope.update`, which explains the arguments; `fn` may be
        async and runs in the caller's task.
        """
        return await self.driver.drive(verbs.update(self._context, id, fn))

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
            self._context,
            id,
            to=to,
            scope_id=scope_id,
            patch=patch,
            labels=labels,
            metadata=metadata,
        )
        key = await self.driver.drive(verb)
        return AsyncScope(self.driver, self._context._replace(key=key, fence=None))

    async def set_note(
        self,
        name: str,
        value_or_fn: JSON | Callable[[JSON], JSON | Awaitable[JSON]],
        *,
        on: SnapshotLike | None = None,
        expect: Expect = ANY,
    ) -> Note | None:
        """Write a note: a small document of the scope, or of a snapshot.

        Async twin of `Scope.set_note`, which explains the arguments; a function may be
        async and runs in the caller's task.
        """
        verb = verbs.set_note(self._context, name, value_or_fn, on=on, expect=expect)
        return await self.driver.drive(verb)

    def claim(
        self, *, owner: str, ttl_s: float = 30, wait_s: float = 0
    ) -> AbstractAsyncContextManager["AsyncLease[State]"]:
        """Hold the lease of this scope for a `with` block.

        Async twin of `Scope.claim`, which explains the arguments.
        """
        wanted = leases.prepare(self._context.tools, self._key, owner, ttl_s, wait_s)
        held = leases.held(self, wanted, AsyncLease)
        return AsyncClaimed(held, AsyncLease, "scope.claim(owner=…) as lease")


class AsyncLease(leases.LeaseProperties, AsyncScope[State]):
    """A scope whose every write carries a lease. Async twin of `Lease`.

    Example:
        async with chat.claim(owner="worker-1") as lease:
            await lease.save({"step": 1})
    """
