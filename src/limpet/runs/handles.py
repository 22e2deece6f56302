"""The handles by which a worker uses its run, sync and async."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Generic

from limpet.api import leases
from limpet.api.driver import NotEntered, awaited
from limpet.api.opened import Opened, Tools
from limpet.api.store import AsyncStore, Store
from limpet.api.verbs import Block, Steps
from limpet.api.verbs import info as read_info
from limpet.api.watching import Dispatcher, Subscription
from limpet.errors import Conflict, LimpetError
from limpet.model import JSON, ScopeKey, SnapshotInfo, State
from limpet.protocol import Backend, Hold, Target, Topic
from limpet.runs.attempt import Attempt, Plan
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
        self.has_begun = False
        self.is_patient = True  # with a holder that may be dead

    def inspect(self, held: Hold) -> Steps[leases.Holder]:
        def work(backend: Backend) -> tuple[SnapshotInfo | None, bool | None]:
            return backend.read_info(self._scope, None), is_alive(held.owner)

        head, alive = yield work
        if head is not None and head.status == RUNNING:
            self.seen = head
        if alive is None and not self.is_patient:
            alive = True
        return leases.Holder(without_process(held.owner), alive)


class _RunHandle(Generic[State]):
    """What `Run` and `AsyncRun` share."""

    def __init__(
        self, driver: Any, attempt: Attempt, term: leases.Term, watch: _AbortWatch
    ) -> None:
        """Made by `start`, `adopt` and `work`."""
        self.driver = driver
        self._attempt = attempt
        self._term = term
        self._watch = watch

    @property
    def run_id(self) -> str:
        """The name of the run, which is also the id of its session."""
        return self._term.claim.scope.session_id

    @property
    def state(self) -> State:
        """The last state that was saved before this worker began; else `initial`, or None.

        It is the worker's own copy, and stays the same object.

        Raises:
            InvalidInput: it does not fit the `model`.
        """
        state: State = self._attempt.state
        return state

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
        if self._attempt.superseded or self._term.is_lost:
            raise Conflict(f"the lease has passed to another worker. run_id=`{self.run_id}`")


class Run(_RunHandle[State]):
    """A run that this worker holds. Made by `start` and `adopt`; one step at a time::

    with runs.start(store, "import", initial={"rows": 0}) as run:
        while not run.completed and run.state["rows"] < 1000:
            run.state["rows"] += load_rows(run.state["rows"])
            run.step(run.state)
    """

    def step(
        self,
        state: State,
        *,
        keep: bool = True,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> SnapshotInfo:
        """Save the state of the run: a worker that resumes it continues from here.

        The lease is renewed in the background, so steps may be far apart::

            run.step({"pages": pages}, labels={"phase": "draft"})

        Args:
            state: the whole state, as for `Scope.save`.
            keep: leave it in history. False saves space: the next step replaces it.
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


class AsyncRun(_RunHandle[State]):
    """Async twin of `Run`."""

    step = awaited(Run[State].step)


def hold(store: Store | AsyncStore, plan: Plan, wait_s: float) -> Any:
    """Return the context manager that holds a run for a block, async for an `AsyncStore`."""
    tools = store.driver.tools
    wanted, waiting = prepare_claim(tools, plan.scope, plan.owner, plan.ttl_s, wait_s)
    return store.driver.block(supervised(store, plan, wanted, waiting))


def prepare_claim(
    tools: Tools, scope: ScopeKey, owner: str, ttl_s: float, wait_s: float
) -> tuple[leases.Wanted, _Waiting]:
    """Return the claim of a worker, which does not wait for a worker that is known to be dead."""
    waiting = _Waiting(scope)
    wanted = leases.prepare(tools, scope, with_process(owner), ttl_s, wait_s)
    return wanted._replace(inspect=waiting.inspect), waiting


def supervised(store: Any, plan: Plan, wanted: leases.Wanted, waiting: _Waiting) -> Steps[None]:
    """Claim a run for a block, and complete or fail it when the block ends."""
    opened: Opened = store.driver.opened
    handle: Any = Run if isinstance(store, Store) else AsyncRun
    if plan.only:
        plan.check_status((yield read_info(plan.scope, None)))

    def inside(term: leases.Term) -> Steps[None]:
        attempt = Attempt(opened.tools, plan, term.claim.key, waiting.seen)
        yield from attempt.begin()
        waiting.has_begun = True
        with _AbortWatch(opened, plan, attempt) as watch:
            try:
                yield Block(handle(store.driver, attempt, term, watch))
            except NotEntered:
                return  # it is in the queue again: a run that lost its worker
            except BaseException as error:
                if not sys.is_finalizing():  # see `hold` in api/leases.py
                    yield from attempt.fail(error)
                raise
            finally:
                attempt.ended = True
            yield from attempt.succeed()

    yield from leases.hold(opened, wanted, inside)
