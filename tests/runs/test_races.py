"""An abort against whatever a worker does at the same moment: neither loses what it was told."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import limpet
from limpet import JSON, Conflict, NotFound, Store, runs
from limpet.runs import Aborted
from tests.effort import times
from tests.present import present
from tests.runs.hands import Place, ends_with

ROUNDS = {"memory": 100, "sqlite": 50, "file": 30, "postgresql": 30, "s3": 20}
AT_LENGTH = times(1, full=3, torture=20)
PAUSE_S_MAX = {"s3": 0.02}


def race(place: Place, number: int, *parties: Callable[[], Any]) -> list[Any]:
    """Let all act at the same moment, more or less; return what each got or raised."""
    chance = random.Random(number)
    pause_s = PAUSE_S_MAX.get(place.scheme, 0.001)
    pauses = [chance.uniform(0, pause_s) for _ in parties]
    barrier = threading.Barrier(len(parties))
    answers: list[Any] = [None] * len(parties)

    def act(index: int) -> None:
        barrier.wait()
        time.sleep(pauses[index])
        try:
            answers[index] = parties[index]()
        except limpet.LimpetError as error:
            answers[index] = error

    threads = [threading.Thread(target=act, args=(index,)) for index in range(len(parties))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def state_of(store: Store, run_id: str) -> JSON:
    head = store.scope(run_id, "main", "run").load()
    return None if head is None else head.state


@pytest.mark.long
def test_an_abort_against_steps(place: Place) -> None:
    """The abort holds, and the last step that was acknowledged is what the run shows."""
    met: Counter[str] = Counter()
    with place.open() as store:
        for number in range(AT_LENGTH * ROUNDS[place.scheme]):
            run_id, done = f"r{number}", [0]
            with ends_with(Aborted), runs.start(store, run_id) as run:
                run.step(0)

                def work(run: runs.Run = run, done: list[int] = done) -> None:
                    for n in range(1, 4):
                        run.step(n, keep=n % 2 == 0)
                        done.append(n)

                worked, aborted = race(place, number, work, partial(runs.abort, store, run_id))
                assert worked is None or isinstance(worked, Aborted)
                assert aborted.status == "aborted"
                if worked is None:
                    run.step("more")
            found = present(runs.get(store, run_id))
            assert (found.status, found.steps) == ("aborted", len(done))
            assert state_of(store, run_id) == done[-1]
            met[str(done[-1])] += 1
    assert len(met) > 1, met


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("on_success", ["delete", "keep"])
def test_an_abort_against_completion(place: Place, on_success: Any) -> None:
    """Either the run completes, and the abort finds that; or it is aborted for good."""
    met: Counter[str] = Counter()
    with place.open() as store:
        for number in range(AT_LENGTH * ROUNDS[place.scheme]):
            run_id = f"r{number}"
            manager = runs.start(store, run_id, on_success=on_success)
            manager.__enter__().step(number)
            left, aborted = race(
                place,
                number,
                partial(manager.__exit__, None, None, None),
                partial(runs.abort, store, run_id),
            )
            found = runs.get(store, run_id)
            if isinstance(left, Exception):
                assert isinstance(left, Aborted)
                assert (aborted.status, found and found.status) == ("aborted", "aborted")
                assert state_of(store, run_id) == number
            elif on_success == "delete":
                assert isinstance(aborted, NotFound)
                assert found is None
            else:
                assert (aborted.status, found and found.status) == ("completed", "completed")
            met["aborted" if left else "completed"] += 1
    assert len(met) == 2, met


@pytest.mark.slow
def test_many_workers_and_one_run(place: Place) -> None:
    """One of them gets it each time; nobody's step is lost."""
    done: list[int] = []
    with place.open() as store:

        def work() -> None:
            while len(done) < 20:
                try:
                    with runs.start(store, "r", wait_s=5) as run:
                        assert (run.state or []) == done
                        done.append(len(done))
                        run.step([*done])
                        raise KeyError
                except (KeyError, Conflict):
                    pass

        assert race(place, 1, *[work] * 4) == [None] * 4
        assert state_of(store, "r") == done
        found = present(runs.get(store, "r"))
        assert (found.status, found.attempt, found.steps) == ("failed", len(done), len(done))
