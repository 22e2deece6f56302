"""The class `LimpetStore`. Its methods only run the functions of `batch`."""

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import Future

from langgraph.store.base import BaseStore, IndexConfig, Op, Result, TTLConfig

from limpet.api.opened import start_thread
from limpet.api.store import AsyncStore, Store
from limpet.compat.langgraph.store import batch, records
from limpet.compat.langgraph.store.batch import Embed, StoreContext
from limpet.compat.langgraph.store.semantic import Index
from limpet.compat.wire import check_store
from limpet.errors import InvalidInput, LimpetError

_SWEEP_MINUTES = 5.0
_log = logging.getLogger("limpet")


class LimpetStore(BaseStore):
    """LangGraph's long-term memory over an opened store, which the caller closes.

    ::

        with limpet.open("sqlite:///agents.db") as store:
            graph = builder.compile(
                checkpointer=LimpetSaver(store), store=LimpetStore(store)
            )

    It takes a `Store` or an `AsyncStore` and has sync and async methods in either case. It may be
    shared between threads, tasks and graphs; any number of processes may use the same store.

    A namespace is a session, an item a note of it, so that `limpet ls`, `copy` and `export` see
    them. A put is durable when it returns; of several the last one counts, and `created_at` stays.
    In a batch all reads come before the writes. Those of one namespace are one step, except on
    directories and S3. What is read is the caller's own copy.

    Items that have expired are never returned; `sweep_ttl` removes them. Reading an item extends
    its time to live, but is no update of it.

    With an `index` items are found by meaning: vectors are stored with them, and searched exactly.
    Items without vectors follow those that have some, without a score.
    """

    supports_ttl = True

    def __init__(
        self,
        store: Store | AsyncStore,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        """Take an opened store; `index` and `ttl` are as in LangGraph's own stores."""
        check_store(store)
        super().__init__()
        self._sync = store.sync
        self._aio = store.aio
        self.index_config = index
        self.ttl_config = ttl
        default_ttl = (ttl or {}).get("default_ttl")
        if default_ttl is not None:
            records.expiry_of(default_ttl, 0)
        found = None if index is None else Index(index)
        self.embeddings = None if found is None else found.embeddings
        self._context = StoreContext(self._sync.driver.tools, found)
        self._stop: threading.Event | None = None
        self._sweeper: threading.Thread | None = None

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations, reads before writes; return a result for each, None for a put.

        Raises:
            InvalidInput: a namespace, key, value or filter is not acceptable; nothing was written.
        """
        given = list(ops)
        work = batch.single(self._context, given)
        if work is not None:
            return self._sync.driver.run(work)
        one = self.embeddings
        embed = None if one is None else Embed(one.embed_documents, one.embed_query)
        return self._sync.driver.drive(batch.run(self._context, given, embed))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Async twin of `batch`."""
        given = list(ops)
        work = batch.single(self._context, given)
        if work is not None:
            return await self._aio.driver.run(work)
        one = self.embeddings
        embed = None if one is None else Embed(one.aembed_documents, one.aembed_query)
        return await self._aio.driver.drive(batch.run(self._context, given, embed))

    def sweep_ttl(self) -> int:
        """Delete the items that have expired, and return how many.

        One that is put or read at that moment stays.
        """
        return self._sync.driver.drive(batch.sweep(self._context))

    async def asweep_ttl(self) -> int:
        """Async twin of `sweep_ttl`."""
        return await self._aio.driver.drive(batch.sweep(self._context))

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> "Future[None]":
        """Sweep at intervals in a thread, until `stop_ttl_sweeper` or the store is closed.

        The interval is that of the `ttl` configuration, else 5 minutes. Returns a future that is
        done when the sweeper has ended.
        """
        if self._sweeper is not None and self._sweeper.is_alive():
            raise InvalidInput("the sweeper of this store runs already: stop_ttl_sweeper() ends it")
        configured = (self.ttl_config or {}).get("sweep_interval_minutes")
        pause_s = 60 * float(sweep_interval_minutes or configured or _SWEEP_MINUTES)
        stop = self._stop = threading.Event()
        ended: Future[None] = Future()

        def sweep() -> None:
            while not stop.wait(pause_s):
                try:
                    self.sweep_ttl()
                except LimpetError:
                    _log.exception("expired items could not be deleted; the sweeper tries again")
            ended.set_result(None)

        self._sync.driver.opened.at_close(stop.set)
        self._sweeper = start_thread(sweep, "limpet-sweeper")
        return ended

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """End the sweeper, and return whether it has ended within `timeout` seconds."""
        if self._stop is None or self._sweeper is None:
            return True
        self._stop.set()
        self._sweeper.join(timeout)
        return not self._sweeper.is_alive()
