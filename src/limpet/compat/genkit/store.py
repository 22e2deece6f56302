"""`SessionStore` over any engine."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeAlias

from limpet.api.aio_scope import AsyncScope
from limpet.api.store import AsyncStore, Store
from limpet.api.verbs import Work, check_prefix
from limpet.compat.genkit import rules, stored, watching
from limpet.compat.genkit.places import (
    KIND,
    Context,
    PrefixOf,
    Tenant,
    check_prefix_of,
    tenant_of,
)
from limpet.compat.genkit.records import S, SessionSnapshot
from limpet.compat.wire import shown
from limpet.core import ids, limits
from limpet.errors import AlreadyExists, InvalidInput, NotFound, Unavailable
from limpet.model import ScopeKey, Snapshot, SnapshotInfo, SnapshotRef
from limpet.protocol import Query

_PAGE = limits.PAGE_ITEMS_MAX

Given: TypeAlias = SessionSnapshot[S] | Mapping[str, Any] | None
Mutator: TypeAlias = Callable[[SessionSnapshot[S] | None], Given[S] | Awaitable[Given[S]]]
Callback: TypeAlias = Callable[[SessionSnapshot[S]], object]


class SessionStore(Generic[S]):
    """The snapshots of sessions, over an opened store in either face. Close the store yourself.

    `latest` says which snapshot of a session is its latest: the `leaf` that no other follows, or
    of several the one made last; or the `newest` one, by `created_at` alone. With
    `reject_branching_sessions` a session of several live branches has none, and is refused.

    `prefix_of` is given the `context` of a call and returns the name of the tenant, or None for no
    tenant. Without it a context is that name, or a mapping whose `auth.uid` is. What a tenant has
    is not seen by others, nor without a context.
    """

    def __init__(
        self,
        store: Store | AsyncStore,
        *,
        reject_branching_sessions: bool = False,
        latest: rules.Latest = "leaf",
        prefix_of: PrefixOf | None = None,
    ) -> None:
        if not isinstance(store, Store | AsyncStore):
            raise InvalidInput(f"a session store needs a store. type=`{type(store).__name__}`")
        if latest not in rules.POLICIES:
            raise InvalidInput(f"latest must be leaf or newest. latest=`{shown(latest)}`")
        self._store = store.aio
        self._rejects = reject_branching_sessions
        self._policy: rules.Latest = latest
        self._prefix_of = check_prefix_of(prefix_of)

    async def get_snapshot(
        self,
        *,
        snapshot_id: str | None = None,
        session_id: str | None = None,
        context: Context = None,
    ) -> SessionSnapshot[S] | None:
        """Return a snapshot by its id, or the latest of a session; None if there is none.

        Exactly one id must be given; an empty one is none. A draft, which others may have saved, is
        found as the latest of its session, but not by its id. A pending snapshot whose heartbeat is
        older than a minute is `expired`. What is returned is the caller's own.

        Raises:
            InvalidInput: both ids are given, or neither, or one cannot be an id.
            Conflict: the session branches and that is refused, or its parents form a circle.
            Corrupt: the state fails its check. What fails it otherwise is not found, but is not
                overwritten either.
        """
        return await self._get(AsyncScope.load, snapshot_id, session_id, context)

    async def get_metadata(
        self,
        *,
        snapshot_id: str | None = None,
        session_id: str | None = None,
        context: Context = None,
    ) -> SessionSnapshot[S] | None:
        """Return what `get_snapshot` would, without reading the state: that is ABSENT."""
        return await self._get(AsyncScope.info, snapshot_id, session_id, context)

    async def save_snapshot(
        self, snapshot_id: str | None, mutator: Mutator[S], *, context: Context = None
    ) -> str | None:
        """Let a function decide what a snapshot becomes, and store that, as one step. Durable.

        The function gets what is stored, or None if there is nothing, or no id was given. It
        returns a snapshot or its wire dict, which is stored under the id that was given, else its
        own, else a new one; or None, and then nothing is written; what it raises is raised, and
        nothing is written. It may be async. No lock is held meanwhile: if somebody else was faster
        it is called again, with what they stored, so nothing of what it does may count twice.

        See `rules.next_row` for what of it cannot change, and what need not be said. Return the
        id, None if nothing was written. Only if one id is new in two sessions at the same moment,
        both have it.

        Raises:
            InvalidInput: it returned what is no snapshot, or what this one may not become; or
                something in it is not JSON.
            Conflict: the snapshot has ended, and would get another status.
            AlreadyExists: no id was given, and there is one with the id that it returned.
        """
        if not callable(mutator):
            raise InvalidInput(f"a mutator is a function. type=`{type(mutator).__name__}`")
        tenant = self._tenant(context)
        if not snapshot_id:
            return await self._create(tenant, mutator)
        id = _check_id("snapshot_id", snapshot_id)
        deadline = self._monotonic() + limits.CONTENTION_WAIT_S_MAX
        while self._monotonic() < deadline:
            found = await self._locate(tenant, id)
            where = None if found is None else found.scope
            if where is None:
                after = await _asked(mutator, None)
                if after is None:
                    return None
                try:
                    return await self._insert(tenant, id, after)
                except AlreadyExists:
                    # Somebody was faster; or it is no kept one, which is not found by its id.
                    where = tenant.scope(rules.session_of(after) or "")
            try:
                return await self._update(tenant, where, id, mutator)
            except _Gone:
                continue
        raise Unavailable(f"others kept getting in first. snapshot_id=`{id}`")

    def on_snapshot_state_change(
        self, snapshot_id: str, callback: Callback[S], *, context: Context = None
    ) -> Callable[[], None]:
        """Call a function, which may be async, with a snapshot as it is now, and when it changes.

        In whatever process it does. The snapshot need not exist yet. Versions in between may be
        left out, the last one never. That it expires is no change. What the function raises is
        logged, and it goes on. It ends when the store is closed, or by the function returned, which
        may be called again, from anywhere. Call this in a task: it runs in the loop of that.
        """
        if not callable(callback):
            raise InvalidInput(f"a callback is a function. type=`{type(callback).__name__}`")
        if self._store.driver.opened.closed:
            raise InvalidInput("the store is closed")
        tenant = self._tenant(context)
        id = _check_id("snapshot_id", snapshot_id)
        return watching.subscribe(
            self._store,
            id,
            prefix=tenant.prefix,
            locate=lambda: self._locate(tenant, id),
            call=lambda loaded: callback(self._read(tenant, loaded)),
        )

    def scope(self, session_id: str, *, context: Context = None) -> AsyncScope:
        """Return where a session is: to list its history, branch, watch, prune or delete it."""
        tenant = self._tenant(context)
        return self._store.scope(*tenant.scope(_check_id("session_id", session_id)))

    def _tenant(self, context: Context) -> Tenant:
        tenant = tenant_of(context, self._prefix_of)
        check_prefix(tenant.prefix, "the tenant")
        return tenant

    def _monotonic(self) -> float:
        return self._store.driver.tools.clock.monotonic()

    # Reading

    async def _get(
        self,
        read: Callable[[AsyncScope, str], Awaitable[SnapshotInfo | None]],
        snapshot_id: str | None,
        session_id: str | None,
        context: Context,
    ) -> SessionSnapshot[S] | None:
        if bool(snapshot_id) == bool(session_id):
            raise InvalidInput("give either a snapshot_id or a session_id")
        tenant = self._tenant(context)
        while True:
            if snapshot_id:
                there = await self._locate(tenant, _check_id("snapshot_id", snapshot_id))
            else:
                there = await self._latest(tenant, _check_id("session_id", session_id))
            if there is None:
                return None
            found = await read(self._store.scope(*there.scope), there.id)
            if found is not None:  # else it was deleted since: another may be the latest now
                return self._read(tenant, found)

    async def _locate(self, tenant: Tenant, snapshot_id: str) -> SnapshotRef | None:
        """Find a snapshot of the tenant: one in the scope `main`, else the last saved one.

        Not by `find`, which tells only of the last saved one, and that may be somebody else's.
        """
        elsewhere: SnapshotRef | None = None
        place: int | None = None
        while True:
            query = Query(prefix=tenant.prefix, id=snapshot_id, after=place)
            page = await self._store.driver.run(_listing(query))
            for each in page:
                session_id = tenant.session_of(each.session_id)
                if session_id is None or each.scope.kind != KIND:
                    continue
                there = SnapshotRef(each.scope, each.id)
                if each.scope == tenant.scope(session_id):
                    return there
                elsewhere = elsewhere or there
            if len(page) < _PAGE:
                return elsewhere
            place = ids.seq_of(page[-1].revision)

    async def _latest(self, tenant: Tenant, session_id: str) -> SnapshotRef | None:
        scope = self._store.scope(*tenant.scope(session_id))
        head = await scope.info()
        if head is None:
            return None
        by_leaf = self._policy == "leaf"
        infos = scope.leaves() if by_leaf else scope.history()
        rows = [stored.sketch_of(info, session_id) async for info in infos]
        if not head.kept:  # a draft, which others have saved
            rows = [row for row in rows if not by_leaf or row.snapshot_id != head.parent_id]
            rows.append(stored.sketch_of(head, session_id))
        if not rows:  # none is a leaf, so they go round in a circle
            rows = [stored.sketch_of(info, session_id) async for info in scope.history()]
        chosen = rules.latest(rows, session_id, policy=self._policy, reject_branching=self._rejects)
        return None if chosen is None else SnapshotRef(scope.key, chosen.snapshot_id or "")

    def _read(self, tenant: Tenant, info: SnapshotInfo) -> SessionSnapshot[S]:
        row = stored.row_of(info, tenant.session_of(info.session_id) or info.session_id)
        return rules.as_read(row, self._store.driver.tools.draw().now)

    # Writing

    async def _create(self, tenant: Tenant, mutator: Mutator[S]) -> str | None:
        """Store a snapshot that must be new."""
        after = await _asked(mutator, None)
        if after is None:
            return None
        id = after.snapshot_id or None
        if id is not None and await self._locate(tenant, _check_id("snapshot_id", id)):
            raise AlreadyExists(f"the snapshot is there already. snapshot_id=`{id}`")
        return await self._insert(tenant, id, after)

    async def _insert(self, tenant: Tenant, id: str | None, after: SessionSnapshot[S]) -> str:
        drawn = self._store.driver.tools.draw()
        row = rules.next_row(id or "", None, after, drawn.now)
        scope = self._store.scope(*tenant.scope(row.session_id or ""))
        saved = await scope.save(id=id, **stored.facts_of(row, born=drawn.nonce))
        return saved.id

    async def _update(
        self, tenant: Tenant, where: ScopeKey, id: str, mutator: Mutator[S]
    ) -> str | None:
        async def change(found: Snapshot) -> Snapshot | None:
            before = stored.row_of(found, tenant.session_of(found.session_id) or found.session_id)
            after = await _asked(mutator, before)
            if after is None:
                return None
            now = self._store.driver.tools.draw().now
            return stored.replaced(found, rules.next_row(id, before, after, now))

        scope, asked = self._store.scope(*where), _Asked(change)
        try:
            saved = await scope.update(id, asked)
        except NotFound as gone:
            if asked.error is gone:
                raise  # the mutator's own
            raise _Gone from None
        return None if saved is None else saved.id


class _Gone(Exception):
    """A snapshot was deleted before it could be changed."""


class _Asked:
    """A function that remembers what it raised."""

    def __init__(self, function: Callable[[Snapshot], Awaitable[Snapshot | None]]) -> None:
        self._function = function
        self.error: Exception | None = None

    async def __call__(self, found: Snapshot) -> Snapshot | None:
        try:
            return await self._function(found)
        except Exception as error:
            self.error = error
            raise


async def _asked(
    mutator: Mutator[S], current: SessionSnapshot[S] | None
) -> SessionSnapshot[S] | None:
    answer = mutator(current)
    if inspect.isawaitable(answer):
        answer = await answer
    return None if answer is None else SessionSnapshot.of(answer)


def _listing(query: Query) -> Work[list[SnapshotInfo]]:
    return lambda backend: backend.list_snapshots(query, limit=_PAGE)


def _check_id(name: str, value: object) -> str:
    id = limits.check_id(name, value)
    if not id.strip():
        raise InvalidInput(f"{name} must not be blank")
    return id
