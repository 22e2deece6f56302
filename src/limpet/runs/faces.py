"""A run in the hands of its worker, in both faces."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)

from limpet.api.aio_scope import AsyncLease
from limpet.api.opened import Opened
from limpet.api.scope import Lease
from limpet.api.store import AsyncStore, Store
from limpet.api.verbs import info as read_info
from limpet.api.watching import Dispatcher, Subscription
from limpet.errors import Conflict, LimpetError
from limpet.model import JSON, SnapshotInfo
from limpet.protocol import Target, Topic
from limpet.runs.attempt import Attempt, Plan, check_adoptable
from limpet.runs.model import Aborted


class _Watch:
    """Hears that a run was aborted. The dispatcher fills it, so it needs no thread of its own."""

    def __init__(self, engine: Opened, plan: Plan, attempt: Attempt) -> None:
        self._dispatcher = engine.service(Dispatcher)
        self._attempt = attempt
        self._subscription = Subscription(Topic(Target(plan.scope)), lambda: None, exists=True)
        self.is_over = False  # the run was deleted, or the store is closed

    def __enter__(self) -> "_Watch":
        self._dispatcher.add(self._subscription)
        return self

    def __exit__(self, *error: object) -> None:
        self._dispatcher.remove(self._subscription)

    def look(self) -> None:
        """Let the attempt hear what is new."""
        with suppress(LimpetError):  # nothing is heard any more: the next step will say why
            news, is_over = self._subscription.take()
            for info in news:
                self._attempt.hear(info)
            self.is_over = self.is_over or is_over


class _Held:
    """What both faces show of a run."""

    def __init__(self, attempt: Attempt, lease: Lease | AsyncLease, watch: _Watch) -> None:
        self._attempt = attempt
        self._lease = lease
        self._watch = watch

    @property
    def run_id(self) -> str:
        """The name of the run, which is that of its session."""
        return self._lease.session_id

    @property
    def state(self) -> JSON:
        """The state that was saved last before this worker began; None if there was none.

        It is the worker's own copy.
        """
        return self._attempt.state

    @property
    def resumed(self) -> bool:
        """Whether another worker, or an earlier attempt, began this run."""
        return self._attempt.resumed

    @property
    def info(self) -> SnapshotInfo:
        """The snapshot that this worker wrote last."""
        return self._attempt.last

    @property
    def aborted(self) -> bool:
        """Whether the run was aborted. Costs next to nothing, so a loop may ask often."""
        self._watch.look()
        return self._attempt.aborted

    def check(self) -> None:
        """Raise if there is no use in going on: a step would be refused.

        Raises:
            Aborted: the run was aborted.
            Conflict: the lease has passed to another worker, or the run was deleted.
        """
        if self.aborted:
            raise Aborted(f"the run was aborted. run_id=`{self.run_id}`")
        if self._watch.is_over:
            raise Conflict(f"the run was deleted. run_id=`{self.run_id}`")
        if self._attempt.superseded or self._lease._term.is_lost:
            raise Conflict(f"the lease has passed to another worker. run_id=`{self.run_id}`")


class Run(_Held):
    """A run in the hands of its worker. Made by `start` and `adopt`; one step at a time."""

    def __init__(self, store: Store, attempt: Attempt, lease: Lease, watch: _Watch) -> None:
        """Made by `start` and `adopt`."""
        super().__init__(attempt, lease, watch)
        self._store = store

    def step(
        self,
        state: JSON,
        *,
        keep: bool = False,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> SnapshotInfo:
        """Save the state of the run: whoever resumes it goes on from here.

        With `keep` it stays in history; otherwise the next step takes its place. Labels and
        metadata are those of this one step, beside those of the run. The lease is renewed in the
        background, so that a step may take as long as it likes.

        Raises:
            Aborted: the run was aborted. Nothing was saved.
            Conflict: the lease has passed to another worker, or somebody else wrote at the address
                of the run. Nothing was saved.
        """
        verb = self._attempt.step(state, keep=keep, labels=labels, metadata=metadata)
        return self._store.driver.drive(verb)


class AsyncRun(_Held):
    """Async twin of `Run`."""

    def __init__(
        self, store: AsyncStore, attempt: Attempt, lease: AsyncLease, watch: _Watch
    ) -> None:
        """Made by `start` and `adopt`."""
        super().__init__(attempt, lease, watch)
        self._store = store

    async def step(
        self,
        state: JSON,
        *,
        keep: bool = False,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, JSON] | None = None,
    ) -> SnapshotInfo:
        """Async twin of `Run.step`."""
        verb = self._attempt.step(state, keep=keep, labels=labels, metadata=metadata)
        return await self._store.driver.drive(verb)


@contextmanager
def held(store: Store, plan: Plan, claim: AbstractContextManager[Lease]) -> Iterator[Run]:
    """Take a run, let the caller work on it, and close it according to how that ended."""
    engine = store.driver.opened
    if plan.adopts:
        check_adoptable(plan.scope, store.driver.run(read_info(plan.scope, None)))
    with claim as lease:
        attempt = Attempt(engine.tools, plan, lease.token)
        store.driver.drive(attempt.begin())
        with _Watch(engine, plan, attempt) as watch:
            try:
                yield Run(store, attempt, lease, watch)
            except BaseException as error:
                store.driver.drive(attempt.fail(error))
                raise
            store.driver.drive(attempt.succeed())


@asynccontextmanager
async def held_async(
    store: AsyncStore, plan: Plan, claim: AbstractAsyncContextManager[AsyncLease]
) -> AsyncIterator[AsyncRun]:
    """Async twin of `held`."""
    engine = store.driver.opened
    if plan.adopts:
        check_adoptable(plan.scope, await store.driver.run(read_info(plan.scope, None)))
    async with claim as lease:
        attempt = Attempt(engine.tools, plan, lease.token)
        await store.driver.drive(attempt.begin())
        with _Watch(engine, plan, attempt) as watch:
            try:
                yield AsyncRun(store, attempt, lease, watch)
            except BaseException as error:
                await store.driver.drive(attempt.fail(error))
                raise
            await store.driver.drive(attempt.succeed())
