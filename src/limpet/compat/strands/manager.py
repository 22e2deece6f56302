"""Sessions of plain Python agents over any `SnapshotStorage`.

A manager restores an agent before its first turn and saves it after each turn::

    manager = SessionManager(store, session_id="chat-42")
    async with manager.invocation(agent) as turn:
        answer = await agent.ask("hello")
    if turn.error is not None: ...  # not saved; the answer is still valid
"""

import asyncio
import gc
import inspect
import logging
import os
import threading
import traceback
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast, get_args

from limpet import AsyncStore, Store
from limpet.api.integrations import ids, times
from limpet.compat.strands.documents import FileStorage
from limpet.compat.strands.records import (
    SCHEMA_VERSION,
    Snapshot,
    SnapshotLocation,
    check_identifier,
    is_uuid7,
)
from limpet.compat.strands.store import SessionError, SnapshotStorage, StoreStorage
from limpet.compat.wire import require, wire_time
from limpet.compat.writes import AsyncClosing, finished
from limpet.errors import AlreadyExists, Conflict, Corrupt, InvalidInput, Unsupported
from limpet.model import JSON
from limpet.opening import draw

_LATEST = "latest"  # given as the id of the latest, as the SDKs do; storages ignore it
_log = logging.getLogger("limpet.compat.strands")
_mint_lock = threading.Lock()
_last_minted = ""

T = TypeVar("T")
Data: TypeAlias = dict[str, JSON]
SaveLatestOn: TypeAlias = Literal["invocation", "message", "trigger"]
Trigger: TypeAlias = Callable[[Data], bool | Awaitable[bool]]
OnError: TypeAlias = Callable[[Exception], object]
AnyStorage: TypeAlias = SnapshotStorage | Store | AsyncStore | str | os.PathLike[str]


class Agent(Protocol):
    """What an agent must offer so that its state can be saved. Both methods may be async.

    `agent_id` has only lowercase letters, digits, hyphens and underscores.
    """

    @property
    def agent_id(self) -> str:
        """Its name in the session."""

    def take_snapshot(self) -> Data | Awaitable[Data]:
        """Return its whole state, as JSON."""

    def load_snapshot(self, data: Data) -> Awaitable[None] | None:
        """Replace its state."""


@dataclass(frozen=True)
class Restored:
    """The snapshot that an agent was restored from.

    `snapshot_id` is None for the latest. `cause` is set if the latest could not be read, and this
    is the newest good snapshot of history instead.
    """

    snapshot: Snapshot
    snapshot_id: str | None = None
    cause: Exception | None = None

    @property
    def fallen_back(self) -> bool:
        """Whether this is an older state, because the latest was damaged."""
        return self.cause is not None

    @property
    def status(self) -> str | None:
        """The status of the turn that saved it: `completed`, `failed`, or `running` (unfinished).

        None if it was not saved by a turn.
        """
        said = self.snapshot.app_data
        status = said.get("status") if isinstance(said, dict) else None
        return status if isinstance(status, str) else None


@dataclass(eq=False)
class _AgentEntry:
    agent: Callable[[], object]  # weak, so that a manager keeps no agent alive
    location: SnapshotLocation
    restored: bool = False
    unread: bool = False  # the latest could not be read, so it must not be overwritten
    busy: bool = False
    # One save at a time, so that an earlier state cannot replace a later one.
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def where(self) -> str:
        at = self.location
        return f"session_id=`{at.session_id}` agent_id=`{at.scope_id}`"


class Turn:
    """One invocation of an agent: what it was restored from, and whether it was saved.

    `app_data` is saved next to the state, with a `status` (`running`, `completed` or `failed`) and,
    if the turn failed, the class of its `error`.
    """

    def __init__(self, manager: "SessionManager", agent: Agent, entry: _AgentEntry) -> None:
        self.app_data: Data = {}
        self.restored: Restored | None = None
        """What the agent was restored from before this turn, None if it was not."""
        self.saved = False
        """Whether the state at the end of the turn became the latest."""
        self.snapshot_id: str | None = None
        """The id under which that state is in history, if the trigger fired."""
        self.error: Exception | None = None
        """The first error of saving. It is not raised, so that the answer is not lost."""
        self._manager = manager
        self._agent = agent
        self._entry = entry

    async def message_added(self) -> None:
        """Save the latest, if the manager saves it on every message (in a graph, on every node)."""
        if self._manager.save_latest_on == "message":
            async with self._errors(), self._entry.saving:
                await self._manager._put(self._entry, await self._take("running"))

    async def _end(self, failure: str | None) -> None:
        facts: Data = {"status": "completed"}
        if failure is not None:
            facts = {"status": "failed", "error": failure}
        fires: bool | None = None
        async with self._errors():
            fires = await self._manager._fires(self._agent)
        # The errors are reported without the lock: `on_error` may save.
        async with self._errors(), self._entry.saving, AsyncExitStack() as stack:
            snapshot = await self._take(**facts)
            # None: the trigger failed, and may have wanted it. Also if history is not saved.
            if fires is not False or self._manager.save_latest_on != "trigger":
                stack.push_async_callback(self._save_latest, snapshot)
            if fires:
                id = _mint()
                await self._manager._put(self._entry, snapshot, id)
                self.snapshot_id = id

    async def _save_latest(self, snapshot: Snapshot) -> None:
        await self._manager._put(self._entry, snapshot)
        self.saved = True

    async def _take(self, status: JSON, **facts: JSON) -> Snapshot:
        said = {**self.app_data, "status": status, **facts}
        return await _take(self._agent, self._manager.scope, said)

    @asynccontextmanager
    async def _errors(self) -> AsyncIterator[None]:
        try:
            yield
        except Exception as error:
            self.error = self.error or error
            await self._manager._report("a turn could not be saved", self._entry, error)


class SessionManager(AsyncClosing):
    """Keeps the agents of one session, each under its `agent_id`.

    `storage` is any `SnapshotStorage`, a store, or the path of a folder, which the manager then
    opens and closes itself. `save_latest_on` says when the latest is saved: after every
    `invocation`, also on every `message`, or only when the `snapshot_trigger` fires. The trigger
    gets the state, and may be async; when it fires the state is also saved in history. Errors of
    saving in a turn, and a damaged latest, are logged and given to `on_error`.

    If two processes continue the same session, the last save of the latest wins. Claim the scope of
    the agent to exclude that.

    Raises:
        InvalidInput: an argument is not valid.
    """

    def __init__(
        self,
        storage: AnyStorage,
        session_id: str = "default-session",
        *,
        scope: Literal["agent", "multiAgent"] = "agent",
        save_latest_on: SaveLatestOn = "invocation",
        snapshot_trigger: Trigger | None = None,
        on_error: OnError | None = None,
    ) -> None:
        if save_latest_on not in get_args(SaveLatestOn):
            known = ", ".join(get_args(SaveLatestOn))
            raise InvalidInput(
                f"there is no such strategy. save_latest_on=`{save_latest_on!a}` known=`{known}`"
            )
        for name, function in (("snapshot_trigger", snapshot_trigger), ("on_error", on_error)):
            if function is not None and not callable(function):
                raise InvalidInput(f"the {name} must be a function, or None")
        self.session_id = check_identifier("session_id", session_id)
        self.save_latest_on = save_latest_on
        self.scope = SnapshotLocation(session_id, scope, "any").check().scope
        self._trigger = snapshot_trigger
        self._on_error = on_error
        self._entries: dict[str, _AgentEntry] = {}
        self._own: FileStorage | None = None
        if isinstance(storage, str | os.PathLike):
            if isinstance(storage, str) and "://" in storage:
                raise InvalidInput(
                    "a string is the path of a folder: pass limpet.open(url) for a URL"
                )
            storage = self._own = FileStorage(storage)
        elif isinstance(storage, Store | AsyncStore):
            storage = StoreStorage(storage)
        require(isinstance(storage, SnapshotStorage), "expected a storage", storage)
        self._storage = storage

    async def close(self) -> None:
        """Close the folder that was given as a path; any other storage stays open."""
        if self._own is not None:
            await self._own.close()

    def invocation(self, agent: Agent) -> AbstractAsyncContextManager[Turn]:
        """Run one turn of an agent: `async with manager.invocation(agent) as turn:`.

        Before the first turn the agent is restored, unless `restore` did so. If its latest cannot
        be read, the block does not begin, the latest is not overwritten, and the next turn tries
        again. At the end the agent is saved, also if an exception leaves the block. Errors of
        saving are not raised: see `turn.error`.

        Raises:
            AlreadyExists: another agent of this manager has this id.
            Conflict: a turn of this agent is running.
            InvalidInput: the agent lacks a method, or its id is not valid.
            SessionError: the stored snapshot cannot be read.
        """
        return self._turn(agent, self._entry(agent))

    @asynccontextmanager
    async def _turn(self, agent: Agent, entry: _AgentEntry) -> AsyncIterator[Turn]:
        turn = Turn(self, agent, entry)
        with self._busy(entry):
            if not entry.restored:
                turn.restored = await self._restore(agent, entry, None)
            failure: str | None = None
            try:
                yield turn
            except BaseException as error:
                # Only its name: the error itself would keep this frame and the agent alive.
                failure = type(error).__name__
                raise
            finally:
                await turn._end(failure)

    async def restore(self, agent: Agent, snapshot_id: str | None = None) -> Restored | None:
        """Restore an agent from a snapshot of history, or without an id from the latest.

        Returns None if there is none. After a restore by id the agent continues from there: its
        next save is the latest, and history stays. Instead of a damaged latest the newest good
        snapshot of history is used; `fallen_back` is then true, and the damage is logged and given
        to `on_error`.

        Raises:
            Conflict: a turn of this agent is running.
            SessionError: the storage failed, or the snapshot is damaged and no other one is good.
        """
        if snapshot_id is not None:
            check_identifier("snapshot_id", snapshot_id)
        entry = self._entry(agent)
        with self._busy(entry):
            return await self._restore(agent, entry, snapshot_id)

    async def save(self, agent: Agent, *, app_data: Mapping[str, JSON] | None = None) -> str:
        """Save the state of an agent in history and as the latest, and return its id.

        Ids are UUIDs 7 that increase within a process.

        Raises:
            SessionError: the storage failed; or the latest could not be read before, so it is not
                overwritten: restore the agent first.
            InvalidInput: the state is not valid.
        """
        entry = self._writable(agent)
        async with entry.saving:
            snapshot = await _take(agent, self.scope, app_data or {})
            id = _mint()
            await self._put(entry, snapshot, id)
            try:
                await self._put(entry, snapshot)
            except Exception as error:
                fact = f"the snapshot is in history, but not the latest. snapshot_id=`{id}`"
                raise SessionError(fact) from (error.__cause__ or error)
            return id

    async def save_latest(
        self, agent: Agent, *, app_data: Mapping[str, JSON] | None = None
    ) -> None:
        """Save the state of an agent as the latest only. Raises as `save` does."""
        entry = self._writable(agent)
        async with entry.saving:
            await self._put(entry, await _take(agent, self.scope, app_data or {}))

    async def list_snapshot_ids(
        self, agent: Agent, limit: int | None = None, start_after: str | None = None
    ) -> list[str]:
        """Return ids of the agent's history, as `SnapshotStorage.list_snapshot_ids` does."""
        return await self._storage.list_snapshot_ids(self._location(agent), limit, start_after)

    async def delete_session(self) -> None:
        """Delete the session with all its agents' snapshots. Agents in memory may continue.

        Raises:
            Conflict: a turn is running, which would create the session again.
            SessionError: the storage failed.
        """
        for entry in self._entries.values():
            self._check_idle(entry)
        await self._storage.delete_session(self.session_id)
        for entry in self._entries.values():
            entry.unread = False

    def release(self, agent: Agent) -> None:
        """Forget an agent, so that another one can have its id.

        An agent that was garbage-collected needs no release.

        Raises:
            Conflict: a turn of it is running.
        """
        entry = self._entry(agent)
        self._check_idle(entry)
        del self._entries[entry.location.scope_id]

    def _location(self, agent: Agent) -> SnapshotLocation:
        for name in ("take_snapshot", "load_snapshot"):
            require(callable(getattr(agent, name, None)), f"an agent needs a method {name}", agent)
        require(hasattr(agent, "agent_id"), "an agent needs an agent_id", agent)
        name = check_identifier("agent_id", agent.agent_id)
        return SnapshotLocation(self.session_id, self.scope, name)

    def _entry(self, agent: Agent) -> _AgentEntry:
        location = self._location(agent)
        entry = self._entries.get(location.scope_id)
        if entry is not None and entry.agent() is agent:
            return entry
        if entry is not None and entry.agent() is not None:
            gc.collect()  # an unused agent may only be part of a reference cycle
        if entry is not None and entry.agent() is not None:
            fact = "another agent of this session has this id; release it first"
            raise AlreadyExists(f"{fact}. {entry.where}")
        self._entries = {k: each for k, each in self._entries.items() if each.agent() is not None}
        entry = _AgentEntry(_weak(agent), location)
        self._entries[location.scope_id] = entry
        return entry

    def _check_idle(self, entry: _AgentEntry) -> None:
        if entry.busy:
            raise Conflict(f"a turn or a restore of the agent is running. {entry.where}")

    @contextmanager
    def _busy(self, entry: _AgentEntry) -> Iterator[None]:
        self._check_idle(entry)
        entry.busy = True
        try:
            yield
        finally:
            entry.busy = False

    def _writable(self, agent: Agent) -> _AgentEntry:
        entry = self._entry(agent)
        if entry.unread:
            fact = "the latest could not be read, so it is not overwritten: restore the agent first"
            raise SessionError(f"{fact}. {entry.where}")
        return entry

    async def _restore(
        self, agent: Agent, entry: _AgentEntry, snapshot_id: str | None
    ) -> Restored | None:
        async with entry.saving:
            try:
                found = await _find(self._storage, entry.location, snapshot_id)
                if found is not None:
                    await _awaited(agent.load_snapshot(cast(Data, found.snapshot.data)))
            except BaseException:
                entry.unread = entry.unread or snapshot_id is None
                raise
            if found is not None or snapshot_id is None:
                entry.restored, entry.unread = True, False
        if found is not None and found.cause is not None:
            fact = "the latest is damaged: restored from history"
            await self._report(fact, entry, found.cause)
        return found

    async def _put(self, entry: _AgentEntry, snapshot: Snapshot, id: str | None = None) -> None:
        is_latest = id is None
        await finished(
            self._storage.save_snapshot(entry.location, id or _LATEST, is_latest, snapshot)
        )

    async def _fires(self, agent: Agent) -> bool:
        # The state is taken for the trigger only: the saved one is taken under the lock.
        if self._trigger is None:
            return False
        taken = await _take(agent, self.scope, {})
        return bool(await _awaited(self._trigger(cast(Data, taken.data))))

    async def _report(self, fact: str, entry: _AgentEntry, error: Exception) -> None:
        _log_error(fact, entry.location, error)
        if self._on_error is None:
            return
        try:
            await _awaited(self._on_error(error))
        except Exception as second:
            _log_error("on_error failed", entry.location, second)


def _weak(agent: Agent) -> Callable[[], object]:
    try:
        return weakref.ref(agent)
    except TypeError:  # it has slots, and none for weak references
        return lambda: agent


async def _awaited(value: Awaitable[T] | T) -> T:
    if inspect.isawaitable(value):
        awaited: T = await value
        return awaited
    return value


def _log_error(fact: str, location: SnapshotLocation, error: Exception) -> None:
    # As text: a log record that holds the error would keep the agent alive, and its id taken.
    _log.warning(
        "%s. session_id=`%s` scope_id=`%s`\n%s",
        fact,
        location.session_id,
        location.scope_id,
        "".join(traceback.format_exception(error)).rstrip(),
    )


# Restoring


async def _find(
    storage: SnapshotStorage, location: SnapshotLocation, snapshot_id: str | None
) -> Restored | None:
    """Return a snapshot; instead of a damaged latest the newest good one of history."""
    try:
        found = await _read(storage, location, snapshot_id)
        return None if found is None else Restored(found, snapshot_id)
    except Exception as error:
        if snapshot_id is not None or not _is_damage(error):
            raise
        cause = error
    ids = await storage.list_snapshot_ids(location)
    # Newest first; ids that have no time in them come last.
    for id in sorted(ids, key=lambda each: (is_uuid7(each), each), reverse=True):
        try:
            found = await _read(storage, location, id)
        except Exception as error:
            if not _is_damage(error):
                raise
            continue
        if found is not None:
            return Restored(found, id, cause)
    raise cause


async def _read(
    storage: SnapshotStorage, location: SnapshotLocation, snapshot_id: str | None
) -> Snapshot | None:
    found = await storage.load_snapshot(location, snapshot_id)
    if found is None:
        return None
    reason: Exception
    if found.schema_version != SCHEMA_VERSION:
        reason = Unsupported(f"unknown schema version. schema_version=`{found.schema_version!a}`")
    elif found.scope != location.scope or not isinstance(found.data, dict):
        reason = Corrupt(f"the snapshot is not that of an agent. scope=`{found.scope!a}`")
    else:
        return found
    raise SessionError(
        "the snapshot cannot be read. "
        f"session_id=`{location.session_id}` scope_id=`{location.scope_id}`"
    ) from reason


def _is_damage(error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, Corrupt):
        seen = seen.__cause__
    return seen is not None


# Saving


async def _take(agent: Agent, scope: str, app_data: Mapping[str, JSON]) -> Snapshot:
    data: Any = await _awaited(agent.take_snapshot())
    require(isinstance(data, dict), "the state of an agent must be a dict", data)
    moment = wire_time(times.from_us(draw().now))
    return Snapshot(scope, SCHEMA_VERSION, moment, data, dict(app_data))


def _mint() -> str:
    """Return a new id, greater than all that this process has minted before."""
    global _last_minted
    stamp = draw()
    with _mint_lock:
        _last_minted = ids.mint(stamp.now, stamp.bits, _last_minted)
        return _last_minted
