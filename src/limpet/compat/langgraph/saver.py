"""`LimpetSaver`: LangGraph's checkpoints in an opened store. Each method is one line of work."""

import copy
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol, maybe_add_typed_methods
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from limpet.api import upkeep
from limpet.api.store import AsyncStore, Store
from limpet.compat.langgraph import checkpoints, history, listing, pruning, records
from limpet.compat.langgraph import pruning as expiring
from limpet.compat.langgraph.allowed import Allow, Allowed, Shape, strict_serde
from limpet.compat.langgraph.checkpoints import Desk, Heads, WarmStates
from limpet.compat.langgraph.decode import Reader
from limpet.compat.langgraph.messages import MessageCache
from limpet.compat.langgraph.records import Codec
from limpet.errors import InvalidInput
from limpet.model import Stats

Filter = Mapping[str, Any] | None


class LimpetSaver(BaseCheckpointSaver[str]):
    """Checkpoints in an opened store, in either face. Close that yourself.

    Its plain methods and its async ones are both real, whichever face it was given. May be shared
    between threads, tasks and graphs, and any number of processes may use the same store.

    Messages, the types of LangGraph and what Python brings along are stored as they are. Classes of
    your own (dataclasses, pydantic models, enums, named tuples) must be listed in `allow`, or they
    are refused when they are saved: what a store holds never decides what is imported. With a
    `serde` that is not LangGraph's own, as one that encrypts, all values and metadata go through
    it.
    """

    def __init__(
        self,
        store: Store | AsyncStore,
        *,
        serde: SerializerProtocol | None = None,
        allow: Allow = (),
    ) -> None:
        if not isinstance(store, Store | AsyncStore):
            raise InvalidInput(f"a saver needs a store. type=`{type(store).__name__}`")
        super().__init__(serde=strict_serde(serde))
        self._sync = store.sync
        self._aio = store.aio
        self._set_shape(Allowed(_allowed_by(self.serde)), allow)

    def _set_shape(self, allowed: Allowed, extra: Allow) -> None:
        sealed = not isinstance(self.serde, JsonPlusSerializer)
        shape = Shape(self.serde, allowed.with_(extra), sealed)
        tools = self._sync.driver.tools
        self._desk = Desk(Codec(shape, MessageCache(), Reader(shape)), tools, Heads(), WarmStates())

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> "LimpetSaver":
        """Return a saver over the same store that allows these classes, too."""
        clone = copy.copy(self)
        if isinstance(self.serde, JsonPlusSerializer):
            clone.serde = maybe_add_typed_methods(
                self.serde.with_msgpack_allowlist(extra_allowlist)
            )
        clone._set_shape(self._desk.codec.shape.allowed, extra_allowlist)
        return clone

    # One checkpoint

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, else the latest; None if there is none.

        The latest is the one with the greatest id. Its writes are in the order in which LangGraph
        applies them.
        """
        return self._sync.driver.run(checkpoints.get(self._desk, config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async twin of `get_tuple`."""
        return await self._aio.driver.run(checkpoints.get(self._desk, config))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, durably, as one step, and return the config that names it.

        The checkpoint that the config names is its parent. One that is there already is replaced.
        Two from one parent both stay.

        Raises:
            InvalidInput: a value could not be read back as it is; the message has its path.
        """
        verb = checkpoints.put(self._desk, config, checkpoint, metadata)
        return _named(config, self._sync.driver.drive(verb).id)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async twin of `put`."""
        verb = checkpoints.put(self._desk, config, checkpoint, metadata)
        return _named(config, (await self._aio.driver.drive(verb)).id)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote, durably, as one step; its checkpoint need not be there yet.

        What the task wrote before stays, so that one that is run again keeps its first result.
        Only errors, interrupts and what they are resumed with are replaced.
        """
        self._sync.driver.drive(
            checkpoints.put_writes(self._desk, config, writes, task_id, task_path)
        )

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Async twin of `put_writes`."""
        await self._aio.driver.drive(
            checkpoints.put_writes(self._desk, config, writes, task_id, task_path)
        )

    # Many

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of a thread, or of one of its namespaces, the greatest id first.

        Without a config those of all threads, the last saved first. `filter` is what the metadata
        must hold, `before` names a checkpoint: only smaller ids follow. Lazy; holds no lock.
        """
        walk = listing.checkpoints(self._desk, config, filter=filter, before=before, limit=limit)
        return self._sync.driver.stream(walk)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async twin of `list`."""
        walk = listing.checkpoints(self._desk, config, filter=filter, before=before, limit=limit)
        async for found in self._aio.driver.stream(walk):
            yield found

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        """Return what channels that keep deltas are made of, at the checkpoint a config names.

        For each its `writes` along the ancestors, the oldest first, and the `seed` that they begin
        with, if there is one. A few reads, whatever the number of ancestors.
        """
        return self._sync.driver.run(history.delta_history(self._desk, config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        """Async twin of `get_delta_channel_history`."""
        return await self._aio.driver.run(history.delta_history(self._desk, config, channels))

    def threads(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> Iterator[str]:
        """Yield the ids of threads in text order, those greater than `after`. Lazy."""
        return self._sync.driver.stream(listing.threads(prefix, after, limit))

    async def athreads(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> AsyncIterator[str]:
        """Async twin of `threads`."""
        async for found in self._aio.driver.stream(listing.threads(prefix, after, limit)):
            yield found

    def sizes(self, thread_id: str) -> Stats:
        """Count what a thread holds, and name what is biggest in it."""
        return self._sync.driver.run(upkeep.stats(str(thread_id)))

    async def asizes(self, thread_id: str) -> Stats:
        """Async twin of `sizes`."""
        return await self._aio.driver.run(upkeep.stats(str(thread_id)))

    # Removing and copying

    def delete_thread(self, thread_id: str) -> None:
        """Remove all checkpoints and writes of a thread. Idempotent."""
        self._sync.driver.drive(pruning.delete_thread(self._desk, thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Async twin of `delete_thread`."""
        await self._aio.driver.drive(pruning.delete_thread(self._desk, thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints and writes of some runs, in all threads.

        What stays is as it was: also channels that keep deltas, and the nearest ancestor that stays
        becomes the parent of what followed.
        """
        self._sync.driver.drive(pruning.delete_for_runs(self._desk, run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async twin of `delete_for_runs`."""
        await self._aio.driver.drive(pruning.delete_for_runs(self._desk, run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to another one. May be repeated."""
        self._sync.driver.drive(pruning.copy_thread(self._desk, source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async twin of `copy_thread`."""
        await self._aio.driver.drive(
            pruning.copy_thread(self._desk, source_thread_id, target_thread_id)
        )

    def prune(
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int | None = None,
        older_than: timedelta | None = None,
    ) -> None:
        """Remove all checkpoints of some threads but the latest of each namespace.

        With `keep_last` and `older_than`, only what is outside the newest `keep_last` **and** older
        than that; the latest always stays. With the strategy "delete" nothing stays. Channels that
        keep deltas are not harmed.
        """
        self._sync.driver.drive(self._prune(thread_ids, strategy, keep_last, older_than))

    async def aprune(
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int | None = None,
        older_than: timedelta | None = None,
    ) -> None:
        """Async twin of `prune`."""
        await self._aio.driver.drive(self._prune(thread_ids, strategy, keep_last, older_than))

    def _prune(
        self,
        thread_ids: Sequence[str],
        strategy: str,
        keep_last: int | None,
        older_than: timedelta | None,
    ) -> Any:
        return pruning.prune(
            self._desk, thread_ids, strategy=strategy, keep_last=keep_last, older_than=older_than
        )

    def expire(
        self, older_than: timedelta, *, prefix: str = "", limit: int | None = None
    ) -> Sequence[str]:
        """Remove whole threads in which nothing was saved for so long, and return their ids.

        Neither a checkpoint, in any namespace, nor a note, as what a task wrote; one that somebody
        holds stays, too. It counts when something was saved, also if it is older: threads that were
        imported or copied begin anew. `limit` bounds how many are removed.

        A thread that is saved to meanwhile stays: that is looked at right before it is removed, and
        a latest checkpoint that comes even then stays. Other things that are saved in that very
        moment, after so long, go with the thread; and of one that is saved to while its namespaces
        are removed one by one, those that came before are gone.
        """
        return self._sync.driver.drive(
            expiring.expire(self._desk, older_than, prefix=prefix, limit=limit)
        )

    async def aexpire(
        self, older_than: timedelta, *, prefix: str = "", limit: int | None = None
    ) -> Sequence[str]:
        """Async twin of `expire`."""
        verb = expiring.expire(self._desk, older_than, prefix=prefix, limit=limit)
        return await self._aio.driver.drive(verb)

    def get_next_version(self, current: str | float | None, channel: None = None) -> str:
        """Return the version that follows: a count, and chance, so that no two forks share one."""
        if current is None:
            count = 0
        elif isinstance(current, str):
            count = int(current.partition(".")[0])
        else:
            count = int(current)
        chance = self._desk.tools.draw().bits % 10**16
        return f"{count + 1:032}.0.{chance:016}"


def _named(config: RunnableConfig, checkpoint_id: str) -> RunnableConfig:
    """Return the config that names a checkpoint just stored, with the caller's own thread id."""
    scope = records.scope_in(config)
    named = records.config_of(scope, checkpoint_id)
    named["configurable"]["thread_id"] = config["configurable"]["thread_id"]
    return named


def _allowed_by(serde: Any) -> Allow:
    found = getattr(serde, "_allowed_msgpack_modules", None)
    return found if isinstance(found, set) else ()
