"""AgentOS's `ICheckpointStore` on every engine."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from limpet import AsyncStore, Store
from limpet.api.integrations import Backend, Commit, Query, Work, limits, verbs
from limpet.compat.agentos import records
from limpet.compat.agentos.records import (
    GRAPH,
    NODE,
    RUN,
    Checkpoint,
    CheckpointMetadata,
    check_name,
    is_checkpoint,
)
from limpet.compat.wire import check_limit, check_store
from limpet.errors import NotFound
from limpet.model import JSON, Snapshot, SnapshotInfo

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
        commit = records.commit_of(Checkpoint.of(checkpoint).check(), self._store.driver.tools)
        await self._store.driver.run(_upsert(commit))

    async def get(self, checkpoint_id: str) -> Checkpoint | None:
        """Return a checkpoint by its id, None if there is none."""
        found = await self._store.driver.run(_read(checkpoint_id))
        return None if found is None else records.checkpoint_of(found)

    async def load(self, run_id: str, node_id: str | None = None) -> Checkpoint | None:
        """Return the latest checkpoint of a run, or of one of its nodes; None if there is none.

        It has the greatest timestamp; of equal ones it is the last saved. Overwriting keeps the
        order among equal ones, so that repeating a save changes nothing. Only one state is read.
        """
        labels = {RUN: check_name("run_id", run_id)}
        if node_id is not None:
            labels[NODE] = check_name("node_id", node_id)
        for info in await self._newest_first(labels):
            found = await self._store.scope(*info.scope).load(info.id)
            # It may have been deleted or moved meanwhile.
            if found is not None and labels.items() <= found.labels.items():
                return records.checkpoint_of(found)
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
        check_limit(limit)
        labels = {GRAPH: check_name("graph_id", graph_id)}
        if run_id is not None:
            labels = {RUN: check_name("run_id", run_id), **labels}
        found = [records.metadata_of(info) for info in await self._newest_first(labels)]
        return found[:limit] if limit is not None and limit > 0 else found

    async def delete(self, checkpoint_id: str) -> None:
        """Delete a checkpoint. Idempotent. Snapshots of other programs stay."""
        await self._store.driver.run(_delete(checkpoint_id))

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
        patch = records.patch_of(patch_state)
        source = await self._store.driver.run(_read(checkpoint_id))
        if source is None:
            raise NotFound(f"the checkpoint was not found. checkpoint_id=`{checkpoint_id}`")
        commit = records.fork_of(source, patch, self._store.driver.tools)
        await self._store.driver.run(lambda backend: backend.commit(commit))
        return commit.scope.session_id

    async def _newest_first(self, labels: Mapping[str, str]) -> Sequence[SnapshotInfo]:
        """Return the checkpoints with these labels.

        Only the first one is queried: a run has fewer checkpoints than a graph or a node.
        """
        query = dict([next(iter(labels.items()))])
        found = [
            info
            async for info in self._store.history(labels=query)
            if is_checkpoint(info) and labels.items() <= info.labels.items()
        ]
        # History begins with the last saved, and the sort is stable.
        return sorted(found, key=records.timestamp_of, reverse=True)


# Ids are unique within a scope, and a checkpoint may be in any: these search all of them.


def _read(checkpoint_id: str) -> Work[Snapshot | None]:
    """Read the checkpoint of an id, else the last snapshot of that id by another program."""
    id = limits.check_id("checkpoint_id", checkpoint_id)

    def work(backend: Backend) -> Snapshot | None:
        named = sorted(_with_id(backend, id), key=is_checkpoint, reverse=True)
        found = backend.read_snapshots(named[0].scope, [id]) if named else []
        return verbs.snapshot_of(found[0]) if found else None

    return work


def _upsert(commit: Commit) -> Work[SnapshotInfo]:
    """Store a checkpoint in the scope that has its id, else in the scope of the commit."""

    def work(backend: Backend) -> SnapshotInfo:
        found = filter(is_checkpoint, _with_id(backend, commit.id or ""))
        scope = next((info.scope for info in found), commit.scope)
        return backend.commit(commit._replace(scope=scope))

    return work


def _delete(checkpoint_id: str) -> Work[None]:
    id = limits.check_id("checkpoint_id", checkpoint_id)

    def work(backend: Backend) -> None:
        for info in list(filter(is_checkpoint, _with_id(backend, id))):
            backend.delete_snapshots(info.scope, [id])

    return work


def _with_id(backend: Backend, id: str) -> Iterator[SnapshotInfo]:
    """Yield the snapshots of an id in all scopes, the last saved first."""
    return verbs.each(backend, verbs.matching(Query(id=id)))
