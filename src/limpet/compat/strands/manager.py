"""Sessions of plain Python agents over any `SnapshotStorage`.

A manager restores an agent before its first turn and saves it behind every one::

    manager = SessionManager(store, session_id="chat-42")
    async with manager.invocation(agent) as turn:
        answer = await agent.ask("hello")
    if turn.error is not None: ...  # the answer is there all the same
"""

import asyncio
import gc
import inspect
import logging
import os
import threading
import traceback
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar, cast, get_args

from limpet.api.store import AsyncStore, Store
from limpet.compat.strands.places import FileStorage
from limpet.compat.strands.records import (
    SCHEMA_VERSION,
    Snapshot,
    SnapshotLocation,
    check_identifier,
    is_uuid7,
)
from limpet.compat.strands.storage import SessionError, SnapshotStorage, StoreStorage
from limpet.compat.wire import wire_time
from limpet.core import ids, times
from limpet.core.limits import PAGE_ITEMS_MAX
from limpet.errors import AlreadyExists, Conflict, Corrupt, InvalidInput, Unsupported
from limpet.model import JSON
from limpet.opening import draw

# What a `SessionManager` knows of its agents, and what it tells of their snapshots.

T = TypeVar("T")
Data: TypeAlias = dict[str, JSON]


class Agent(Protocol):
    """What an agent offers, so that its state can be kept. Both methods may be async.

    `agent_id` has only lowercase letters, digits, hyphens and underscores.
    """

    @property
    def agent_id(self) -> str:
        """The name of its line in the session."""
        ...

    def take_snapshot(self) -> Data | Awaitable[Data]:
        """Return all of its state, as JSON."""
        ...

    def load_snapshot(self, data: Data) -> Awaitable[None] | None:
        """Become what a state says."""
        ...


@dataclass(frozen=True)
class Restored:
    """What an agent was restored from.

    `snapshot_id` is None for the latest. `cause` is why the latest could not be read, if the newest
    good snapshot of history stands in for it.
    """

    snapshot: Snapshot
    snapshot_id: str | None = None
    cause: Exception | None = None

    @property
    def fallen_back(self) -> bool:
        """Whether the latest was damaged, so that this is an older state."""
        return self.cause is not None

    @property
    def status(self) -> str | None:
        """How the turn stood that saved it: `completed`, `failed`, or `running` if it never ended.

        None if it was not saved by a turn.
        """
        said = self.snapshot.app_data
        status = said.get("status") if isinstance(said, dict) else None
        return status if isinstance(status, str) else None


@dataclass(eq=False)
class Line:
    """The line of one agent."""

    agent: Callable[[], object]
    place: SnapshotLocation
    restored: bool = False
    unread: bool = False  # the latest could not be read, so it must not be overwritten
    busy: bool = False
    # One save at a time, so that no earlier state takes the place of a later one.
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)


class Lines:
    """The lines of the agents that a manager has met; none of the agents is kept alive by it."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}

    def __iter__(self) -> Iterator[Line]:
        return iter(self._lines.values())

    def of(self, agent: Agent, place: SnapshotLocation) -> Line:
        """Return the line of an agent, and refuse a second agent of the same name."""
        line = self._lines.get(place.scope_id)
        if line is not None and line.agent() is agent:
            return line
        if line is not None and line.agent() is not None:
            gc.collect()  # one that nobody uses any more may only be part of a cycle
        if line is not None and line.agent() is not None:
            raise AlreadyExists(
                "another agent of this session has this id; release it first. "
                f"session_id=`{place.session_id}` agent_id=`{place.scope_id}`"
            )
        self._lines = {name: each for name, each in self._lines.items() if each.agent() is not None}
        self._lines[place.scope_id] = line = Line(_held(agent), place)
        return line

    def drop(self, line: Line) -> None:
        """Forget an agent."""
        del self._lines[line.place.scope_id]


def _held(agent: Agent) -> Callable[[], object]:
    try:
        return weakref.ref(agent)
    except TypeError:  # it has slots, and none for this
        return lambda: agent


def check_agent(agent: Agent) -> Agent:
    """Return an agent that has all that it needs, or raise InvalidInput."""
    for name in ("take_snapshot", "load_snapshot"):
        if not callable(getattr(agent, name, None)):
            raise InvalidInput(f"an agent needs a method {name}. type=`{type(agent).__name__}`")
    if not hasattr(agent, "agent_id"):
        raise InvalidInput(f"an agent needs an agent_id. type=`{type(agent).__name__}`")
    return agent


async def settled(value: Awaitable[T] | T) -> T:
    """Return a value that may have to be awaited."""
    if inspect.isawaitable(value):
        awaited: T = await value
        return awaited
    return value


# How a `SessionManager` finds what an agent is restored from.


async def find(
    storage: SnapshotStorage, place: SnapshotLocation, snapshot_id: str | None
) -> Restored | None:
    """Return a snapshot, or for a latest that is damaged the newest good one of history."""
    try:
        found = await _read(storage, place, snapshot_id)
        return None if found is None else Restored(found, snapshot_id)
    except Exception as error:
        if snapshot_id is not None or not is_damage(error):
            raise
        cause = error
    async for id in newest_first(storage, place):
        try:
            found = await _read(storage, place, id)
        except Exception as error:
            if not is_damage(error):
                raise
            continue
        if found is not None:
            return Restored(found, id, cause)
    raise cause


async def _read(
    storage: SnapshotStorage, place: SnapshotLocation, snapshot_id: str | None
) -> Snapshot | None:
    found = await storage.load_snapshot(place, snapshot_id)
    if found is None:
        return None
    reason: Exception
    if found.schema_version != SCHEMA_VERSION:
        reason = Unsupported(f"the schema is not known. schema_version=`{found.schema_version!a}`")
    elif found.scope != place.scope or not isinstance(found.data, dict):
        reason = Corrupt(f"this is no state of its kind. scope=`{found.scope!a}`")
    else:
        return found
    raise SessionError(
        f"the snapshot cannot be read. session_id=`{place.session_id}` scope_id=`{place.scope_id}`"
    ) from reason


def is_damage(error: BaseException) -> bool:
    """Tell whether an error says that what is stored is damaged."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, Corrupt):
        seen = seen.__cause__
    return seen is not None


async def newest_first(storage: SnapshotStorage, place: SnapshotLocation) -> AsyncIterator[str]:
    """Walk the ids in history from the newest, those whose age is not known last.

    A storage lists them the other way round, so they are listed anew for every page.
    """
    for timed in (True, False):
        page, before = deque[str](maxlen=0), None
        while before is None or len(page) == PAGE_ITEMS_MAX:
            page = await _last_page(storage, place, before, timed=timed)
            for id in reversed(page):
                yield id
            before = page[0] if page else ""


async def _last_page(
    storage: SnapshotStorage, place: SnapshotLocation, before: str | None, *, timed: bool
) -> deque[str]:
    """Return the last ids below another, of those that are UUIDs 7 or of those that are not."""
    last: deque[str] = deque(maxlen=PAGE_ITEMS_MAX)
    after: str | None = None
    while True:
        page = await storage.list_snapshot_ids(place, PAGE_ITEMS_MAX, after)
        below = [id for id in page if before is None or id < before]
        last.extend(id for id in below if is_uuid7(id) is timed)
        if len(below) < PAGE_ITEMS_MAX:
            return last
        after = page[-1]


# How a `SessionManager` takes the state of an agent and hands it to a storage.

_LATEST = "latest"  # what the tools give as the id of the latest; nobody looks at it
_log = logging.getLogger("limpet.compat.strands")


def log(fact: str, place: SnapshotLocation, error: Exception) -> None:
    """Say what went wrong and is not raised.

    As text: a record that holds the error would hold on to the agent, whose id is then taken.
    """
    _log.warning(
        "%s. session_id=`%s` scope_id=`%s`\n%s",
        fact,
        place.session_id,
        place.scope_id,
        "".join(traceback.format_exception(error)).rstrip(),
    )


async def take(agent: Agent, scope: str, app_data: Mapping[str, JSON]) -> Snapshot:
    """Return the state of an agent as a snapshot of this moment."""
    data: Any = await settled(agent.take_snapshot())
    if not isinstance(data, dict):
        raise InvalidInput(f"the state of an agent is a dict. type=`{type(data).__name__}`")
    moment = wire_time(times.from_us(draw().now))
    return Snapshot(scope, SCHEMA_VERSION, moment, data, dict(app_data))


async def put(
    storage: SnapshotStorage, place: SnapshotLocation, snapshot: Snapshot, id: str | None = None
) -> None:
    """Put a snapshot into history, or without an id make it the latest."""
    await storage.save_snapshot(place, _LATEST if id is None else id, id is None, snapshot)


async def finished(save: Coroutine[Any, Any, None]) -> None:
    """Wait for a save to its end, also when that is cancelled.

    What has begun goes on in any case; were the next one not to wait for it, it could be overtaken.
    """
    task = asyncio.ensure_future(save)
    cancelled = False
    while not task.done():
        try:
            # Not `shield`: what it raises would live on in the loop, and the agent with it.
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    del task
    try:
        if cancelled:
            raise asyncio.CancelledError
        if error is not None:
            raise error
    finally:
        del error


_minting = threading.Lock()
_last_minted = ""


def mint() -> str:
    """Return a new id, greater than all that this process has minted before."""
    global _last_minted
    stamp = draw()
    with _minting:
        _last_minted = ids.mint(stamp.now, stamp.bits, _last_minted)
        return _last_minted


SaveLatestOn: TypeAlias = Literal["invocation", "message", "trigger"]
Trigger: TypeAlias = Callable[[Data], bool | Awaitable[bool]]
OnError: TypeAlias = Callable[[Exception], object]
AnyStorage: TypeAlias = SnapshotStorage | Store | AsyncStore | str | os.PathLike[str]


class Turn:
    """One invocation of an agent: what it began from, and whether it was saved.

    What stands in `app_data` is saved beside the state, with a `status` (`running`, `completed` or
    `failed`) and, if the turn failed, the class of its `error`.
    """

    def __init__(self, manager: "SessionManager", agent: Agent, line: Line) -> None:
        self.app_data: Data = {}
        self.restored: Restored | None = None
        """What the agent was restored from before this turn, None if it was not."""
        self.saved = False
        """Whether the state at the end of the turn became the latest."""
        self.snapshot_id: str | None = None
        """The id under which that state is in history, if the trigger fired."""
        self.error: Exception | None = None
        """The first thing that went wrong with saving. It is never raised over the answer."""
        self._manager = manager
        self._agent = agent
        self._line = line

    async def message_added(self) -> None:
        """Save the latest if it is saved on every message; of several agents, on every node."""
        if self._manager.save_latest_on == "message":
            async with self._contained(), self._line.saving:
                await self._manager._put(self._line, await self._take("running"))

    async def _end(self, failure: str | None) -> None:
        """Save what the turn came to, whatever became of it."""
        facts: Data = {"status": "completed"}
        if failure is not None:
            facts = {"status": "failed", "error": failure}
        fires = None
        async with self._contained():
            fires = await self._manager._fires(self._agent)
        async with self._contained(), self._line.saving:
            snapshot = await self._take(**facts)
            trouble: Exception | None = None
            if fires:
                id = mint()
                try:
                    await self._manager._put(self._line, snapshot, id)
                    self.snapshot_id = id
                except Exception as error:
                    trouble = error
            # A trigger that failed may have wanted it.
            if fires is not False or self._manager.save_latest_on != "trigger":
                await self._manager._put(self._line, snapshot)
                self.saved = True
            if trouble is not None:
                raise trouble

    async def _take(self, status: JSON, **facts: JSON) -> Snapshot:
        said = {**self.app_data, "status": status, **facts}
        return await take(self._agent, self._manager.scope, said)

    @asynccontextmanager
    async def _contained(self) -> AsyncIterator[None]:
        try:
            yield
        except Exception as error:
            self.error = self.error or error
            await self._manager._tell("a turn could not be saved", self._line, error)


class SessionManager:
    """Keeps the agents of one session, each under its `agent_id`.

    `storage` is any `SnapshotStorage`, a store, or the path of a folder, which the manager then
    opens and closes itself. When the latest snapshot is saved: at the end of every `invocation`,
    at every `message` as well, or only when the `snapshot_trigger` fires, which in any case also
    puts the state into history. The trigger is given the state, and may be async. What goes wrong
    with saving in a turn, and a damaged latest, is logged and given to `on_error`.

    Nothing here keeps two processes apart that continue the same session: the last save of the
    latest stays. Claim the scope of the agent if that can happen.

    Raises:
        InvalidInput: an id, a strategy or another argument is not acceptable.
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
        self._lines = Lines()
        self._own: FileStorage | None = None
        if isinstance(storage, str | os.PathLike):
            if isinstance(storage, str) and "://" in storage:
                raise InvalidInput("a text is the path of a folder: open a URL yourself")
            storage = self._own = FileStorage(storage)
        elif isinstance(storage, Store | AsyncStore):
            storage = StoreStorage(storage)
        elif not isinstance(storage, SnapshotStorage):
            raise InvalidInput(f"a session needs a storage. type=`{type(storage).__name__}`")
        self._storage = storage

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the folder that was given as a path; leave any other storage open."""
        if self._own is not None:
            await self._own.close()

    def invocation(self, agent: Agent) -> AbstractAsyncContextManager[Turn]:
        """Run one turn of an agent: `async with manager.invocation(agent) as turn:`.

        Before the first one the agent is restored, unless that was done already. If its latest
        cannot be read, the block does not begin, nothing is saved over it, and the next turn tries
        again. At the end the agent is saved, also when an exception leaves the block. Saving raises
        nothing: `turn.error` tells.

        Raises:
            AlreadyExists: another agent of this manager has this id.
            Conflict: a turn of this agent is under way.
            InvalidInput: the agent lacks something, or its id is not acceptable.
            SessionError: what is stored cannot be read.
        """
        return self._turn(agent, self._line(agent))

    @asynccontextmanager
    async def _turn(self, agent: Agent, line: Line) -> AsyncIterator[Turn]:
        self._check_idle(line)
        turn = Turn(self, agent, line)
        line.busy = True
        try:
            if not line.restored:
                turn.restored = await self._restore(agent, line, None)
            failure: str | None = None
            try:
                yield turn
            except BaseException as error:
                # Its name alone: to keep the error would keep this frame alive, and the agent.
                failure = type(error).__name__
                raise
            finally:
                await turn._end(failure)
        finally:
            line.busy = False

    async def restore(self, agent: Agent, snapshot_id: str | None = None) -> Restored | None:
        """Let an agent become a snapshot of history, without an id the latest; None: there is none.

        After an id the agent goes on from there: its next save is the latest, and history stays. A
        latest that is damaged is replaced by the newest good snapshot of history: that is told by
        `fallen_back`, logged and given to `on_error`.

        Raises:
            Conflict: a turn of this agent is under way.
            SessionError: the storage failed, or what is asked for is damaged and nothing is good.
        """
        line = self._line(agent)
        self._check_idle(line)
        if snapshot_id is not None:
            check_identifier("snapshot_id", snapshot_id)
        line.busy = True
        try:
            return await self._restore(agent, line, snapshot_id)
        finally:
            line.busy = False

    async def save(self, agent: Agent, *, app_data: Mapping[str, JSON] | None = None) -> str:
        """Put the state of an agent into history, make it the latest, and return its id.

        Ids are UUIDs 7 that grow within a process.

        Raises:
            SessionError: the storage failed; or the latest could not be read before, so that it is
                not overwritten. Restore the agent first.
            InvalidInput: the state is not acceptable.
        """
        line = self._writable(agent)
        async with line.saving:
            snapshot = await take(agent, self.scope, app_data or {})
            id = mint()
            await self._put(line, snapshot, id)
            try:
                await self._put(line, snapshot)
            except Exception as error:
                fact = f"the snapshot is in history, but not the latest. snapshot_id=`{id}`"
                raise SessionError(fact) from (error.__cause__ or error)
            return id

    async def save_latest(
        self, agent: Agent, *, app_data: Mapping[str, JSON] | None = None
    ) -> None:
        """Make the state of an agent the latest, without history. Raises as `save` does."""
        line = self._writable(agent)
        async with line.saving:
            await self._put(line, await take(agent, self.scope, app_data or {}))

    async def list_snapshot_ids(
        self, agent: Agent, limit: int | None = None, start_after: str | None = None
    ) -> list[str]:
        """Return ids of the agent's history, as `SnapshotStorage.list_snapshot_ids` does."""
        return await self._storage.list_snapshot_ids(self._place(agent), limit, start_after)

    async def delete_session(self) -> None:
        """Delete the session with all its agents' snapshots. An agent in memory may go on.

        Raises:
            Conflict: a turn is under way, which would bring the session back.
            SessionError: the storage failed.
        """
        for line in self._lines:
            self._check_idle(line)
        await self._storage.delete_session(self.session_id)
        for line in self._lines:
            line.unread = False

    def release(self, agent: Agent) -> None:
        """Forget an agent, so that another of the same id can take its place.

        One that is gone from memory needs no release.

        Raises:
            Conflict: a turn of it is under way.
        """
        line = self._line(agent)
        self._check_idle(line)
        self._lines.drop(line)

    def _place(self, agent: Agent) -> SnapshotLocation:
        name = check_identifier("agent_id", check_agent(agent).agent_id)
        return SnapshotLocation(self.session_id, self.scope, name)

    def _line(self, agent: Agent) -> Line:
        return self._lines.of(agent, self._place(agent))

    def _check_idle(self, line: Line) -> None:
        if line.busy:
            raise Conflict(
                "a turn or a restore of the agent is under way. "
                f"session_id=`{self.session_id}` agent_id=`{line.place.scope_id}`"
            )

    def _writable(self, agent: Agent) -> Line:
        line = self._line(agent)
        if line.unread:
            raise SessionError(
                "the latest could not be read, so it is not overwritten. "
                f"session_id=`{self.session_id}` agent_id=`{line.place.scope_id}`"
            )
        return line

    async def _restore(self, agent: Agent, line: Line, snapshot_id: str | None) -> Restored | None:
        async with line.saving:
            try:
                found = await find(self._storage, line.place, snapshot_id)
                if found is not None:
                    await settled(agent.load_snapshot(cast(Data, found.snapshot.data)))
            except BaseException:
                line.unread = line.unread or snapshot_id is None
                raise
            if found is not None or snapshot_id is None:
                line.restored, line.unread = True, False
        if found is not None and found.cause is not None:
            fact = "the latest is damaged: restored from history"
            await self._tell(fact, line, found.cause)
        return found

    async def _put(self, line: Line, snapshot: Snapshot, id: str | None = None) -> None:
        await finished(put(self._storage, line.place, snapshot, id))

    async def _fires(self, agent: Agent) -> bool:
        # The state is taken for this alone: what is saved is taken when nobody else saves.
        if self._trigger is None:
            return False
        taken = await take(agent, self.scope, {})
        return bool(await settled(self._trigger(cast(Data, taken.data))))

    async def _tell(self, fact: str, line: Line, error: Exception) -> None:
        """Say what went wrong and is not raised."""
        log(fact, line.place, error)
        if self._on_error is None:
            return
        try:
            await settled(self._on_error(error))
        except Exception as second:
            log("on_error failed", line.place, second)
