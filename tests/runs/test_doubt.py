"""Answers that are lost, and writes that nobody waits for: a run knows its own again."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from limpet import Store, Unavailable, opening, runs
from limpet.protocol import Commit
from limpet.runs import Aborted
from tests.memory import Memory
from tests.present import present
from tests.runs.hands import ends_with


class Doubtful(Memory):
    """Stores what it is told to, and then loses the answer; or lets it take as long as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.blocking = True  # so that the async API uses its pool
        self.loses = False
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def commit(self, commit: Commit) -> Any:
        stored = super().commit(commit)
        self.reached.set()
        assert self.go_on.wait(300)
        if self.loses:
            self.loses = False
            raise Unavailable("the answer was lost", outcome_known=False)
        return stored


@pytest.fixture
def backend() -> Doubtful:
    return Doubtful()


@pytest.fixture
def store(backend: Doubtful) -> Iterator[Store]:
    with opening.store_over(backend) as store:
        yield store


def lose(backend: Doubtful, run: runs.Run, state: Any) -> None:
    backend.loses = True
    with pytest.raises(Unavailable):
        run.step(state)


def test_a_run_goes_on_after_an_answer_was_lost(backend: Doubtful, store: Store) -> None:
    with runs.start(store, "r", on_success="keep") as run:
        lose(backend, run, 1)
        lose(backend, run, 2)
        run.step(3, keep=True)
        found = present(runs.get(store, "r"))
        assert found.steps == 3


@pytest.mark.parametrize("on_success", ["keep", "delete"])
def test_completing_after_a_lost_answer(backend: Doubtful, store: Store, on_success: Any) -> None:
    with runs.start(store, "r", on_success=on_success) as run:
        lose(backend, run, 1)
    found = runs.get(store, "r")
    assert (found and (found.status, found.steps)) == (
        ("completed", 1) if on_success == "keep" else None
    )


def test_a_run_fails_by_a_lost_answer(backend: Doubtful, store: Store) -> None:
    with ends_with(Unavailable), runs.start(store, "r") as run:
        backend.loses = True
        run.step(1)
    found = present(runs.get(store, "r"))
    assert found.error == runs.RunError("Unavailable", "the answer was lost")
    with runs.start(store, "r") as run:
        assert run.state == 1


def test_an_abort_is_noticed_after_an_answer_was_lost(backend: Doubtful, store: Store) -> None:
    with ends_with(Aborted), runs.start(store, "r") as run:
        lose(backend, run, 1)
        runs.abort(store, "r")


def test_a_cancelled_step_may_have_been_saved(backend: Doubtful, store: Store) -> None:
    async def main() -> None:
        async with runs.start(store.aio, "r", on_success="keep") as run:
            backend.go_on.clear()
            backend.reached.clear()
            step = asyncio.ensure_future(run.step(1))
            await asyncio.to_thread(backend.reached.wait)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await step
            backend.go_on.set()
            await run.step(2)
            found = present(await runs.get(store.aio, "r"))
            assert found.steps == 2

    asyncio.run(main())


def test_a_cancelled_worker_leaves_a_failed_run(backend: Doubtful, store: Store) -> None:
    async def work() -> None:
        async with runs.start(store.aio, "r") as run:
            await run.step(1)
            await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(work())
        while (found := await runs.get(store.aio, "r")) is None or not found.steps:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    found = present(runs.get(store, "r"))
    assert found.error == runs.RunError("CancelledError", "")


def test_an_outage_at_the_end_does_not_hide_the_error(
    backend: Doubtful, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*args: Any, **options: Any) -> Any:
        raise Unavailable("the storage is gone")

    with ends_with(KeyError), runs.start(store, "r"):
        for name in ("commit", "read_snapshots", "release"):
            monkeypatch.setattr(backend, name, gone)
        raise KeyError
