"""The stateful machine on our engines, and on broken ones, which it must find out."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast import opening
from holdfast.backends.memory import MemoryBackend
from holdfast.model import Pruned, ScopeKey, SnapshotInfo
from holdfast.protocol import Backend, Commit, Query
from holdfast.testing.stateful import Lockstep


def some(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


class Sqlite(Lockstep):
    def open_backend(self, place: Path) -> Backend:
        # Re-opened by the same system, which forgets nothing: waiting for the disk adds nothing.
        return opening.open_backend(f"sqlite:///{place}/holdfast.db", synchronous="off")


class Memory(Lockstep):
    def open_backend(self, place: Path) -> Backend:
        return MemoryBackend()


def test_sqlite_does_what_memory_does() -> None:
    run_state_machine_as_test(Sqlite, settings=some(30, 30))


def test_memory_does_what_memory_does() -> None:
    run_state_machine_as_test(Memory, settings=some(10, 20))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sqlite_does_what_memory_does_for_long() -> None:
    run_state_machine_as_test(Sqlite, settings=some(300, 60))
