"""The checker itself: it accepts engines that are right, and none that is wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from limpet.backends.buckets.protocol import Bucket
from limpet.core import codec
from limpet.errors import Conflict
from limpet.model import ANY, Pruned, ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Clock, Commit, Found, NoteWrite, Query, Stamp
from simulation import ASSERTED, SCENARIOS, simulate
from simulation.world import Opener
from tests.cases import for_each
from tests.effort import times
from tests.memory import Memory
from tests.simulation.one_object import OneObjectBackend

RUNS = times(8, full=20)
SEEDS_MAX = 300


class Yielding:
    """An engine whose every call is one step that others may come before and after."""

    def __init__(self, inner: Any, bucket: Any) -> None:
        self._inner = inner
        self._step: Callable[[], None] = bucket._storage.step

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)

        def yielding(*arguments: Any, **options: Any) -> Any:
            self._step()
            try:
                return call(*arguments, **options)
            finally:
                self._step()

        return yielding


def shared(engine: Any) -> Opener:
    """Return an opener that gives all processes one engine in memory."""

    def opener(bucket: Bucket, clock: Clock, draw: Callable[[], Stamp]) -> Backend:
        backend: Any = Yielding(engine, bucket)
        return backend  # type: ignore[no-any-return]

    return opener


@for_each("scenario", SCENARIOS)
def test_what_is_one_step_is_accepted(scenario: str) -> None:
    for seed in range(RUNS):
        run = simulate(scenario, "none", seed, shared(Memory()))
        assert not run.broken, run.report()


def one_object(bucket: Bucket, clock: Clock, draw: Callable[[], Stamp]) -> Backend:
    backend: Any = OneObjectBackend(bucket, clock, draw)
    return backend  # type: ignore[no-any-return]


# It has no protection for forks.
@pytest.mark.parametrize("mode", ASSERTED)
@for_each("scenario", [name for name in SCENARIOS if name not in "HTZ"])
def test_what_survives_every_fault_is_accepted(scenario: str, mode: str) -> None:
    for seed in range(RUNS // 4):
        run = simulate(scenario, mode, seed, one_object)
        assert not run.broken, run.report()


class IgnoresExpect(Memory):
    def commit(self, commit: Commit) -> SnapshotInfo:
        return super().commit(commit._replace(expect=ANY))


class LosesUpdates(Memory):
    def commit(self, commit: Commit) -> SnapshotInfo:
        if commit.replaces is None:
            return super().commit(commit)
        info = self.read_info(commit.scope, commit.id)
        return super().commit(commit._replace(replaces=info.revision if info else "0.0.0"))


class AppliesTwice(Memory):
    def commit(self, commit: Commit) -> SnapshotInfo:
        info = super().commit(commit)
        if commit.id is None and commit.keep and not commit.again and commit.source is None:
            super().commit(commit._replace(expect=ANY))
        return info


class RefusesForNothing(Memory):
    calls = 0

    def commit(self, commit: Commit) -> SnapshotInfo:
        self.calls += 1
        if self.calls > 5 and commit.replaces is not None:
            raise Conflict("for no reason")
        return super().commit(commit)


class RefusesAndStores(Memory):
    calls = 0

    def commit(self, commit: Commit) -> SnapshotInfo:
        self.calls += 1
        info = super().commit(commit)
        if self.calls == 5:
            raise Conflict("it is stored all the same")
        return info


class ReadsThePast(Memory):
    past: list[Found] | None = None

    def read_snapshots(self, scope: ScopeKey, ids: Any) -> list[Found]:
        now = super().read_snapshots(scope, ids)
        if list(ids) != [None]:
            return now
        past, self.past = self.past, now
        return now if past is None else past


class ShowsTheWrongState(Memory):
    def read_snapshots(self, scope: ScopeKey, ids: Any) -> list[Found]:
        return [(info, codec.encode({"log": []})) for info, _ in super().read_snapshots(scope, ids)]


class HidesOne(Memory):
    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        found = super().list_snapshots(query, limit=limit)
        return found[:1] + found[2:]


class TurnsAround(Memory):
    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        return super().list_snapshots(query, limit=limit)[::-1]


class DeletesNothing(Memory):
    def delete_snapshots(self, scope: ScopeKey, ids: Any, **options: Any) -> Pruned:
        return Pruned(len(ids), 0)


class DeletesTheHead(Memory):
    def delete_snapshots(self, scope: ScopeKey, ids: Any, **options: Any) -> Pruned:
        return super().delete_snapshots(scope, ids)


class KeepsSessions(Memory):
    def delete_session(self, session_id: str) -> int:
        return 0


class ForgetsLabels(Memory):
    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        return [] if query.labels else super().list_snapshots(query, limit=limit)


class ForgetsNotes(Memory):
    def write_note(self, write: NoteWrite) -> Any:
        note = super().write_note(write)
        self.delete_note(write.scope, write.name, on=write.on)
        return note


class KeepsNotes(Memory):
    def delete_note(
        self, scope: ScopeKey, name: str, *, on: str | None, fence: str | None = None
    ) -> int:
        return 1


class IgnoresFence(Memory):
    def commit(self, commit: Commit) -> SnapshotInfo:
        return super().commit(commit._replace(fence=None))


WRONG: list[tuple[type[Memory], str]] = [
    (IgnoresExpect, "A"),
    (IgnoresFence, "I"),
    (LosesUpdates, "B"),
    (AppliesTwice, "A"),
    (RefusesForNothing, "B"),
    (RefusesAndStores, "A"),
    (ReadsThePast, "A"),
    (ShowsTheWrongState, "A"),
    (HidesOne, "A"),
    (TurnsAround, "A"),
    (DeletesNothing, "C"),
    (DeletesTheHead, "E"),
    (KeepsSessions, "D"),
    (ForgetsLabels, "G"),
    (ForgetsNotes, "F"),
    (KeepsNotes, "F"),
]


@for_each("engine, scenario", WRONG)
def test_what_is_wrong_is_caught(engine: type[Memory], scenario: str) -> None:
    for seed in range(SEEDS_MAX):
        if simulate(scenario, "none", seed, shared(engine())).broken:
            return
    pytest.fail(f"nothing was noticed in {SEEDS_MAX} runs")
