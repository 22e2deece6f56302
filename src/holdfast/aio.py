"""The async face: the same verbs over the same engine, awaited.

Engines are synchronous. Where one may block, its work is done by a bounded pool of threads that
this face owns; arguments are checked and encoded before that, in the caller's task. A cancelled
await does not stop a write that has begun.
"""

import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast import steps
from holdfast.core import limits, prepare
from holdfast.engine import Address, Engine
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.model import (
    ANY,
    HEAD,
    JSON,
    Expect,
    Note,
    Parent,
    ScopeInfo,
    ScopeKey,
    Snapshot,
    SnapshotInfo,
    SnapshotRef,
)
from holdfast.steps import Ask, Pause, Steps, Walk, Work
from holdfast.store import Store

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

# asyncio and its pools are imported where they are used: they take longer to load than all of
# Holdfast, and whoever awaits has them already.


class AsyncStore:
    """Async twin of `Store`. An async context manager; one engine, one close."""

    def __init__(self, engine: Engine, sync: Store) -> None:
        """Made by `holdfast.open_async` and `Store.aio`."""
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
        if not self._engine.closed:
            await self._offload(self._engine.close)

    async def run(self, fn: Callable[[Store], T]) -> T:
        """Run a function of several synchronous calls with the synchronous face, in the pool."""
        return await self._offload(fn, self._sync)

    def scope(self, session_id: str, scope_id: str = "main", kind: str = "agent") -> "AsyncScope":
        """Async twin of `Store.scope`; not awaited, since it touches no storage."""
        return AsyncScope(self, limits.check_scope(session_id, scope_id, kind))

    async def find(self, snapshot_id: str, *, prefix: str = "") -> SnapshotInfo | None:
        """Async twin of `Store.find`."""
        return await self._run(steps.find(snapshot_id, prefix))

    def sessions(
        self, *, limit: int | None = None, after: str | None = None, prefix: str = ""
    ) -> AsyncIterator[str]:
        """Async twin of `Store.sessions`."""
        return self._stream(steps.sessions(limit=limit, after=after, prefix=prefix))

    def scopes(
        self, session_id: str | None = None, *, kind: str | None = None, prefix: str = ""
    ) -> AsyncIterator[ScopeInfo]:
        """Async twin of `Store.scopes`."""
        return self._stream(steps.scopes(session_id, kind=kind, prefix=prefix))

    async def delete_session(self, session_id: str) -> int:
        """Async twin of `Store.delete_session`."""
        session_id = limits.check_id("session_id", session_id)
        return await self._run(lambda backend: backend.delete_session(session_id))

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
            except HoldfastError as error:
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
        if not self._engine.may_block:
            return fn(*args)
        import asyncio

        loop = asyncio.get_running_loop()
        try:
            under_way = loop.run_in_executor(self._threads(), fn, *args)
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
            pool = ThreadPoolExecutor(workers, thread_name_prefix="holdfast")
            self._pool, self._pool_pid = pool, os.getpid()
            self._engine.at_close(lambda: pool.shutdown(wait=False))
        return self._pool


class AsyncScope(Address):
    """Async twin of `Scope`."""

    def __init__(self, store: AsyncStore, key: ScopeKey) -> None:
        """Made by `AsyncStore.scope`, which checks the key."""
        super().__init__(key)
        self._store = store
        self._tools = store._engine.tools

    async def save(
        self,
        state: JSON,
        *,
        id: str | None = None,
        parent: Parent = HEAD,
        keep: bool = True,
        head: bool = True,
        overwrite: bool = False,
        status: str = "completed",
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        created_at: datetime | None = None,
        forked_from: SnapshotRef | None = None,
        expect: Expect = ANY,
    ) -> SnapshotInfo:
        """Async twin of `Scope.save`."""
        commit = prepare.save(
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
            stamp=self._tools.draw(),
            state_bytes_max=self._tools.state_bytes_max,
        )
        return await self._store._run(lambda backend: backend.commit(commit))

    async def append(
        self,
        key: str,
        items: list[JSON],
        *,
        keep: bool = True,
        status: str = "completed",
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
        expect: Expect = ANY,
    ) -> SnapshotInfo:
        """Async twin of `Scope.append`."""
        commit = prepare.append(
            self._key,
            key,
            items,
            keep=keep,
            status=status,
            labels=labels,
            metadata=metadata,
            expect=expect,
            stamp=self._tools.draw(),
            state_bytes_max=self._tools.state_bytes_max,
        )
        return await self._store._run(lambda backend: backend.commit(commit))

    async def load(self, id: str | None = None) -> Snapshot | None:
        """Async twin of `Scope.load`."""
        return await self._store._run(steps.load(self._key, id))

    def load_many(self, ids: Iterable[str]) -> AsyncIterator[Snapshot]:
        """Async twin of `Scope.load_many`."""
        return self._store._stream(steps.load_many(self._key, ids))

    async def info(self, id: str | None = None) -> SnapshotInfo | None:
        """Async twin of `Scope.info`."""
        return await self._store._run(steps.info(self._key, id))

    def history(
        self,
        *,
        limit: int | None = None,
        after: str | SnapshotInfo | None = None,
        labels: Mapping[str, str] | None = None,
        status: str | None = None,
    ) -> AsyncIterator[SnapshotInfo]:
        """Async twin of `Scope.history`."""
        walk = steps.history(self._key, limit=limit, after=after, labels=labels, status=status)
        return self._store._stream(walk)

    def ids(self, *, after: str | None = None, limit: int | None = None) -> AsyncIterator[str]:
        """Async twin of `Scope.ids`."""
        return self._store._stream(steps.list_ids(self._key, after=after, limit=limit))

    async def update(
        self,
        id: str,
        fn: Callable[[Snapshot], Snapshot | Awaitable[Snapshot | None] | None],
    ) -> SnapshotInfo | None:
        """Async twin of `Scope.update`; `fn` may be async and runs in the caller's task."""
        return await self._store._drive(steps.update(self._tools, self._key, id, fn))

    async def delete_snapshot(self, id: str) -> int:
        """Async twin of `Scope.delete_snapshot`."""
        id = limits.check_id("id", id)
        return await self._store._run(lambda backend: backend.delete_snapshot(self._key, id))

    async def delete(self, *, expect: Expect = ANY) -> int:
        """Async twin of `Scope.delete`."""
        expect = prepare.check_expect(expect)
        return await self._store._run(
            lambda backend: backend.delete_scope(self._key, expect=expect)
        )

    async def note(self, name: str, *, on: str | None = None) -> Note | None:
        """Async twin of `Scope.note`."""
        return await self._store._run(steps.note(self._key, name, on))

    def notes(self, *, on: str | Iterable[str] | None = None) -> AsyncIterator[Note]:
        """Async twin of `Scope.notes`."""
        return self._store._stream(steps.notes(self._key, on))

    async def set_note(
        self,
        name: str,
        value_or_fn: JSON | Callable[[JSON], JSON | Awaitable[JSON]],
        *,
        on: str | None = None,
        expect: Expect = ANY,
    ) -> Note | None:
        """Async twin of `Scope.set_note`; a function may be async and runs in the caller's task."""
        verb = steps.set_note(self._tools, self._key, name, value_or_fn, on=on, expect=expect)
        return await self._store._drive(verb)

    async def delete_note(self, name: str, *, on: str | None = None) -> int:
        """Async twin of `Scope.delete_note`."""
        name, on = prepare.note_address(name, on)
        return await self._store._run(lambda backend: backend.delete_note(self._key, name, on=on))
