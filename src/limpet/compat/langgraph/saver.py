"""`LimpetSaver`: LangGraph's checkpoints in an opened store.

The methods only run the functions of `checkpoints`, `listing`, `history` and `pruning`.
"""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from types import SimpleNamespace
from typing import Any, Concatenate, ParamSpec, TypeVar

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

from limpet import AsyncStore, Store
from limpet.compat.langgraph import checkpoints, history, listing, pruning, records, upstream
from limpet.compat.langgraph.checkpoints import SaverContext
from limpet.compat.langgraph.classes import (
    Allow,
    Allowed,
    imported,
)
from limpet.compat.langgraph.concurrent import Concurrent, RunGuard
from limpet.compat.langgraph.decode import ValueDecoder
from limpet.compat.langgraph.messages import MessageCache
from limpet.compat.langgraph.openable import Openable
from limpet.compat.langgraph.records import ValueCodec
from limpet.compat.langgraph.serde import ValueRules, safe_serde
from limpet.compat.wire import check_store
from limpet.model import Stats

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")


def _twin(method: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[Any, P], Any]:
    """Return the async twin of a method: its body, with the async driver."""

    @wraps(method)
    def twin(self: Any, /, *args: P.args, **options: P.kwargs) -> Any:
        return method(self._async, *args, **options)

    twin.__name__ = f"a{method.__name__}"
    twin.__qualname__ = f"LimpetSaver.{twin.__name__}"
    twin.__doc__ = f"Async twin of `{method.__name__}`."
    return twin


class LimpetSaver(Openable, BaseCheckpointSaver[str]):
    """A checkpointer over an opened store, which the caller closes.

    It takes a `Store` or an `AsyncStore` and has sync and async methods in either case. It may be
    shared between threads, tasks and graphs; any number of processes may use the same store.

    Messages, LangGraph's types and Python's own types are stored exactly. Your own classes
    (dataclasses, pydantic models, enums, named tuples) must be allowed, or saving them raises
    InvalidInput: what a store holds never decides what is imported. `allow` takes the schema of the
    graph, which allows all classes that it refers to, or a list of schemas, classes and (module,
    name). With a `serde` that is not LangGraph's own, such as one that encrypts, all values and
    metadata go through it. One that may pickle is refused.

    `concurrent` is what happens if two runs are active on one thread. "refuse": the run that did
    not see what the other one saved raises Conflict, and nothing is lost. "wait": a run waits until
    the other one has ended. "allow": as with LangGraph's savers, the turns of one of them are lost.
    """

    def __init__(
        self,
        store: Store | AsyncStore,
        *,
        serde: SerializerProtocol | None = None,
        allow: Allow = (),
        concurrent: Concurrent = "refuse",
    ) -> None:
        check_store(store)
        super().__init__(serde=safe_serde(serde))
        self._sync = store.sync
        self._aio = store.aio
        self._guard = RunGuard(concurrent, self._sync.driver.opened)
        self._set_allowed(Allowed(allow).with_(upstream.allowed_modules(self.serde)))

    def _set_allowed(self, allowed: Allowed) -> None:
        rules = ValueRules(self.serde, allowed, not isinstance(self.serde, JsonPlusSerializer))
        codec = ValueCodec(rules, MessageCache(), ValueDecoder(rules))
        self._context = SaverContext(codec, self._sync, self._guard)
        # What the methods use; and their async twins.
        self._driver = self._sync.driver
        aio = self._aio.driver
        self._async = SimpleNamespace(_context=self._context, _driver=aio, _call=aio.in_pool)

    def _call(self, fn: Callable[Q, T], *args: Q.args, **options: Q.kwargs) -> T:
        """Call a function that makes many calls; async in a thread of the pool."""
        return fn(*args, **options)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> "LimpetSaver":
        """Return a saver over the same store that allows these classes, and those of their fields.

        In its strict mode LangGraph calls this with the classes of a graph's schema, for each run.
        """
        allowed = self._context.codec.rules.allowed
        if allowed.includes(extra_allowlist):
            return self
        clone = copy.copy(self)
        if isinstance(self.serde, JsonPlusSerializer):
            clone.serde = maybe_add_typed_methods(
                self.serde.with_msgpack_allowlist(extra_allowlist)
            )
        clone._set_allowed(allowed.with_([*extra_allowlist, *imported(extra_allowlist)]))
        return clone

    # One checkpoint

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, else the latest; None if there is none.

        The latest is the one with the greatest id. Pending writes are in the order in which
        LangGraph applies them.
        """
        return self._driver.drive(checkpoints.get_tuple(self._context, config))

    aget_tuple = _twin(get_tuple)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint, durably and atomically, and return the config that names it.

        Its parent is the checkpoint that `config` names. A checkpoint with the same id is replaced.
        Two children of one parent both stay.

        Raises:
            Conflict: it is saved by a run, and another one has continued the thread meanwhile,
                unless `concurrent="allow"`. Nothing was saved.
            InvalidInput: a value cannot be stored exactly; the message has its path.
        """
        return self._driver.drive(
            checkpoints.put(self._context, config, checkpoint, metadata, new_versions)
        )

    aput = _twin(put)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save what a task wrote, durably and atomically; its checkpoint need not exist yet.

        Earlier writes of the task stay: one that runs again keeps its first result. Only errors,
        interrupts and resume values are replaced.
        """
        return self._driver.drive(
            checkpoints.put_writes(self._context, config, writes, task_id, task_path)
        )

    aput_writes = _twin(put_writes)

    # Listing

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of a thread or of one namespace, the greatest id first.

        Without a config: of all threads, the last saved first. `filter` has values that the
        metadata must have; with `before`, only smaller ids are listed. Lazy; holds no lock.
        """
        walk = listing.list_checkpoints(
            self._context, config, filter=filter, before=before, limit=limit
        )
        return self._driver.stream(walk)

    alist = _twin(list)  # noqa: A003 - the method

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, Any]:
        """Return what the values of delta channels are made of, at the checkpoint of a config.

        For each channel the `writes` of the ancestors, oldest first, and the `seed` before them, if
        there is one. Takes a few reads for any number of ancestors.
        """
        return self._call(history.delta_history, self._context, config, channels)

    aget_delta_channel_history = _twin(get_delta_channel_history)

    def threads(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> Iterator[str]:
        """Yield the ids of threads that are greater than `after`, in text order. Lazy."""
        walk = listing.list_threads(self._context, prefix=prefix, after=after, limit=limit)
        return self._driver.stream(walk)

    athreads = _twin(threads)

    def sizes(self, thread_id: str) -> Stats:
        """Return how many checkpoints and bytes a thread has, and its largest parts."""
        return self._call(self._context.store.stats, records.session_of(thread_id))

    asizes = _twin(sizes)

    # Removing and copying

    def delete_thread(self, thread_id: str) -> None:
        """Remove all checkpoints and writes of a thread. Idempotent."""
        return self._call(pruning.delete_thread, self._context, thread_id)

    adelete_thread = _twin(delete_thread)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints and writes of some runs, in all threads.

        The others keep their values, delta channels too. Where a parent is removed, the nearest
        ancestor that stays becomes the parent.
        """
        return self._call(pruning.delete_for_runs, self._context, run_ids)

    adelete_for_runs = _twin(delete_for_runs)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to another one. May be repeated."""
        return self._call(pruning.copy_thread, self._context, source_thread_id, target_thread_id)

    acopy_thread = _twin(copy_thread)

    def prune(
        self,
        thread_ids: Sequence[str],
        *,
        strategy: str = "keep_latest",
        keep_last: int | None = None,
        older_than: timedelta | None = None,
    ) -> None:
        """Remove all checkpoints of some threads except the latest of each namespace.

        With `keep_last` and `older_than`, only those that are not among the newest `keep_last`
        **and** older than that; the latest always stays. The strategy "delete" removes all. The
        values of delta channels are kept.
        """
        return self._call(pruning.prune, self._context, thread_ids, strategy, keep_last, older_than)

    aprune = _twin(prune)

    def expire(
        self, older_than: timedelta, *, prefix: str = "", limit: int | None = None
    ) -> Sequence[str]:
        """Remove whole threads in which nothing was saved for so long, and return their ids.

        Checkpoints of all namespaces and notes count, by the time when they were saved here, also
        if they were imported or copied. A thread that a worker holds stays. `limit` bounds how many
        are removed.

        Each thread is checked right before it is removed, and a new latest checkpoint is never
        removed. Other writes that arrive in that moment are. Namespaces are removed one by one:
        if a thread is saved to meanwhile, those that came first are gone.
        """
        return self._call(pruning.expire, self._context, older_than, prefix, limit)

    aexpire = _twin(expire)

    def get_next_version(self, current: str | float | None, channel: None = None) -> str:
        """Return the next version: a count and a random part, so that no two forks share one."""
        self._guard.settle()
        if current is None:
            count = 0
        elif isinstance(current, str):
            count = int(current.partition(".")[0])
        else:
            count = int(current)
        random = self._context.tools.draw().bits % 10**16
        return f"{count + 1:032}.0.{random:016}"
