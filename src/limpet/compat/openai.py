"""Sessions of the OpenAI Agents SDK: its `Session` on every engine.

They branch, keep their history, and store runs that wait for a person::

    from agents import Agent, Runner
    from limpet.compat.openai import LimpetSession

    async with limpet.open_async("sqlite:///agents.db") as store:
        session = LimpetSession("chat-42", store)
        result = await Runner.run(agent, "Hello", session=session)
        again = await session.branch(turn=1)         # as it was before the first question

`docs/guides/openai_agents.md` lists where each thing is stored, so that other programs see it.

`limpet import openai-sqlite` imports the files of the SDK's own sessions.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from limpet import AsyncLease, AsyncScope, AsyncStore, Store
from limpet.api.integrations import leases
from limpet.compat import needs
from limpet.compat.logs import KIND, MAIN, Log, is_of
from limpet.compat.openai_sqlite import KEY, MARK
from limpet.compat.wire import ABSENT, check_store
from limpet.compat.writes import Lasting
from limpet.errors import InvalidInput, LimpetError, NotFound
from limpet.model import JSON, Snapshot, SnapshotInfo, SnapshotLike
from limpet.runs.handles import prepare_claim
from limpet.runs.model import COMPLETED, FACTS, FAILED, RUNNING, error_of
from limpet.runs.model import KIND as RUN

with needs("agents", "the OpenAI Agents SDK", extra="openai"):
    from agents import Agent, RunState, TResponseInputItem
    from agents.memory import SessionSettings

__all__ = ["LimpetSession", "SessionInfo", "list_sessions"]

METADATA = "metadata"
WAITING = "interrupted"
_OWNER = "resume_run"
_TTL_S = 30.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session in a list: its id, its metadata, and when its branch `main` changed last."""

    session_id: str
    metadata: dict[str, JSON]
    updated_at: datetime | None


class LimpetSession:
    """The memory of a conversation, for `Runner.run(agent, "...", session=session)`.

    What the SDK adds in one step is one snapshot, and costs what is added. Nothing is lost if
    several tasks or processes add at once. A task that is cancelled while it adds, pops or clears
    ends only when that is done, as with the SDK's own sessions. A conversation of another framework
    is neither read nor changed: AlreadyExists.

    `scope` is where it is stored, with its history::

        session = LimpetSession("chat-42", store)
        async for info in session.scope.history(): print(info.id, info.created_at)
    """

    session_id: str
    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        store: Store | AsyncStore,
        *,
        branch: str = MAIN,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        """Open a session, or a branch of it. Nothing is read or written.

        The `limit` in `session_settings` is how many items `get_items` returns by default.
        """
        self._store = check_store(store).aio
        self.scope: AsyncScope[Any] = self._store.scope(session_id, branch, KIND)
        self.session_id = session_id
        self.session_settings = (
            session_settings
            if isinstance(session_settings, SessionSettings)
            else SessionSettings(**session_settings or {})
        )
        self._log = _log_of(self._store, session_id, branch)

    def __repr__(self) -> str:
        return f"LimpetSession({self.session_id!r}, branch={self.scope.scope_id!r})"

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the last `limit` items, the oldest first; by default that of the settings.

        None and negative numbers mean all items, as in `SQLiteSession`.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        items = await self._store.driver.offload(self._log.read) or []
        if limit is None or limit < 0:
            return items
        return items[-limit:] if limit else []

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items as one snapshot: all of them are stored when this returns.

        Raises:
            InvalidInput: an item is not JSON. Nothing was stored.
        """
        await self._finished(self._log.append, list(items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it; None if there is none.

        Earlier snapshots keep it. Two callers never get the same item.
        """
        item = await self._finished(self._log.pop)
        return None if item is ABSENT else item

    async def clear_session(self) -> None:
        """Delete all items, also from the history of this branch.

        Other branches, the metadata, and a run that waits stay.
        """
        await self._finished(self._clear)

    async def branch(
        self,
        name: str | None = None,
        *,
        turn: int | None = None,
        at: int | SnapshotLike | None = None,
    ) -> "LimpetSession":
        """Begin a branch at an earlier point, and return it; this one is not changed.

        With `turn` it ends before that question (the first is 1), so that another one can be asked;
        with a number as `at` it has `get_items()[:at]`; with a snapshot of this branch it has the
        items of that moment. Without these it has all items. A name is made up if none is given;
        `LimpetSession(session_id, store, branch=name)` opens the branch later.

        Raises:
            AlreadyExists: there is such a branch.
            InvalidInput: there are not so many turns or items.
            NotFound: the session is empty, or there is no such snapshot.
            Corrupt: another program saved something else here.
        """
        if turn is not None and at is not None:
            raise InvalidInput("a branch begins at a turn or at a point, not both")
        if at is not None and not isinstance(at, int):
            await self._store.driver.offload(self._log.own)
            return self._of(await self.scope.fork(at, scope_id=name))
        head = await self.scope.load()
        if head is None:
            raise NotFound(f"the session is empty. session_id=`{self.session_id}`")
        items = self._log.items_of(head)
        end = len(items) if at is None else at
        if turn is not None:
            end = _end_before(items, turn)
        if abs(end) > len(items):
            raise InvalidInput(f"there are not so many items. at=`{end}` items=`{len(items)}`")
        if end == len(items):
            return self._of(await self.scope.fork(head, scope_id=name))
        return self._of(await self.scope.fork(head, scope_id=name, patch={KEY: items[:end]}))

    async def branches(self) -> list[str]:
        """Return the names of all branches of the session, `main` among them, in text order."""
        found = self._store.scopes(self.session_id, kind=KIND)
        mine = [each.key async for each in found if each.head is not None and is_of(each, MARK)]
        return [key.scope_id for key in mine]

    async def metadata(self) -> dict[str, JSON]:
        """Return what `set_metadata` stored; all branches of a session share it."""
        return await _metadata_of(await self._main())

    async def set_metadata(self, **values: JSON) -> dict[str, JSON]:
        """Set some values and keep the others, as one step; None removes one. Return all.

        Example:
            await session.set_metadata(title="A trip to Lisbon", user="alice")
        """

        def changed(before: JSON) -> JSON:
            merged = {**_object_in(before), **values}
            return {name: value for name, value in merged.items() if value is not None}

        note = await (await self._main()).set_note(METADATA, changed)
        return _object_in(None if note is None else note.value)

    async def save_run(self, state: RunState[Any, Any], **options: Any) -> SnapshotInfo:
        """Store a run that waits for a person, in place of one that waited before.

        It is listed with the status `interrupted`, as something that needs attention.
        `options` are those of `RunState.to_json`::

            result = await Runner.run(agent, "Clean up", session=session)
            if result.interruptions:
                await session.save_run(result.to_state())
        """
        asked = [each.name for each in state.get_interruptions()]
        return await self._run().save(
            state.to_json(**options), status=WAITING, metadata={"tools": asked}
        )

    async def load_run(self, agent: Agent[Any], **options: Any) -> RunState[Any, Any] | None:
        """Return the run that waits, to show what it asks for; None if none does.

        To continue it use `resume_run`. `options` are those of `RunState.from_json`.
        """
        found = _waiting(await self._run().load())
        return found and await RunState.from_json(agent, found.state, **options)

    @asynccontextmanager
    async def resume_run(
        self, agent: Agent[Any], **options: Any
    ) -> AsyncIterator[RunState[Any, Any]]:
        """Hold the run that waits for an `async with` block, in which it is continued.

        Only one caller in any process can hold it. Its status is `running` in the block, and
        `completed` after it, or `failed` if the block raises. One that failed, or whose process
        died, can be resumed again: as it was saved, so its tools are called again, and what they
        return is added to the session again. `options` are those of `RunState.from_json`::

            async with session.resume_run(agent) as state:
                for question in state.get_interruptions():
                    state.approve(question)
                result = await Runner.run(agent, state, session=session)

        A run that is interrupted again is saved by `save_run` inside the block.

        Raises:
            Conflict: another caller is resuming it.
            NotFound: no run waits.
        """
        scope = self._run()
        wanted, _ = prepare_claim(scope.driver.tools, scope.key, _OWNER, _TTL_S, 0)
        async with leases.held(scope, wanted, AsyncLease) as lease:
            found = _waiting(await lease.load())
            if found is None:
                branch = self.scope.scope_id
                where = f"session_id=`{self.session_id}` branch=`{branch}`"
                raise NotFound(f"no run waits. {where}")
            state = await RunState.from_json(agent, found.state, **options)
            await lease.update(found, lambda run: _with(run, RUNNING))
            try:
                yield state
            except BaseException as error:
                failed = error_of(error)
                facts = {"error": {"type": failed.type, "message": failed.message}}
                with suppress(LimpetError):  # the caller's own error matters more
                    await lease.update(found, lambda run: _with(run, FAILED, facts))
                raise
            await lease.update(found, lambda run: _with(run, COMPLETED))

    def _clear(self) -> None:
        if self._log.own() is not None:
            self._log.replace([])
            self._log.scope.prune(keep_last=1)

    async def _finished(self, write: Callable[..., T], *args: Any) -> T:
        driver = self._store.driver
        if not driver.opened.may_block:
            return write(*args)
        return await driver.in_pool(write, *args, future=Lasting())

    async def _atomic_replace_items(self, items: list[TResponseInputItem]) -> bool:
        """Replace all items in one step, and say so; the SDK compacts a session by it."""
        if type(self) is not LimpetSession:
            return False  # a subclass may store items in another form
        await self._store.driver.offload(self._log.replace, list(items))
        return True

    def _of(self, scope: AsyncScope[Any]) -> "LimpetSession":
        return LimpetSession(
            self.session_id,
            self._store,
            branch=scope.scope_id,
            session_settings=self.session_settings,
        )

    def _run(self) -> AsyncScope[Any]:
        # Not `main`: that is where Limpet's own runs are, and what `limpet show SESSION` shows.
        branch = self.scope.scope_id
        return self._store.scope(self.session_id, "run" if branch == MAIN else f"run/{branch}", RUN)

    async def _main(self) -> AsyncScope[Any]:
        await self._store.driver.offload(_log_of(self._store, self.session_id, MAIN).own)
        return self._store.scope(self.session_id, MAIN, KIND)


async def list_sessions(
    store: Store | AsyncStore, *, prefix: str = ""
) -> AsyncIterator[SessionInfo]:
    """Yield the sessions whose ids begin with `prefix`, with their metadata, in text order.

    Example:
        async for each in list_sessions(store, prefix="alice/"): print(each.metadata.get("title"))
    """
    aio = check_store(store).aio
    async for each in aio.scopes(kind=KIND, prefix=prefix):
        if each.key.scope_id == MAIN and is_of(each, MARK):
            metadata = await _metadata_of(aio.scope(*each.key))
            updated_at = None if each.head is None else each.head.updated_at
            yield SessionInfo(each.key.session_id, metadata, updated_at)


def _log_of(store: AsyncStore, session_id: str, branch: str) -> Log:
    return Log(store.sync.scope(session_id, branch, KIND), KEY, MARK)


async def _metadata_of(main: AsyncScope[Any]) -> dict[str, JSON]:
    note = await main.note(METADATA)
    return _object_in(None if note is None else note.value)


def _object_in(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}


def _end_before(items: list[Any], turn: int) -> int:
    asked = [at for at, item in enumerate(items) if _is_question(item)]
    if not 1 <= turn <= len(asked):
        raise InvalidInput(f"there is no such turn. turn=`{turn}` turns=`{len(asked)}`")
    return asked[turn - 1]


def _is_question(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") == "user"


def _waiting(run: Snapshot[Any] | None) -> Snapshot[Any] | None:
    return None if run is None or run.status == COMPLETED else run


def _with(run: Snapshot[Any], status: str, facts: JSON = None) -> Snapshot[Any]:
    metadata = {name: value for name, value in run.metadata.items() if name != FACTS}
    if facts is not None:
        metadata[FACTS] = facts
    return run.with_(status=status, metadata=metadata)
