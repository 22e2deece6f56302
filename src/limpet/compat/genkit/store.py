"""Genkit's `SessionStore` on every engine. `python` has the one of its package for Python."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeAlias, cast

from limpet import AsyncScope, AsyncStore, Scope, Store
from limpet.api.integrations import Backoff, Query, check_prefix, limits, verbs
from limpet.compat.genkit import records, rules
from limpet.compat.genkit.records import (
    KIND,
    Context,
    PrefixOf,
    S,
    SessionSnapshot,
    Tenant,
    tenant_of,
)
from limpet.compat.wire import check_store, require
from limpet.errors import CLOSED, AlreadyExists, InvalidInput, LimpetError, NotFound, Unavailable
from limpet.model import ScopeKey, Snapshot, SnapshotInfo, SnapshotRef

Given: TypeAlias = SessionSnapshot[S] | Mapping[str, Any] | None
Mutator: TypeAlias = Callable[[SessionSnapshot[S] | None], Given[S] | Awaitable[Given[S]]]
Read: TypeAlias = Callable[[Scope, str | None], SnapshotInfo | None]
Callback: TypeAlias = Callable[[SessionSnapshot[S]], object]


# After this long without a change the snapshot is located again: it may have been deleted before
# it was seen, and saved in another scope.
_RELOCATE_S = 300.0
_PAUSE_S_FIRST = 0.5  # before a storage that did not answer is asked again
_PAUSE_S_MAX = 5.0

_log = logging.getLogger(__name__)
_tasks: set[asyncio.Task[None]] = set()


class Subscription:
    """Calls a function with a snapshot as it is now, and after each change, until `end`.

    In a task of its own. Until the tenant has it, any snapshot of that id below the prefix of the
    tenant is watched.
    """

    def __init__(
        self,
        sessions: "Sessions[Any]",
        tenant: Tenant,
        snapshot_id: str,
        call: Callable[[Snapshot], object],
    ) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise InvalidInput("there is no event loop to watch in: call this in a task") from None
        self._store = sessions._store
        self._id = snapshot_id
        self._prefix = tenant.prefix
        self._locate = partial(sessions._locate, tenant, snapshot_id)
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
            options: Any = {"prefix": self._prefix, "timeout_s": _RELOCATE_S}
            async with _closing(self._store.watch(snapshot_id=self._id, **options)) as news:
                async for _ in news:
                    if self._ended or await self._locate() is not None:
                        return
            return
        scope = self._store.scope(*found.scope)
        async with _closing(scope.watch(self._id, timeout_s=_RELOCATE_S)) as news:
            async for _ in news:
                loaded = await scope.load(self._id)
                if self._ended:
                    return
                if loaded is not None and (str(loaded.scope), loaded.revision) != self._seen:
                    self._seen = (str(loaded.scope), loaded.revision)
                    await self._report(loaded)

    async def _report(self, snapshot: Snapshot) -> None:
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


class Sessions(Generic[S]):
    """The rows of sessions in an opened store: what the stores of all languages share."""

    def __init__(
        self,
        store: Store | AsyncStore,
        *,
        reject_branching_sessions: bool = False,
        latest: rules.Latest = "leaf",
        prefix_of: PrefixOf | None = None,
    ) -> None:
        self._store = check_store(store).aio
        self._rejects = reject_branching_sessions
        self._policy = rules.check_policy(latest)
        if prefix_of is not None:
            check_function("prefix_of", prefix_of)
        self._prefix_of = prefix_of

    def scope(self, session_id: str, *, context: Context = None) -> AsyncScope:
        """Return the scope of a session: to list its history, fork, watch, prune or delete it."""
        tenant = self._tenant(context)
        return self._store.scope(*tenant.scope(check_id("session_id", session_id)))

    def _tenant(self, context: Context) -> Tenant:
        tenant = tenant_of(context, self._prefix_of)
        check_prefix(tenant.prefix, "the tenant")
        return tenant

    # Reading. The methods that are not async wait for the storage: they run in the pool.

    async def _get(
        self,
        read: Read,
        snapshot_id: str | None,
        session_id: str | None,
        context: Context,
    ) -> SessionSnapshot[S] | None:
        if bool(snapshot_id) == bool(session_id):
            raise InvalidInput("give either a snapshot_id or a session_id")
        tenant = self._tenant(context)
        find: Callable[[], SnapshotInfo | None]
        if snapshot_id:
            id = check_id("snapshot_id", snapshot_id)
            find = partial(self._by_id, read, tenant, id)
        else:
            find = partial(self._latest, read, tenant, check_id("session_id", session_id))
        found = await self._store.driver.offload(find)
        return None if found is None else self._read(tenant, found)

    def _by_id(self, read: Read, tenant: Tenant, snapshot_id: str) -> SnapshotInfo | None:
        while (there := self._find(tenant, snapshot_id)) is not None:
            found = read(self._store.sync.scope(*there.scope), there.id)
            if found is not None:  # otherwise deleted meanwhile, and perhaps saved again
                return found
        return None

    async def _locate(self, tenant: Tenant, snapshot_id: str) -> SnapshotRef | None:
        return await self._store.driver.offload(self._find, tenant, snapshot_id)

    def _find(self, tenant: Tenant, snapshot_id: str) -> SnapshotRef | None:
        """Find a snapshot of the tenant: in the scope `main`, else the last saved one.

        `find` would return the last saved one only, which may be another tenant's.
        """
        elsewhere: SnapshotRef | None = None
        walk = verbs.matching(Query(prefix=tenant.prefix, id=snapshot_id))
        for each in self._store.sync.driver.stream(walk):
            session_id = tenant.session_of(each.session_id)
            if session_id is None or each.scope.kind != KIND:
                continue
            there = SnapshotRef(each.scope, each.id)
            if each.scope == tenant.scope(session_id):
                return there
            elsewhere = elsewhere or there
        return elsewhere

    def _latest(self, read: Read, tenant: Tenant, session_id: str) -> SnapshotInfo | None:
        scope = self._store.sync.scope(*tenant.scope(session_id))
        while (head := read(scope, None)) is not None:
            id = self._latest_id(scope, head, session_id)
            found = head if id == head.id else read(scope, id)
            if found is not None:  # otherwise deleted meanwhile: another may be the latest now
                return found
        return None

    def _latest_id(self, scope: Scope, head: SnapshotInfo, session_id: str) -> str:
        by_leaf = self._policy == "leaf"
        infos = scope.leaves() if by_leaf else scope.history()
        rows = [records.summary_of(info, session_id) for info in infos]
        if not head.kept:  # a draft of another program
            rows = [row for row in rows if not by_leaf or row.snapshot_id != head.parent_id]
            rows.append(records.summary_of(head, session_id))
        if not rows:  # none is a leaf, so the parents form a circle
            rows = [records.summary_of(info, session_id) for info in scope.history()]
        chosen = rules.latest(rows, session_id, policy=self._policy, reject_branching=self._rejects)
        return head.id if chosen is None or chosen.snapshot_id is None else chosen.snapshot_id

    def _read(self, tenant: Tenant, info: SnapshotInfo) -> SessionSnapshot[S]:
        row = records.row_of(info, tenant.session_of(info.session_id) or info.session_id)
        return rules.as_read(row, self._store.driver.tools.draw().now)

    def _watch(
        self, tenant: Tenant, snapshot_id: str, call: Callable[[Snapshot], object]
    ) -> Subscription:
        if self._store.driver.opened.closed:
            raise InvalidInput(CLOSED)
        return Subscription(self, tenant, check_id("snapshot_id", snapshot_id), call)

    # Writing

    async def _save(
        self, tenant: Tenant, snapshot_id: str, mutator: Mutator[S]
    ) -> SessionSnapshot[S] | None:
        id = check_id("snapshot_id", snapshot_id)

        while True:
            found = await self._locate(tenant, id)
            where = None if found is None else found.scope
            if where is None:
                after = await apply_mutator(mutator, None)
                if after is None:
                    return None
                try:
                    return await self._insert(tenant, id, after)
                except AlreadyExists:
                    # Another writer was faster; or it is a draft, which is not found by its id.
                    where = tenant.scope(rules.session_of(after) or "")
            with suppress(_DeletedMeanwhile):
                return await self._update(tenant, where, id, mutator)

    async def _create(self, tenant: Tenant, mutator: Mutator[S]) -> SessionSnapshot[S] | None:
        after = await apply_mutator(mutator, None)
        if after is None:
            return None
        id = after.snapshot_id or None
        if id is not None and await self._locate(tenant, check_id("snapshot_id", id)):
            raise AlreadyExists(f"the snapshot exists. snapshot_id=`{id}`")
        return await self._insert(tenant, id, after)

    async def _insert(
        self, tenant: Tenant, id: str | None, after: SessionSnapshot[S]
    ) -> SessionSnapshot[S]:
        drawn = self._store.driver.tools.draw()
        row = rules.next_row(id or "", None, after, drawn.now)
        scope = self._store.scope(*tenant.scope(row.session_id or ""))
        saved = await scope.save(id=id, **records.save_options(row, nonce=drawn.nonce))
        return replace(row, snapshot_id=saved.id)

    async def _update(
        self, tenant: Tenant, where: ScopeKey, id: str, mutator: Mutator[S]
    ) -> SessionSnapshot[S] | None:
        raised: list[NotFound] = []
        row: SessionSnapshot[S] | None = None

        async def change(found: Snapshot) -> Snapshot | None:
            nonlocal row
            before = records.row_of(found, tenant.session_of(found.session_id) or found.session_id)
            try:
                after = await apply_mutator(mutator, before)
            except NotFound as error:
                raised.append(error)
                raise
            now = self._store.driver.tools.draw().now
            row = None if after is None else rules.next_row(id, before, after, now)
            return None if row is None else records.replaced(found, row)

        try:
            await self._store.scope(*where).update(id, change)
        except NotFound as error:
            if error in raised:
                raise  # the mutator's own
            raise _DeletedMeanwhile from None
        return row


class SessionStore(Sessions[S]):
    """The snapshots of sessions in an opened store, sync or async. The caller closes the store.

    `latest` chooses the latest snapshot of a session: the `leaf` without children, of several the
    one created last; or the `newest` by `created_at` alone. With `reject_branching_sessions` a
    session of several live branches is refused.

    `prefix_of` maps the `context` of a call to the name of the tenant, or to None for no tenant.
    By default the context is that name, or a mapping with `auth.uid`. Another tenant, or a caller
    without a context, does not see the sessions of a tenant.
    """

    async def get_snapshot(
        self,
        *,
        snapshot_id: str | None = None,
        session_id: str | None = None,
        context: Context = None,
    ) -> SessionSnapshot[S] | None:
        """Return a snapshot by its id, or the latest of a session; None if there is none.

        Exactly one id must be given; an empty one counts as missing. A draft that another program
        saved is found as the latest of its session, but not by its id. A pending snapshot whose
        heartbeat is older than a minute is `expired`. The result is a copy.

        Raises:
            InvalidInput: both ids are given, or neither, or one cannot be an id.
            Conflict: the session branches and that is refused, or its parents form a circle.
            Corrupt: the state fails its check. A snapshot damaged otherwise is not found, and is
                not overwritten either.
        """
        return await self._get(Scope.load, snapshot_id, session_id, context)

    async def get_metadata(
        self,
        *,
        snapshot_id: str | None = None,
        session_id: str | None = None,
        context: Context = None,
    ) -> SessionSnapshot[S] | None:
        """As `get_snapshot`, without reading the state, which is ABSENT."""
        return await self._get(Scope.info, snapshot_id, session_id, context)

    async def save_snapshot(
        self, snapshot_id: str | None, mutator: Mutator[S], *, context: Context = None
    ) -> str | None:
        """Compute a snapshot from the stored one and store it, as one step. Durable.

        The mutator gets the stored snapshot, or None if there is none or no id was given. It
        returns a snapshot or its wire dict, which is stored under the given id, else its own, else
        a new one; or None to write nothing. Its exceptions are raised, and nothing is written. It
        may be async. No lock is held while it runs: if another writer was faster it is called
        again with the new snapshot, so it must not have side effects.

        See `rules.next_row` for fields that cannot change or may be left out. Returns the id, None
        if nothing was written. If one id is created in two sessions at the same moment, both have
        it.

        Raises:
            InvalidInput: the mutator returned no snapshot, or a change that is not allowed; or a
                value is not JSON.
            Conflict: the snapshot has ended, and would get another status.
            AlreadyExists: no id was given, and a snapshot with the returned id exists.
        """
        check_function("mutator", mutator)
        tenant = self._tenant(context)
        if snapshot_id:
            saved = await self._save(tenant, snapshot_id, mutator)
        else:
            saved = await self._create(tenant, mutator)
        return None if saved is None else saved.snapshot_id

    def on_snapshot_state_change(
        self, snapshot_id: str, callback: Callback[S], *, context: Context = None
    ) -> Callable[[], None]:
        """Call a function, which may be async, with a snapshot as it is now, and when it changes.

        Changes by any process count. The snapshot need not exist yet. Intermediate versions may be
        skipped, the last one never. Expiry is not a change. Exceptions of the function are logged.
        The returned function ends it, and may be called repeatedly, from any thread; so does
        closing the store. Call this in a task: the function is called in its event loop.
        """
        check_function("callback", callback)
        tenant = self._tenant(context)

        def call(loaded: Snapshot) -> object:
            return callback(self._read(tenant, loaded))

        return self._watch(tenant, snapshot_id, call).end


class _DeletedMeanwhile(Exception):
    """A snapshot was deleted before it could be changed."""


async def apply_mutator(
    mutator: Mutator[S], current: SessionSnapshot[S] | None
) -> SessionSnapshot[S] | None:
    answer = mutator(current)
    if inspect.isawaitable(answer):
        answer = await answer
    return None if answer is None else SessionSnapshot.of(answer)


def check_function(name: str, value: object) -> None:
    require(callable(value), f"the {name} must be a function", value)


def check_id(name: str, value: object) -> str:
    id = limits.check_id(name, value)
    if not id.strip():
        raise InvalidInput(f"{name} must not be blank")
    return id
