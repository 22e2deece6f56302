"""The stateful machine on our engines, and on broken ones, which it must find out."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from limpet import opening
from limpet.backends.memory import MemoryStorage
from limpet.backends.sqlite.storage import SqliteStorage
from limpet.engine import Engine
from limpet.engine.rolling import Limits
from limpet.engine.states import States
from limpet.model import Pruned, ScopeKey, SnapshotInfo
from limpet.protocol import Backend, Commit, Query
from limpet.testing.oracle import Oracle
from limpet.testing.stateful import Lockstep
from simulation.engine import small_states
from tests.buckets.counting import CountingBucket
from tests.buckets.opened import engine_on


def some(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


TAILS = Limits(snapshots=3)  # so that most programs roll them
OBJECT_TAILS = Limits(snapshots=3, newest_bytes=100, wholes=False)


class Sqlite(Lockstep):
    def open_backend(self, place: Path) -> Backend:
        clock, path = opening.CLOCK, f"{place}/limpet.db"
        # Re-opened by the same system, which forgets nothing: waiting for the disk adds nothing.
        storage = SqliteStorage(path, clock=clock, states=States, synchronous="off")
        return Engine(storage, clock=clock, draw=opening.draw, tails=TAILS)


class Directory(Lockstep):
    text_order = False  # of names: docs/format.md

    def open_backend(self, place: Path) -> Backend:
        bucket = opening.open_files(f"file://{place}/store", sync=False)
        return engine_on(bucket, tails=OBJECT_TAILS)


class Objects(Lockstep):
    text_order = False

    def __init__(self) -> None:
        self._bucket = CountingBucket()
        super().__init__()

    def open_backend(self, place: Path) -> Backend:
        return engine_on(self._bucket, tails=OBJECT_TAILS, compress=True)


class Memory(Lockstep):
    def open_backend(self, place: Path) -> Backend:
        return Engine(MemoryStorage(), clock=opening.CLOCK, draw=opening.draw, tails=TAILS)


@pytest.mark.parametrize("machine", [Memory, Sqlite, Objects])
def test_an_engine_does_what_the_oracle_does(machine: type[Lockstep]) -> None:
    with small_states():
        run_state_machine_as_test(machine, settings=some(8, 30))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("machine", [Memory, Sqlite, Objects])
@pytest.mark.parametrize("small", [False, True])
def test_an_engine_does_what_the_oracle_does_for_long(machine: type[Lockstep], small: bool) -> None:
    with small_states() if small else nullcontext():
        run_state_machine_as_test(machine, settings=some(40, 60))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_directory_does_what_the_oracle_does_for_long() -> None:
    with small_states():
        run_state_machine_as_test(Directory, settings=some(40, 40))


# The machine must find what is broken. Each of these engines has one fault that is easily made.


class NotesStay(Oracle):
    def delete_snapshots(
        self,
        scope: ScopeKey,
        ids: Sequence[str],
        *,
        spare_head: bool = False,
        fence: str | None = None,
    ) -> Pruned:
        notes = dict(self._scopes[scope].notes) if scope in self._scopes else {}
        pruned = super().delete_snapshots(scope, ids, spare_head=spare_head, fence=fence)
        if scope in self._scopes:
            self._scopes[scope].notes = notes
        return pruned


class HeadIsPruned(Oracle):
    def delete_snapshots(
        self,
        scope: ScopeKey,
        ids: Sequence[str],
        *,
        spare_head: bool = False,
        fence: str | None = None,
    ) -> Pruned:
        newest = self._scopes[scope].newest_kept() if spare_head and scope in self._scopes else None
        more = [] if newest is None else [newest.id]
        return super().delete_snapshots(scope, [*ids, *more], fence=fence)


class DraftsHaveChildren(Oracle):
    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        found = super().list_snapshots(query, limit=limit)
        if query.leaves and query.scope is not None:
            head = self.read_info(query.scope, None)
            found = [info for info in found if head is None or info.id != head.parent_id]
        return found


class NamesAreTaken(Oracle):
    def commit(self, commit: Commit) -> SnapshotInfo:
        return super().commit(commit._replace(new_scope=False))


class OverwriteMoves(Oracle):
    def commit(self, commit: Commit) -> SnapshotInfo:
        if commit.overwrite and commit.id is not None:
            self.delete_snapshots(commit.scope, [commit.id])
        return super().commit(commit)


class CursorsRepeat(Oracle):
    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        after = None if query.after is None or query.scope is None else query.after + 1
        return super().list_snapshots(query._replace(after=after or query.after), limit=limit)


class PrefixIsIgnored(Oracle):
    def list_snapshots(self, query: Query, *, limit: int) -> list[SnapshotInfo]:
        return super().list_snapshots(query._replace(prefix=""), limit=limit)


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine",
    [
        NotesStay,
        pytest.param(HeadIsPruned, marks=pytest.mark.slow),
        DraftsHaveChildren,
        NamesAreTaken,
        OverwriteMoves,
        CursorsRepeat,
        PrefixIsIgnored,
    ],
)
def test_a_broken_engine_is_found_out(engine: Callable[[], Backend]) -> None:
    class Broken(Lockstep):
        def open_backend(self, place: Path) -> Backend:
            return engine()

    once = settings(some(100, 30), phases=[Phase.generate], derandomize=True, database=None)
    with pytest.raises(AssertionError, match=r"the answers differ|what they show"):
        run_state_machine_as_test(Broken, settings=once)
