"""An agent that uses a store as Genkit's runtime does, its self-parented detached runs included."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from limpet import InvalidInput, NotFound
from limpet.compat.genkit import SessionSnapshot, SessionStore
from limpet.compat.wire import wire_time

Row = SessionSnapshot[Any]
Handler = Callable[[dict[str, Any], str], Awaitable[str]]


@dataclass(frozen=True)
class Turn:
    """What a caller gets of a turn: the snapshot to go on from."""

    session_id: str
    snapshot_id: str | None
    finish_reason: str


class Agent:
    """Answers what it is told, one snapshot for each turn."""

    def __init__(self, sessions: SessionStore[Any], handler: Handler, context: Any = None) -> None:
        self._sessions = sessions
        self._handler = handler
        self._context = context
        self.runs: set[asyncio.Task[None]] = set()

    async def get(self, **ids: str) -> Row | None:
        return await self._sessions.get_snapshot(**ids, context=self._context)

    async def send(
        self, text: str, *, session_id: str | None = None, snapshot_id: str | None = None
    ) -> Turn:
        """Do a turn, and wait for it."""
        session_id, before = await self._resume(session_id, snapshot_id)
        id, new = self._new(session_id, before)
        good = None if before is None else before.snapshot_id
        try:
            state = await self._answer(new.state, text)
        except RuntimeError as error:
            await self._save(id, replace(new, status="failed", error={"message": str(error)}))
            return Turn(session_id, good, "failed")
        await self._save(id, replace(new, status="completed", finish_reason="stop", state=state))
        return Turn(session_id, id, "stop")

    async def detach(
        self, text: str, *, session_id: str | None = None, snapshot_id: str | None = None
    ) -> Turn:
        """Begin a turn that goes on by itself."""
        session_id, before = await self._resume(session_id, snapshot_id)
        id, new = self._new(session_id, before)
        await self._save(id, replace(new, status="pending", heartbeat_at=_now()))
        run = asyncio.create_task(self._run(id, new, text))
        self.runs.add(run)
        return Turn(session_id, id, "detached")

    async def abort(self, snapshot_id: str) -> str | None:
        """Tell a run to stop; return the status that it had."""
        seen: list[str | None] = [None]

        def mutator(current: Row | None) -> Row | None:
            seen[0] = None if current is None else current.status
            if current is None or current.status != "pending":
                return None
            return replace(current, status="aborted")

        await self._sessions.save_snapshot(snapshot_id, mutator, context=self._context)
        return seen[0]

    async def _run(self, id: str, new: Row, text: str) -> None:
        work = asyncio.create_task(self._answer(new.state, text))

        def stop(row: Row) -> None:
            if row.status == "aborted":
                work.cancel()

        end = self._sessions.on_snapshot_state_change(id, stop, context=self._context)
        try:
            done = replace(new, status="completed", state=await work)
        except RuntimeError as error:
            done = replace(new, status="failed", error={"message": str(error)})
        except asyncio.CancelledError:
            return
        finally:
            end()
        # The parent that theirs writes here is the row itself, and the time that of the end.
        done = replace(done, parent_id=id, created_at=_now())
        await self._sessions.save_snapshot(
            id,
            lambda current: None if current and current.status == "aborted" else done,
            context=self._context,
        )

    async def _resume(
        self, session_id: str | None, snapshot_id: str | None
    ) -> tuple[str, Row | None]:
        if snapshot_id is None:
            session_id = session_id or secrets.token_hex(6)
            return session_id, await self._last_good(session_id)
        found = await self.get(snapshot_id=snapshot_id)
        if found is None:
            raise NotFound(f"there is no such snapshot. snapshot_id=`{snapshot_id}`")
        if found.status != "completed" or session_id not in (None, found.session_id):
            raise InvalidInput("the snapshot is not one to go on from")
        return found.session_id or "", found

    async def _last_good(self, session_id: str) -> Row | None:
        row = await self.get(session_id=session_id)
        met = set()
        while row is not None and row.status != "completed":
            assert row.snapshot_id not in met
            met.add(row.snapshot_id)
            row = await self.get(snapshot_id=row.parent_id) if row.parent_id else None
        return row

    def _new(self, session_id: str, before: Row | None) -> tuple[str, Row]:
        return secrets.token_hex(6), SessionSnapshot(
            session_id=session_id,
            parent_id=None if before is None else before.snapshot_id,
            created_at=_now(),
            updated_at=_now(),
            state={"messages": []} if before is None else before.state,
        )

    async def _answer(self, state: Any, text: str) -> Any:
        messages = [*state["messages"], text]
        return {**state, "messages": [*messages, await self._handler(state, text)]}

    async def _save(self, id: str, row: Row) -> None:
        assert await self._sessions.save_snapshot(id, lambda _: row, context=self._context) == id


def _now() -> str:
    return wire_time(datetime.now(UTC))
