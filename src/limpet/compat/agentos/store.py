"""AgentOS's `ICheckpointStore` on every engine."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from limpet import AsyncStore, Store
from limpet.compat.agentos import mapping
from limpet.compat.agentos.records import Checkpoint, CheckpointMetadata, check_name
from limpet.compat.wire import check_store
from limpet.errors import InvalidInput, NotFound
from limpet.model import JSON, SnapshotRef

AnyCheckpoint: TypeAlias = Checkpoint | Mapping[str, Any]
Listing: TypeAlias = list[CheckpointMetadata]


class CheckpointStore:
    """The checkpoints of graph runs in an opened store, sync or async. The caller closes the store.

    May be shared between tasks, and any number of processes may use the same store. A checkpoint
    may be given as its wire dict.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self._store = check_store(store).aio

    async def save(self, checkpoint: AnyCheckpoint) -> None:
        """Save a checkpoint, durably. One commit, which may be repeated.

        A checkpoint of the same id is overwritten in place, and moves if the new one belongs to
        another run or graph. If the first saves of one id happen at the same moment in two runs,
        both have it.

        Raises:
            InvalidInput: an id is empty or too long, the timestamp is not a number, the state is
                not an object, or a value is not JSON (the message has its path).
        """
        commit = mapping.commit_of(Checkpoint.of(checkpoint).check(), self._store.driver.tools)
        await self._store.driver.run(mapping.upsert(commit))

    async def get(self, checkpoint_id: str) -> Checkpoint | None:
        """Return a checkpoint by its id, None if there is none."""
        found = await self._store.driver.run(mapping.read(checkpoint_id))
        return None if found is None else mapping.checkpoint_of(found)

    async def load(self, run_id: str, node_id: str | None = None) -> Checkpoint | None:
        """Return the latest checkpoint of a run, or of one of its nodes; None if there is none.

        It has the greatest timestamp; of equal ones it is the last saved. Overwriting keeps the
        order among equal ones, so that repeating a save changes nothing. Only one state is read.
        """
        labels = {mapping.RUN: check_name("run_id", run_id)}
        if node_id is not None:
            labels[mapping.NODE] = check_name("node_id", node_id)
        for ref in await self._newest(labels):
            found = await self._store.scope(*ref.scope).load(ref.id)
            # It may have been deleted or moved meanwhile.
            if found is not None and labels.items() <= found.labels.items():
                return mapping.checkpoint_of(found)
        return None

    async def latest(self, run_id: str) -> Checkpoint | None:
        """Return the latest checkpoint of a run: `load` without a node."""
        return await self.load(run_id)

    async def list(
        self, graph_id: str, *, limit: int | None = None, run_id: str | None = None
    ) -> Listing:
        """Return the checkpoints of a graph, or of one of its runs, newest first.

        In the order by which `load` chooses. At most `limit`; None, 0 and less mean no limit. No
        state is read, and a damaged checkpoint is left out.
        """
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
            kind = type(limit).__name__
            raise InvalidInput(f"limit must be None or a whole number. type=`{kind}`")
        check_name("graph_id", graph_id)
        # A run has fewer checkpoints than a graph, so the query is by run if one is given.
        one_run = run_id is not None
        labels = (
            {mapping.RUN: check_name("run_id", run_id)} if one_run else {mapping.GRAPH: graph_id}
        )
        found = [
            mapping.metadata_of(info)
            async for info in self._store.history(labels=labels)
            if mapping.is_checkpoint(info) and info.labels.get(mapping.GRAPH) == graph_id
        ]
        found.sort(key=lambda each: -each.timestamp)
        return found[:limit] if limit is not None and limit > 0 else found

    async def delete(self, checkpoint_id: str) -> None:
        """Delete a checkpoint. Idempotent. Snapshots of other programs stay."""
        await self._store.driver.run(mapping.delete(checkpoint_id))

    async def fork(self, checkpoint_id: str, patch_state: Mapping[str, JSON] | None = None) -> str:
        """Begin a new run at a checkpoint, and return the id of that run.

        Its first checkpoint is a copy with a new id and the current time as timestamp;
        `forked_from` names the source. `patch_state` replaces keys in the partitions `input`,
        `scratch`, `artifacts` and `diagnostics` of the state: other keys of a partition stay, the
        values of the given keys are replaced whole, a partition that is None is left alone, and
        other partitions are ignored. The source does not change. One commit.

        Raises:
            NotFound: there is no such checkpoint.
            InvalidInput: the patch or a partition, in the patch or in the state, is not a mapping,
                or a value is not JSON.
        """
        patch = mapping.patch_of(patch_state)
        source = await self._store.driver.run(mapping.read(checkpoint_id))
        if source is None:
            raise NotFound(f"the checkpoint was not found. checkpoint_id=`{checkpoint_id}`")
        commit = mapping.fork_of(source, patch, self._store.driver.tools)
        await self._store.driver.run(lambda backend: backend.commit(commit))
        return commit.scope.session_id

    async def _newest(self, labels: Mapping[str, str]) -> Sequence[SnapshotRef]:
        """Return the checkpoints with these labels, the latest first."""
        found = [
            (mapping.timestamp_of(info), SnapshotRef(info.scope, info.id))
            async for info in self._store.history(labels={mapping.RUN: labels[mapping.RUN]})
            if mapping.is_checkpoint(info) and labels.items() <= info.labels.items()
        ]
        # History begins with the last saved, and the sort is stable.
        found.sort(key=lambda each: -each[0])
        return [ref for _, ref in found]
