"""Runs through either API, behind one signature, so that a test is written once."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import limpet
from limpet import JSON, Store, runs
from limpet.core import codec
from limpet.runs import RunInfo
from limpet.runs.attempt import Attempt, Plan
from limpet.runs.verbs import scope_of
from limpet.testing.conformance import Api
from limpet.testing.kit import close_loop, driven


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
    """The verbs of runs through one API of a store."""

    def __init__(self, api: Api, store: Store) -> None:
        self.store = store
        self._given = store.aio if api == "async" else store

    def __enter__(self) -> "Hands":
        return self

    def __exit__(self, *error: object) -> None:
        close_loop()

    def __getattr__(self, verb: str) -> Any:
        return partial(driven(getattr(runs, verb)), self._given)

    def list(self, **options: Any) -> "list[RunInfo]":
        return [*driven(runs.list)(self._given, **options)]

    def work(self, **options: Any) -> Iterator[Any]:
        for claim in driven(runs.work)(self._given, **options):
            yield driven(lambda claim=claim: claim)()

    def found(self, run_id: str) -> RunInfo:
        """Return a run that must be there."""
        info: RunInfo | None = self.get(run_id)
        assert info is not None
        return info


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
    plan = Plan(scope, task, initial=encoded, owner="the dead one", deletes=True)
    with store.scope(*plan.scope).claim(owner=plan.owner) as lease:
        attempt = Attempt(store.driver.tools, plan, lease.token)
        store.driver.drive(attempt.begin())
        for state in states:
            store.driver.drive(attempt.step(state, keep=False, labels=None, metadata=None))
