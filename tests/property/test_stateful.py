"""Random programs with small states that roll early, so that every path of the storage is met.

The conformance suite runs them on every engine as a user opens it, and the planted defects of
`tests/sabotage` show that they find what is wrong.
"""

from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis.stateful import run_state_machine_as_test

from limpet import opening
from limpet.backends.memory import MemoryStorage
from limpet.backends.sqlite.storage import SqliteStorage
from limpet.engine import Engine
from limpet.engine.rolling import Limits
from limpet.engine.states import States
from limpet.protocol import Backend
from limpet.testing.stateful import Lockstep
from simulation.engine import small_states
from tests.buckets.counting import CountingBucket
from tests.buckets.opened import engine_on
from tests.conformance.parts import some
from tests.conformance.test_directory import OBJECT_TAILS
from tests.effort import times

TAILS = Limits(snapshots=3)  # so that most programs roll them


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


@pytest.mark.parametrize("machine", [Sqlite, Objects])
def test_an_engine_does_what_the_model_says(machine: type[Lockstep]) -> None:
    with small_states():
        run_state_machine_as_test(machine, settings=some(8))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("machine", [Memory, Sqlite, Objects])
@pytest.mark.parametrize("small", [False, True])
def test_an_engine_does_what_the_model_says_for_long(machine: type[Lockstep], small: bool) -> None:
    with small_states() if small else nullcontext():
        run_state_machine_as_test(machine, settings=some(times(8, full=5, torture=40), 60))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_directory_does_what_the_model_says_for_long() -> None:
    with small_states():
        run_state_machine_as_test(Directory, settings=some(times(8, full=6, torture=40), 40))
