"""The session service."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from google.adk.cli.service_registry import get_service_registry
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from pydantic import ValidationError
from pydantic_core import from_json

from limpet import AsyncScope, AsyncStore, Scope, Store
from limpet.api.integrations import Recent, codec, limits, new_id
from limpet.compat.adk import records
from limpet.compat.adk.records import Address, Document, Tiers
from limpet.compat.logs import KIND, check_own, foreign, is_of
from limpet.compat.wire import check_store
from limpet.compat.writes import contended
from limpet.errors import AlreadyExists, Conflict, Corrupt
from limpet.model import JSON, ScopeKey, SnapshotInfo
from limpet.opening import open as open_store

_LISTED_BYTES_MAX = 16 * limits.MIB  # states that the next listing need not read again
_PREFIX = "limpet+"
_SCHEMES = ("sqlite", "postgresql", "postgres", "file", "s3", "gs", "az", "http", "https", "memory")
_SHARED = "shared"
"""In the metadata of a commit: shared state must change after it. The note says that it did."""

T = TypeVar("T")
S = TypeVar("S")


class _Listed(NamedTuple):
    """What a listing shows of a session, at a revision; the state is encoded."""

    revision: str
    updated: float
    state: bytes

    def cost(self) -> int:
        return len(self.state)


class LimpetSessionService(BaseSessionService):  # type: ignore[misc,unused-ignore]
    """Sessions in an open store, sync or async. Safe for tasks, threads and processes.

    An event is one commit, which costs what the event costs. It is refused if the session has
    changed since it was loaded; then nothing is stored, and `app:` and `user:` state is as before.

    Changes of `app:` and `user:` state are commits of their own, right after that of the event and
    before `append_event` returns. If the process dies in between, the next `get_session` of this
    session makes them. Each is made once.

    Example:
        service = LimpetSessionService(store)
        session = await service.create_session(app_name="trips", user_id="alice")
        await service.append_event(session, event)
    """

    def __init__(self, store: Store | AsyncStore, *, owns_store: bool = False) -> None:
        """`owns_store`: `close` closes the store too."""
        self._store = check_store(store).aio
        self._owns_store = owns_store
        self._listed: Recent[ScopeKey, _Listed] = Recent(_LISTED_BYTES_MAX, _Listed.cost)
        # By the ids of an event loop and of a Session object, while one of its events is appended.
        self._appending: WeakValueDictionary[tuple[int, int], asyncio.Lock] = WeakValueDictionary()

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session. Without an id, or with a blank one, it gets a UUID.

        Raises:
            AlreadyExistsError: the user has a session with this id.
        """
        session_id = (session_id or "").strip() or new_id(self._store.driver.tools)
        address = Address(app_name, user_id, session_id)
        initial = _json_of(EventActions(state_delta=state or {}))["state_delta"]
        change = Tiers.of(initial)
        scope = self._scope(address.session)
        document = records.new_document(initial)
        try:
            head = await scope.save(document, metadata=self._metadata(change), expect=None)
        except Conflict as cause:
            check_own(await scope.info(), records.MARK)
            raise _exists(session_id) from cause
        await self._share(address, head, change)
        merged = await self._merged(address, change.session)
        return _session(address, head.revision, merged, [], records.created(head))

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session with its events in the order in which they were appended, or None.

        Raises:
            limpet.AlreadyExists: a conversation of another framework is at this address.
            Corrupt: another program, or a newer version of ADK, saved something else there.
        """
        address = Address(app_name, user_id, session_id.strip())
        if not address.session_id:
            return None
        document = await self._read(address.session)
        if document is None:
            return None
        await self._finish(address, document)
        state = await self._merged(address, document.session_state())
        config = config or GetSessionConfig()
        wanted = document.recent(config.num_recent_events, config.after_timestamp)
        try:
            events = [Event.model_validate(each) for each in wanted]
        except ValidationError:
            # Without the cause, whose text has parts of the session.
            raise foreign(document.head, records.MARK) from None
        return _session(address, document.head.revision, state, events, document.updated)

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Return the sessions of a user, or of all users, without events; last changed last.

        A session that has changed since this service listed it last is read as a whole.
        """
        names = (app_name,) if user_id is None else (app_name, user_id)
        found = self._store.scopes(kind=KIND, prefix=records.prefix_of(*names))
        keys = [
            (address, each)
            async for each in found
            if is_of(each, records.MARK) and (address := Address.of(each.key))
        ]
        listed = await _for_each(self._list, [each.head for _, each in keys])
        users = list(dict.fromkeys(address.user_id for address, _ in keys))
        keys_of_users = [records.user_key(app_name, user_id) for user_id in users]
        states = await _for_each(self._shared, keys_of_users)
        user_states = dict(zip(users, states, strict=True))
        app = await self._shared(records.app_key(app_name))
        sessions = []
        for (address, _), each in zip(keys, listed, strict=True):
            if each is not None:
                own: Any = codec.decode(each.state)
                state = Tiers(app, user_states[address.user_id], own).merged()
                sessions.append(_session(address, each.revision, state, [], each.updated))
        return ListSessionsResponse(sessions=records.oldest_first(sessions))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with its history, if there is one. `user:` and `app:` state stays."""
        address = Address(app_name, user_id, session_id.strip())
        if address.session_id:
            scope = self._scope(address.session)
            with suppress(Corrupt):  # what is damaged can be deleted
                check_own(await scope.info(), records.MARK)
            await scope.delete()

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state that all sessions of a user share, without the prefix `user:`."""
        return await self._shared(records.user_key(app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to the stored session and to `session`.

        A partial event is not stored. An event that is in `session` already is not appended
        again, so that a caller who lost the answer may load the session and repeat.

        Raises:
            StaleSessionError: the session has changed since it was loaded. Nothing was stored.
            SessionNotFoundError: there is no such session.
        """
        if event.partial:
            return event
        # Cancelled, it goes on: the runner appends to the same session object that it was aborted.
        return await asyncio.shield(self._append(session, event))

    async def _append(self, session: Session, event: Event) -> Event:
        # Branches of one invocation share a session object: each continues from the last event.
        here = id(asyncio.get_running_loop()), id(session)
        async with self._appending.setdefault(here, asyncio.Lock()):
            self._apply_temp_state(session, event)
            event = self._trim_temp_delta_state(event)
            item = _json_of(event)
            if any(each.id == event.id and _json_of(each) == item for each in session.events):
                return event
            address = Address(session.app_name, session.user_id, session.id)
            scope = self._scope(address.session)
            change = Tiers.of(records.delta_of(item))
            metadata = self._metadata(change)
            expect = session._storage_update_marker or await self._revision_of(session, scope)
            try:
                # This is the commit: what follows can be repeated by anyone who loads the session.
                head = await scope.append("events", [item], metadata=metadata, expect=expect)
            except Conflict as cause:
                if await scope.info() is None:
                    raise _not_found(session.id) from cause
                raise _stale(session.id) from cause
            await self._share(address, head, change)
            session._storage_update_marker = head.revision
            session.last_update_time = event.timestamp
            return await super().append_event(session, event)  # what is left: the object itself

    async def fork_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        at: str | None = None,
        new_session_id: str | None = None,
    ) -> Session:
        """Return a new session that begins as another one was at an earlier moment.

        Its state is that of the moment; `user:` and `app:` state is not changed. The source is
        not changed.

        Args:
            at: the id of an event, the last one that the new session has; or of an invocation,
                whose events it has. By default it has all events.
            new_session_id: by default a UUID.

        Raises:
            SessionNotFoundError: there is no such session.
            limpet.NotFound: it has no event and no invocation `at`.
            AlreadyExistsError: the user has a session with the new id.
        """
        source = Address(app_name, user_id, session_id.strip())
        target_id = (new_session_id or "").strip() or new_id(self._store.driver.tools)
        target = source._replace(session_id=target_id)
        document = await self._read(source.session) if source.session_id else None
        if document is None:
            raise _not_found(session_id)
        await self._finish(source, document)
        count = len(document.events) if at is None else document.count_until(at)
        scope = self._scope(source.session)
        origin = await self._snapshot_with(scope, document, count)
        # That snapshot may be gone, or be one of the session that this one was forked from.
        at_head = origin is None and count < len(document.events)
        try:
            await scope.fork(
                origin or document.head.id,
                to=target.session.session_id,
                scope_id=target.session.scope_id,
                patch=partial(records.first_events, count) if at_head else None,
            )
        except AlreadyExists as cause:
            raise _exists(target_id) from cause
        forked = await self.get_session(app_name=app_name, user_id=user_id, session_id=target_id)
        if forked is None:
            raise _not_found(target_id)  # deleted meanwhile
        return forked

    async def close(self) -> None:
        """Close the store if this service opened it, as with a URI of `adk web`."""
        if self._owns_store:
            await self._store.close()

    # Reading

    def _scope(self, key: ScopeKey) -> AsyncScope[Any]:
        return self._store.scope(*key)

    async def _read(self, key: ScopeKey) -> Document | None:
        found = await self._scope(key).load()
        return None if found is None else Document(found)

    async def _shared(self, key: ScopeKey) -> dict[str, JSON]:
        found = await self._scope(key).load()
        return {} if found is None else found.state

    async def _merged(self, address: Address, own: dict[str, JSON]) -> dict[str, JSON]:
        keys = records.app_key(address.app_name), records.user_key(*address[:2])
        app, user = await asyncio.gather(*map(self._shared, keys))
        return Tiers(app, user, own).merged()

    async def _list(self, head: SnapshotInfo | None) -> "_Listed | None":
        known = None if head is None else self._listed.get(head.scope)
        if head is None or (known is not None and head.revision == known.revision):
            return known
        try:
            document = await self._read(head.scope)
        except Corrupt:
            return None
        if document is None:
            return None
        state = codec.encode(document.session_state())
        listed = _Listed(document.head.revision, document.updated, state)
        self._listed.put(head.scope, listed)
        return listed

    async def _revision_of(self, session: Session, scope: AsyncScope[Any]) -> str:
        """Return the revision of a session object that has lost it, as a copy from JSON has.

        It is current if its last event is the last one that is stored.
        """
        document = await self._read(scope.key)
        if document is None:
            raise _not_found(session.id)
        last = session.events[-1].id if session.events else None
        if last != (document.events[-1]["id"] if document.events else None):
            raise _stale(session.id)
        return document.head.revision

    async def _snapshot_with(
        self, scope: AsyncScope[Any], document: Document, count: int
    ) -> str | None:
        """Return the snapshot that was saved with the last of so many events, None if not found."""
        later = len(document.events) - count
        infos = [each async for each in scope.history(limit=later + 1)]
        found = await scope.load(infos[-1])
        return found.id if found and found.state["events"] == document.events[:count] else None

    # State that sessions share

    def _metadata(self, change: Tiers) -> dict[str, JSON]:
        """Return the metadata of a commit: an id of it, if shared state must change after it."""
        shared = {_SHARED: self._store.driver.tools.draw().nonce} if change.is_shared else {}
        return {records.MARK: True, **shared}

    async def _finish(self, address: Address, document: Document) -> None:
        """Make the changes of the last event, if its process died before it had made them.

        Those before it are made: whoever appends or forks has loaded the session.
        """
        head, scope = document.head, self._scope(address.session)
        if _SHARED not in head.metadata or head.forked_from is not None:
            return
        note = await scope.note(_SHARED)
        if note is not None and note.value == head.metadata[_SHARED]:
            return
        before = None if head.parent_id is None else await scope.info(head.parent_id)
        # A snapshot that was restored has the metadata of its parent.
        if before is None or before.metadata.get(_SHARED) != head.metadata[_SHARED]:
            await self._share(address, head, document.last_change)

    async def _share(self, address: Address, head: SnapshotInfo, change: Tiers) -> None:
        """Change the shared state as a commit says; once, however often it is called."""
        if not change.is_shared:
            return
        id = str(head.metadata[_SHARED])
        if change.app:
            await self._merge(records.app_key(address.app_name), id, change.app)
        if change.user:
            await self._merge(records.user_key(*address[:2]), id, change.user)
        # The snapshots of that id may be pruned, so they are no proof for ever.
        await self._scope(address.session).set_note(_SHARED, id)

    async def _merge(self, key: ScopeKey, id: str, values: dict[str, JSON]) -> None:
        scope: Scope[Any] = self._store.sync.scope(*key)

        def merge() -> None:
            found = scope.load()
            state = {**({} if found is None else found.state), **values}
            with suppress(AlreadyExists):  # it was made before, and others after it
                scope.save(state, id=id, expect=None if found is None else found.revision)

        await self._store.driver.offload(contended, scope.driver, merge)


def _session(
    address: Address, revision: str, state: dict[str, JSON], events: list[Event], updated: float
) -> Session:
    session = Session(
        app_name=address.app_name,
        user_id=address.user_id,
        id=address.session_id,
        state=state,
        events=events,
        last_update_time=updated,
    )
    session._storage_update_marker = revision
    return session


def _json_of(record: Event | EventActions) -> Any:
    """Return a record as JSON; what JSON cannot express becomes null or text, as in ADK's own."""
    return from_json(record.model_dump_json(exclude_none=True))


async def _for_each(fn: Callable[[S], Awaitable[T]], values: Sequence[S]) -> list[T]:
    """Call a function for each value, for several at once: they may load whole states."""
    found: list[T] = []
    for first in range(0, len(values), limits.PAGE_STATES_MAX):
        some = values[first : first + limits.PAGE_STATES_MAX]
        found += await asyncio.gather(*map(fn, some))
    return found


def _exists(session_id: str) -> AlreadyExistsError:
    return AlreadyExistsError(f"the user has a session with this id. session=`{session_id}`")


def _not_found(session_id: str) -> SessionNotFoundError:
    return SessionNotFoundError(f"there is no such session. session=`{session_id}`")


def _stale(session_id: str) -> StaleSessionError:
    return StaleSessionError(
        f"the session was modified in storage since it was loaded: load it again. "
        f"session=`{session_id}`"
    )


# For `adk web --session_service_uri=limpet+sqlite:///agents.db`


def open_session_service(uri: str, **options: Any) -> LimpetSessionService:
    """Return a service on the store of a URI: that of `limpet.open`, after `limpet+`.

    `close` closes the store. This is also the `class` for a `services.yaml` of ADK.

    Args:
        uri: `limpet+sqlite:///agents.db`, `limpet+postgresql://…`, `limpet+s3://…`, …
        options: what ADK passes to every service; not used.
    """
    return LimpetSessionService(open_store(uri.removeprefix(_PREFIX)), owns_store=True)


def register() -> None:
    """Register `limpet+sqlite`, `limpet+postgresql` and so on with ADK. May be repeated."""
    registry = get_service_registry()
    for scheme in _SCHEMES:
        registry.register_session_service(_PREFIX + scheme, open_session_service)
