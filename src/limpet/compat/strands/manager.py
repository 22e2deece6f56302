"""Sessions of plain Python agents over any `SnapshotStorage`.

A manager restores an agent before its first turn and saves it behind every one::

    manager = SessionManager(store, session_id="chat-42")
    async with manager.invocation(agent) as turn:
        answer = await agent.ask("hello")
    if turn.error is not None: ...  # the answer is there all the same
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Literal, Self, TypeAlias, cast, get_args

from limpet.aio import AsyncStore
from limpet.compat.strands.manager_agents import (
    Agent,
    Data,
    Line,
    Lines,
    Restored,
    check_agent,
    settled,
)
from limpet.compat.strands.manager_reading import find
from limpet.compat.strands.manager_saving import finished, log, mint, put, take
from limpet.compat.strands.places import FileStorage
from limpet.compat.strands.records import Snapshot, SnapshotLocation, check_identifier
from limpet.compat.strands.storage import SessionError, SnapshotStorage, StoreStorage
from limpet.errors import Conflict, InvalidInput
from limpet.model import JSON
from limpet.store import Store

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
