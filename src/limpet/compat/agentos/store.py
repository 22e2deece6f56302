"""`ICheckpointStore` over any engine."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from limpet.api.store import AsyncStore, Store
from limpet.compat.agentos import mapping
from limpet.compat.agentos.records import Checkpoint, CheckpointMetadata, check_name
from limpet.errors import InvalidInput, NotFound
from limpet.model import JSON, SnapshotRef

AnyCheckpoint: TypeAlias = Checkpoint | Mapping[str, Any]
Listing: TypeAlias = list[CheckpointMetadata]


class CheckpointStore:
    """The checkpoints of graph runs, in an opened store, in either face. Close that yourself.

    May be shared between tasks, and any number of processes may use the same store. Wherever a
    checkpoint is taken, its wire dict is taken too.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        if not isinstance(store, Store | AsyncStore):
            raise InvalidInput(f"checkpoints need a store. type=`{type(store).__name__}`")
        self._store = store.aio

    async def save(self, checkpoint: AnyCheckpoint) -> None:
        """Make a checkpoint durable. One commit, which may be repeated.

        If there is one of the same id, it is overwritten in place, also when the new one belongs
        to another run or graph: the old one then has it no more. Only if the very first saves of
        one id happen at the same moment in two runs, both have it.

        Raises:
            InvalidInput: an id is empty or too long, the timestamp is no number, the state is no
                object, or something is not JSON (the message has its path).
        """
        commit = mapping.commit_of(Checkpoint.of(checkpoint).check(), self._store.driver.tools)
        await self._store.driver.run(mapping.upsert(commit))

    async def get(self, checkpoint_id: str) -> Checkpoint | None:
        """Return a checkpoint by its id, None if there is none."""
        found = await self._store.driver.run(mapping.read(checkpoint_id))
        return None if found is None else mapping.checkpoint_of(found)

    async def load(self, run_id: str, node_id: str | None = None) -> Checkpoint | None:
        """Return the latest checkpoint of a run, or of one of its nodes; None if there is none.

        That is the one of the greatest timestamp, and of equal ones the last saved. One that was
        overwritten keeps its place among equals, so that a save which is only repeated changes
        nothing. One state is read, whatever the number of checkpoints.
        """
        labels = {mapping.RUN: check_name("run_id", run_id)}
        if node_id is not None:
            labels[mapping.NODE] = check_name("node_id", node_id)
        for ref in await self._newest(labels):
            found = await self._store.scope(*ref.scope).load(ref.id)
            # It may have been deleted or moved since.
            if found is not None and labels.items() <= found.labels.items():
                return mapping.checkpoint_of(found)
        return None

    async def latest(self, run_id: str) -> Checkpoint | None:
        """Return the latest checkpoint of a run: `load` without a node."""
        return await self.load(run_id)

    async def list(
        self, graph_id: str, *, limit: int | None = None, run_id: str | None = None
    ) -> Listing:
        """Return what there is of a graph, or of one of its runs, newest first.

        Ordered as `load` chooses. At most `limit`; None, 0 and less are no limit. No state is read,
        and a damaged checkpoint is left out.
        """
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
            kind = type(limit).__name__
            raise InvalidInput(f"the limit must be None or a whole number. type=`{kind}`")
        check_name("graph_id", graph_id)
        # A run has fewer checkpoints than a graph, so what is looked up is the run.
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
        """Remove a checkpoint; nothing happens if there is none. What others saved stays."""
        await self._store.driver.run(mapping.delete(checkpoint_id))

    async def fork(self, checkpoint_id: str, patch_state: Mapping[str, JSON] | None = None) -> str:
        """Begin a new run at a checkpoint, and return the id of that run.

        Its first checkpoint is a copy with an id of its own and the present as timestamp, and says
        in `forked_from` where it came from. `patch_state` replaces keys in the partitions `input`,
        `scratch`, `artifacts` and `diagnostics` of its state: what stands beside them stays, what
        is inside them does not, a partition that is None is left alone, and what is none of the
        four is not looked at. The source does not change. One commit.

        Raises:
            NotFound: there is no such checkpoint.
            InvalidInput: the patch or a partition is no mapping, in the patch or in the state, or
                something is not JSON.
        """
        patch = mapping.patch_of(patch_state)
        source = await self._store.driver.run(mapping.read(checkpoint_id))
        if source is None:
            raise NotFound(f"the checkpoint was not found. checkpoint_id=`{checkpoint_id}`")
        commit = mapping.fork_of(source, patch, self._store.driver.tools)
        await self._store.driver.run(lambda backend: backend.commit(commit))
        return commit.scope.session_id

    async def _newest(self, labels: Mapping[str, str]) -> Sequence[SnapshotRef]:
        """Return where the checkpoints with some labels are, the latest first.

        They are looked up by the run alone, by which there are the fewest.
        """
        found = [
            (mapping.timestamp_of(info), SnapshotRef(info.scope, info.id))
            async for info in self._store.history(labels={mapping.RUN: labels[mapping.RUN]})
            if mapping.is_checkpoint(info) and labels.items() <= info.labels.items()
        ]
        # The last saved come first already, and sorting leaves equal ones as they are.
        found.sort(key=lambda each: -each[0])
        return [ref for _, ref in found]
