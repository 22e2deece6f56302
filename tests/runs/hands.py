"""Runs through either face, behind one signature, so that a test is written once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pytest

import limpet
from limpet import JSON, Store, runs
from limpet.core import codec
from limpet.runs import Run, RunInfo
from limpet.runs.attempt import Attempt, Plan
from limpet.runs.verbs import scope_of
from limpet.testing.conformance import Api

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """Where a store is."""

    url: str
    options: Mapping[str, Any]

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]

    def open(self) -> Store:
        return limpet.open(self.url, **self.options)


class Hands:
    """The verbs of runs through one face of a store. The async one is driven in this thread."""

    def __init__(self, face: Api, store: Store) -> None:
        self.store = store
        self._aio = face == "async"
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)

    def __enter__(self) -> "Hands":
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.close()

    def start(self, run_id: str, **options: Any) -> AbstractContextManager[Run]:
        return self._held(runs.start, run_id, **options)

    def adopt(self, run_id: str, **options: Any) -> AbstractContextManager[Run]:
        return self._held(runs.adopt, run_id, **options)

    def abort(self, run_id: str) -> RunInfo:
        return self._wait(runs.abort(self.store.aio, run_id)) if self._aio else self._now(run_id)

    def get(self, run_id: str) -> RunInfo | None:
        if self._aio:
            return self._wait(runs.get(self.store.aio, run_id))
        return runs.get(self.store, run_id)

    def list(self, **options: Any) -> "list[RunInfo]":
        if not self._aio:
            return [*runs.list(self.store, **options)]
        found = runs.list(self.store.aio, **options)

        async def whole() -> "list[RunInfo]":
            return [each async for each in found]

        return self._wait(whole())

    def found(self, run_id: str) -> RunInfo:
        """Return a run that must be there."""
        info = self.get(run_id)
        assert info is not None
        return info

    def _now(self, run_id: str) -> RunInfo:
        return runs.abort(self.store, run_id)

    def _held(
        self, verb: Callable[..., Any], run_id: str, **options: Any
    ) -> AbstractContextManager[Run]:
        if not self._aio:
            return cast(AbstractContextManager[Run], verb(self.store, run_id, **options))
        return self._driven(verb(self.store.aio, run_id, **options))

    @contextmanager
    def _driven(self, manager: Any) -> Iterator[Run]:
        run = self._wait(manager.__aenter__())
        try:
            yield cast(Run, _Driven(run, self._wait))
        except BaseException as error:
            if not self._wait(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self._wait(manager.__aexit__(None, None, None))

    def _wait(self, awaitable: Awaitable[T]) -> T:
        async def whole() -> T:
            return await awaitable

        return self._runner.run(whole())


class _Driven:
    """An `AsyncRun` whose step is awaited to its end."""

    def __init__(self, run: runs.AsyncRun, wait: Callable[[Awaitable[Any]], Any]) -> None:
        self._run = run
        self._wait = wait

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def step(self, state: JSON, **options: Any) -> Any:
        return self._wait(self._run.step(state, **options))


@contextmanager
def ends_with(error: type[BaseException]) -> Iterator[None]:
    """Expect that this leaves the block, after all that is done in it."""
    with pytest.raises(error):
        yield


def desert(
    store: Store, run_id: str, *states: JSON, task: str | None = None, initial: JSON = None
) -> None:
    """Leave behind what a worker leaves that died, after its lease has ended."""
    encoded = None if initial is None else codec.encode(initial, what="state")
    scope = scope_of(run_id)
    plan = Plan(scope, "the dead one", deletes=True, adopts=False, task=task, initial=encoded)
    with store.scope(*plan.scope).claim(owner=plan.owner) as lease:
        attempt = Attempt(store.driver.tools, plan, lease.token)
        store.driver.drive(attempt.begin())
        for state in states:
            store.driver.drive(attempt.step(state, keep=False, labels=None, metadata=None))
