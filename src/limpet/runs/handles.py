"""The handles by which a worker uses its run, sync and async."""

import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import Any

from limpet.api import leases
from limpet.api.aio_scope import AsyncLease
from limpet.api.aio_scope import hold as hold_async
from limpet.api.driver import awaited
from limpet.api.opened import Opened, Tools
from limpet.api.scope import Lease
from limpet.api.scope import hold as hold_sync
from limpet.api.store import AsyncStore, Store
from limpet.api.verbs import Steps
from limpet.api.verbs import info as read_info
from limpet.api.watching import Dispatcher, Subscription
from limpet.errors import Conflict, LimpetError
from limpet.model import JSON, ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Hold, Target, Topic
from limpet.runs.attempt import Attempt, Plan, check_adoptable
from limpet.runs.model import RUNNING, Aborted
from limpet.runs.processes import is_alive, with_process, without_process


class _AbortWatch:
    """Notices that a run was aborted. The dispatcher fills it, so it needs no thread of its own."""

    def __init__(self, opened: Opened, plan: Plan, attempt: Attempt) -> None:
        self._dispatcher = opened.service(Dispatcher)
        self._attempt = attempt
        self._subscription = Subscription(Topic(Target(plan.scope)), lambda: None, exists=True)
        self.is_over = False  # the run was deleted, or the store is closed

    def __enter__(self) -> "_AbortWatch":
        self._dispatcher.add(self._subscription)
        return self

    def __exit__(self, *error: object) -> None:
        self._dispatcher.remove(self._subscription)

    def poll(self) -> None:
        """Report new heads of the run to the attempt."""
        with suppress(LimpetError):  # the watch has failed: the next step will raise why
            news, is_over = self._subscription.take()
            for info in news:
                self._attempt.observe(info)
            self.is_over = self.is_over or is_over


class _Waiting:
    """What a worker learns about its run while it waits for the lease."""

    def __init__(self, scope: ScopeKey) -> None:
        self._scope = scope
        self.seen: SnapshotInfo | None = None  # the head, while it was running

    def inspect(self, held: Hold) -> Steps[leases.Holder]:
        def work(backend: Backend) -> tuple[SnapshotInfo | None, bool | None]:
            return backend.read_info(self._scope, None), is_alive(held.owner)

        head, alive = yield work
        if head is not None and head.status == RUNNING:
            self.seen = head
        return leases.Holder(without_process(held.owner), alive)


class _RunHandle:
    """What `Run` and `AsyncRun` share."""

    def __init__(
        self, driver: Any, attempt: Attempt, lease: Lease | AsyncLease, watch: _AbortWatch
    ) -> None:
        """Made by `start` and `adopt`."""
        self.driver = driver
        self._attempt = attempt
        self._lease = lease
        self._watch = watch

    @property
    def run_id(self) -> str:
        """The name of the run, which is also the id of its session."""
        return self._lease.session_id

    @property
    def state(self) -> JSON:
        """The last state that was saved before this worker began; else `initial`, or None.

        It is the worker's own copy.
        """
        return self._attempt.state

    @property
    def resumed(self) -> bool:
        """Whether an earlier attempt, of this or another worker, began this run."""
        return self._attempt.resumed

    @property
    def completed(self) -> bool:
        """Whether the run had completed before this worker got it: there is nothing to do.

        A worker that waited for another one finds out by this. The block may return or go on, but
        it cannot save a step: `start(..., again=True)` begins another round.
        """
        return self._attempt.completed

    @property
    def info(self) -> SnapshotInfo:
        """The snapshot that this worker wrote last."""
        return self._attempt.last

    @property
    def aborted(self) -> bool:
        """Whether the run was aborted. Needs no I/O, so a loop may check it often."""
        self._watch.poll()
        return self._attempt.aborted

    def check(self) -> None:
        """Raise if the next step would be refused.

        Raises:
            Aborted: the run was aborted.
            Conflict: the lease has passed to another worker, or the run was deleted, has completed
                or has ended.
        """
        self._attempt.check_not_ended()
        if self.aborted:
            raise Aborted(f"the run was aborted. run_id=`{self.run_id}`")
        if self._watch.is_over:
            raise Conflict(f"the run was deleted. run_id=`{self.run_id}`")
        if self._attempt.superseded or leases.is_lost(self._lease):
            raise Conflict(f"the lease has passed to another worker. run_id=`{self.run_id}`")


class Run(_RunHandle):
    """A run that this worker holds. Made by `start` and `adopt`; one step at a time::

    with runs.start(store, "import", initial={"rows": 0}) as run:
        while not run.completed and run.state["rows"] < 1000:
            run.state["rows"] += load_rows(run.state["rows"])
            run.step(run.state)
    """

    def step(
        self,
        state: JSON,
        *,
        keep: bool = False,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> SnapshotInfo:
        """Save the state of the run: a worker that resumes it continues from here.

        The lease is renewed in the background, so steps may be far apart::

            run.step({"pages": pages}, keep=True, labels={"phase": "draft"})

        Args:
            state: the whole state, as for `Scope.save`.
            keep: leave it in history; otherwise the next step replaces it.
            labels: for this step only, in addition to those of the run.
            metadata: for this step only, in addition to that of the run.

        Raises:
            Aborted: the run was aborted. Nothing was saved.
            Conflict: the lease has passed to another worker, another program wrote to the scope of
                the run, the run has completed, or its block was left. Nothing was saved.
            InvalidInput: an argument is not acceptable. Nothing was saved.
        """
        verb = self._attempt.step(state, keep=keep, labels=labels, metadata=metadata)
        saved: SnapshotInfo = self.driver.drive(verb)
        return saved


class AsyncRun(_RunHandle):
    """Async twin of `Run`."""

    step = awaited(Run.step)


def hold(store: Store | AsyncStore, plan: Plan, ttl_s: float, wait_s: float) -> Any:
    """Return the context manager that holds a run for a block, async for an `AsyncStore`."""
    wanted, waiting = prepare_claim(store.driver.tools, plan.scope, plan.owner, ttl_s, wait_s)
    if isinstance(store, Store):
        return _held(store, plan, hold_sync(store.scope(*plan.scope), wanted), waiting)
    return _held_async(store, plan, hold_async(store.scope(*plan.scope), wanted), waiting)


def prepare_claim(
    tools: Tools, scope: ScopeKey, owner: str, ttl_s: float, wait_s: float
) -> tuple[leases.Wanted, _Waiting]:
    """Return the claim of a worker, which does not wait for a worker that is known to be dead."""
    waiting = _Waiting(scope)
    wanted = leases.prepare(tools, scope, with_process(owner), ttl_s, wait_s)
    return wanted._replace(inspect=waiting.inspect), waiting


@contextmanager
def _held(
    store: Store, plan: Plan, claim: AbstractContextManager[Lease], waiting: _Waiting
) -> Iterator[Run]:
    """Claim a run for a block, and complete or fail it when the block ends."""
    opened = store.driver.opened
    if plan.adopts:
        check_adoptable(plan.scope, store.driver.run(read_info(plan.scope, None)))
    with claim as lease:
        attempt = Attempt(opened.tools, plan, lease.token, waiting.seen)
        store.driver.drive(attempt.begin())
        with _AbortWatch(opened, plan, attempt) as watch:
            try:
                yield Run(store.driver, attempt, lease, watch)
            except BaseException as error:
                if not sys.is_finalizing():  # see `hold` in api/leases.py
                    store.driver.drive(attempt.fail(error))
                raise
            finally:
                attempt.ended = True
            store.driver.drive(attempt.succeed())


@asynccontextmanager
async def _held_async(
    store: AsyncStore,
    plan: Plan,
    claim: AbstractAsyncContextManager[AsyncLease],
    waiting: _Waiting,
) -> AsyncIterator[AsyncRun]:
    """Async twin of `_held`."""
    opened = store.driver.opened
    if plan.adopts:
        check_adoptable(plan.scope, await store.driver.run(read_info(plan.scope, None)))
    async with claim as lease:
        attempt = Attempt(opened.tools, plan, lease.token, waiting.seen)
        await store.driver.drive(attempt.begin())
        with _AbortWatch(opened, plan, attempt) as watch:
            try:
                yield AsyncRun(store.driver, attempt, lease, watch)
            except BaseException as error:
                await store.driver.drive(attempt.fail(error))
                raise
            finally:
                attempt.ended = True
            await store.driver.drive(attempt.succeed())
