"""Engines wrapped so that a test can set the clock, watch the calls, or get in between."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from limpet import ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Commit, Found


class Layer:
    """Passes everything on to the engine below."""

    def __init__(self, below: Backend) -> None:
        self._below = below

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    @property
    def backend(self) -> Backend:
        return cast(Backend, self)


class Clocked(Layer):
    """Gives each commit the next of the times it was made with."""

    def __init__(self, below: Backend, times: Iterable[int]) -> None:
        super().__init__(below)
        self._times = iter(times)

    def commit(self, commit: Commit) -> SnapshotInfo:
        stamp = commit.stamp._replace(now=next(self._times))
        return self._below.commit(commit._replace(stamp=stamp))


class Watched(Layer):
    """Writes down how many items each call asked for and how many it got."""

    def __init__(self, below: Backend) -> None:
        super().__init__(below)
        self.asked: list[int] = []
        self.answered: list[int] = []

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._below, name)
        if not name.startswith("list_"):
            return member

        def call(*args: Any, limit: int, **options: Any) -> Any:
            return self._seen(limit, member(*args, limit=limit, **options))

        return call

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        found: list[Found] = self._seen(len(ids), self._below.read_snapshots(scope, ids))
        return found

    def _seen(self, asked: int, page: Any) -> Any:
        self.asked.append(asked)
        self.answered.append(len(page))
        return page


class Spoiled(Layer):
    """Reads one snapshot as bytes that are not the ones stored."""

    def __init__(self, below: Backend, snapshot_id: str) -> None:
        super().__init__(below)
        self._bad_id = snapshot_id

    def read_snapshots(self, scope: ScopeKey, ids: Sequence[str | None]) -> list[Found]:
        found = self._below.read_snapshots(scope, ids)
        return [(i, body[:-1] if i.id == self._bad_id else body) for i, body in found]


class Gated(Layer):
    """Holds every commit, once it has begun, until it is let through."""

    blocking = True

    def __init__(self, below: Backend) -> None:
        super().__init__(below)
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.ended = threading.Event()

    def commit(self, commit: Commit) -> SnapshotInfo:
        self.begun.set()
        assert self.gate.wait(30)
        try:
            return self._below.commit(commit)
        finally:
            self.ended.set()


class ClosedMeanwhile(Layer):
    """Closes the store between the check that it is open and the call of the engine."""

    close_in_between: Callable[[], None] | None = None

    @property
    def blocking(self) -> bool:
        if self.close_in_between is not None:
            self.close_in_between()
        return True
