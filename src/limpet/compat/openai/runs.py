"""A run of the SDK that waits for a person: saved, and resumed by one caller at a time."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from agents import Agent, RunState

from limpet import AsyncScope, AsyncStore
from limpet.api.integrations import hold
from limpet.errors import LimpetError, NotFound
from limpet.model import Snapshot, SnapshotInfo
from limpet.runs.handles import prepare_claim
from limpet.runs.model import COMPLETED, FACTS, FAILED, KIND, RUNNING, RunError, error_of

WAITING = "interrupted"
_SCOPE = "run"
_OWNER = "resume_run"
_TTL_S = 30.0


class RunSlot:
    """The place of the one run of a conversation that waits."""

    def __init__(self, store: AsyncStore, session_id: str, branch: str) -> None:
        # Not `main`: that is where Limpet's own runs are, and what `limpet show SESSION` shows.
        scope_id = _SCOPE if branch == "main" else f"{_SCOPE}/{branch}"
        self._scope: AsyncScope[Any] = store.scope(session_id, scope_id, KIND)
        self._none = f"no run waits. session_id=`{session_id}` branch=`{branch}`"

    async def save(self, state: RunState[Any, Any], options: Mapping[str, Any]) -> SnapshotInfo:
        asked = [each.name for each in state.get_interruptions()]
        return await self._scope.save(
            state.to_json(**options), status=WAITING, metadata={"tools": asked}
        )

    async def load(
        self, agent: Agent[Any], options: Mapping[str, Any]
    ) -> RunState[Any, Any] | None:
        found = await self._scope.load()
        if found is None or found.status == COMPLETED:
            return None
        return await RunState.from_json(agent, found.state, **options)

    @asynccontextmanager
    async def resume(
        self, agent: Agent[Any], options: Mapping[str, Any]
    ) -> AsyncIterator[RunState[Any, Any]]:
        tools = self._scope.driver.tools
        wanted, _ = prepare_claim(tools, self._scope.key, _OWNER, _TTL_S, 0)
        async with hold(self._scope, wanted) as lease:
            found = await lease.load()
            if found is None or found.status == COMPLETED:
                raise NotFound(self._none)
            state = await RunState.from_json(agent, found.state, **options)
            await lease.update(found, lambda run: _with(run, RUNNING))
            try:
                yield state
            except BaseException as error:
                failed = error_of(error)
                with suppress(LimpetError):  # the caller's own error matters more
                    await lease.update(found, lambda run: _with(run, FAILED, failed))
                raise
            await lease.update(found, lambda run: _with(run, COMPLETED))


def _with(run: Snapshot[Any], status: str, error: RunError | None = None) -> Snapshot[Any]:
    metadata = {name: value for name, value in run.metadata.items() if name != FACTS}
    if error is not None:
        metadata[FACTS] = {"error": {"type": error.type, "message": error.message}}
    return run.with_(status=status, metadata=metadata)
