"""Checkpoints of Microsoft Agent Framework workflows: its `CheckpointStorage` on every engine.

Each conversation has a history of its own, whose last checkpoint any process can resume::

    from limpet.compat.agent_framework import LimpetCheckpointStorage

    store = limpet.open("sqlite:///agents.db")
    storage = LimpetCheckpointStorage(store, session_id="chat-42")
    workflow = WorkflowBuilder(start_executor=..., name="support", checkpoint_storage=storage)...

`docs/guides/agent_framework.md` lists where each thing is stored, so that other programs see it.

The framework writes what is not JSON as pickles. They are read by its own decoder, when it loads a
checkpoint, and by nothing else.
"""

import json
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from limpet import AsyncScope, AsyncStore, Store
from limpet.api.integrations import limits
from limpet.compat import needs
from limpet.compat.wire import check_store, escaped
from limpet.errors import AlreadyExists, InvalidInput
from limpet.model import JSON, ScopeKey, Snapshot, SnapshotInfo

with needs("agent_framework", "Agent Framework", extra="agent-framework"):
    from agent_framework import WorkflowCheckpoint, WorkflowCheckpointException
    from agent_framework._workflows._checkpoint_encoding import (
        decode_checkpoint_value,
        encode_checkpoint_value,
    )

__all__ = ["LimpetCheckpointStorage"]

KIND = "workflow"
WAITING = "waiting"
TEXT = "text"
"""The only key of a state that Limpet refuses as JSON, and stores as the text of it."""

logger = logging.getLogger(__name__)


class LimpetCheckpointStorage:
    """Checkpoints in an open store, sync or async. Safe for tasks, threads and processes.

    Give each conversation a `session_id`: the framework asks for the latest checkpoint by the name
    of the workflow alone, so those of all conversations in one storage are one history.

    Example:
        storage = LimpetCheckpointStorage(store, session_id="chat-42")
        latest = await storage.get_latest(workflow_name="support")
        await workflow.run(checkpoint_id=latest.checkpoint_id, checkpoint_storage=storage)
    """

    def __init__(
        self,
        store: Store | AsyncStore,
        session_id: str | None = None,
        *,
        allowed_checkpoint_types: Iterable[str] = (),
    ) -> None:
        """Take an open store; `allowed_checkpoint_types` are those of `FileCheckpointStorage`."""
        self._store = check_store(store).aio
        self._session_id = None if session_id is None else limits.check_id("session_id", session_id)
        self._allowed = frozenset(allowed_checkpoint_types)

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Save a checkpoint, which becomes the latest; return its id. Durable when it returns.

        An id that exists is overwritten at its place in the history.

        Raises:
            WorkflowCheckpointException: it could not be loaded again.
        """
        try:
            state = encode_checkpoint_value(checkpoint.to_dict())
            self._decoded(state)
        except Exception as cause:
            id = checkpoint.checkpoint_id
            raise WorkflowCheckpointException(
                f"the checkpoint could not be loaded again, so it is not saved. id=`{id}`"
            ) from cause
        try:
            await self._save(checkpoint, state)
        except InvalidInput:  # NaN, or more levels than Limpet allows
            await self._save(checkpoint, {TEXT: json.dumps(state)})
        return str(checkpoint.checkpoint_id)

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Return a checkpoint.

        Raises:
            WorkflowCheckpointException: there is none with this id, or it cannot be decoded.
        """
        info = await self._find(checkpoint_id)
        found = None if info is None else await self._store.scope(*info.scope).load(info)
        if found is None:
            raise WorkflowCheckpointException(f"there is no such checkpoint. id=`{checkpoint_id}`")
        return self._checkpoint(found)

    async def list_checkpoints(self, *, workflow_name: str) -> list[WorkflowCheckpoint]:
        """Return the checkpoints of a workflow, the oldest first; log those that are unreadable."""
        scope = self._scope(workflow_name)
        found = []
        async for each in scope.load_many(
            await self.list_checkpoint_ids(workflow_name=workflow_name)
        ):
            try:
                found.append(self._checkpoint(each))
            except WorkflowCheckpointException as cause:
                logger.warning("a checkpoint cannot be read. id=`%s` reason=`%s`", each.id, cause)
        return found

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint; return whether there was one. Others stay as they are."""
        info = await self._find(checkpoint_id)
        if info is None:
            return False
        return bool(await self._store.scope(*info.scope).delete_snapshot(info))

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Return the checkpoint that was saved last, None if there is none. Reads only that one.

        Raises:
            WorkflowCheckpointException: it cannot be decoded.
        """
        found = await self._scope(workflow_name).load()
        return None if found is None else self._checkpoint(found)

    async def list_checkpoint_ids(self, *, workflow_name: str) -> list[str]:
        """Return the ids of a workflow's checkpoints, the oldest first. Decodes none of them."""
        return [info.id async for info in self._scope(workflow_name).history()][::-1]

    def _scope(self, workflow_name: str) -> AsyncScope[Any]:
        return self._store.scope(*self._key(workflow_name))

    def _key(self, workflow_name: str) -> ScopeKey:
        session_id = self._session_id
        if session_id is None:
            session_id = escaped(workflow_name)
        return ScopeKey(session_id, workflow_name, KIND)

    async def _find(self, checkpoint_id: str) -> SnapshotInfo | None:
        """Return where a checkpoint of this storage is; by its id alone, as the framework asks."""
        try:
            limits.check_id("checkpoint_id", checkpoint_id)
        except InvalidInput:
            return None
        if self._session_id is None:
            found = await self._store.find(checkpoint_id)
            if found is None or found.scope == self._key(found.scope.scope_id):
                return found
        # One session has few scopes; or another program has copied the checkpoint.
        async for each in self._store.scopes(self._session_id, kind=KIND):
            if each.key == self._key(each.key.scope_id):
                info = await self._store.scope(*each.key).info(checkpoint_id)
                if info is not None:
                    return info
        return None

    async def _save(self, checkpoint: WorkflowCheckpoint, state: JSON) -> None:
        async def save(*, overwrite: bool) -> None:
            await self._scope(checkpoint.workflow_name).save(
                state,
                id=checkpoint.checkpoint_id,
                parent=checkpoint.previous_checkpoint_id,
                status=WAITING if checkpoint.pending_request_info_events else "",
                labels={"iteration": str(checkpoint.iteration_count)},
                overwrite=overwrite,
            )

        try:
            await save(overwrite=False)
        except AlreadyExists:
            await save(overwrite=True)

    def _checkpoint(self, found: Snapshot[Any]) -> WorkflowCheckpoint:
        try:
            checkpoint = WorkflowCheckpoint.from_dict(self._decoded(found.state))
        except WorkflowCheckpointException:
            raise
        except Exception as cause:
            raise WorkflowCheckpointException(f"this is no checkpoint. id=`{found.id}`") from cause
        # A fork has an id of its own, by which it is loaded.
        return replace(checkpoint, checkpoint_id=found.id)

    def _decoded(self, state: Any) -> Any:
        if isinstance(state, dict) and state.keys() == {TEXT}:
            state = json.loads(state[TEXT])
        return decode_checkpoint_value(state, allowed_types=self._allowed)
