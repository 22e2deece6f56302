"""Leases between real processes: never two writers, and a holder that wakes too late does nothing.

A holder is stopped and killed by signals, at moments of its own choosing or of chance.
"""

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from limpet import Conflict, Lease, Scope, Store
from tests.concurrency.crew import SIZE, Worker
from tests.concurrency.pg_tools import Background, everything
from tests.concurrency.sleepers import go_on, stop, stop_between_writes
from tests.waiting import until
from tests.watching.tools import on
from tests.watching.worker import WRITES

TTL_S = 0.5


@contextmanager
def hired(url: str, *names: str) -> Iterator[list[Worker]]:
    """Start processes that have the store open."""
    with ExitStack() as stack:
        module = "tests.watching.worker"
        workers = [stack.enter_context(Worker(module, url, name)) for name in names]
        assert [worker.hear() for worker in workers] == ["ready"] * len(names)
        yield workers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "rounds"),
    [
        ("sqlite", 32),
        ("directory", 16),
        ("postgres", 16),
        pytest.param("sqlite", 200, marks=pytest.mark.slow),
        pytest.param("directory", 200, marks=pytest.mark.slow),
        pytest.param("postgres", 200, marks=pytest.mark.slow),
        pytest.param("s3", 64, marks=pytest.mark.slow),
    ],
    indirect=["url"],
)
def test_there_are_never_two_writers(url: str, store: Store, rounds: int) -> None:
    """Eight processes contend by both APIs; each finds what the one before it left, alone."""
    names = [f"w{number}" for number in range(SIZE)]
    with hired(url, *names) as workers:
        for number, worker in enumerate(workers):
            worker.tell([("contend", "contend_async")[number % 2], rounds // SIZE])
        assert [worker.hear() for worker in workers] == [rounds // SIZE] * SIZE

    head = store.scope("s").load()
    assert head is not None
    log = head.state["log"]
    assert head.state["count"] == rounds
    assert [what for _, what in log] == ["begin", "end"] * rounds
    assert [who for who, _ in log[::2]] == [who for who, _ in log[1::2]]
    assert {who for who, _ in log} == set(names)
    with store.scope("s").claim(owner="all have given it back"):
        pass


@on()
def test_a_holder_that_wakes_too_late_changes_nothing(url: str, store: Store) -> None:
    """Whatever it writes is Conflict; and it does not give back what is another's by then."""
    scope = store.scope("s")
    with hired(url, "sleeper") as (sleeper,):
        token = sleeper.ask(["hold", TTL_S])
        stop_between_writes(sleeper, url, "s")
        with scope.claim(owner="other", ttl_s=30, wait_s=60) as lease:
            assert lease.token != token
            lease.save({"by": "other"}, id="third")
            lease.set_note("own", 1)
            before = everything(store)
            go_on(sleeper)
            assert sleeper.ask("write") == dict.fromkeys(WRITES, "Conflict")
            assert sleeper.ask("release") == "released"
            assert everything(store) == before

            with pytest.raises(Conflict), scope.claim(owner="third"):
                pass
            lease.save({"by": "other"}, id="fourth")
            assert lease.update("first", lambda s: s.with_(status="seen")) is not None
            lease.delete_note("own")
        with scope.claim(owner="third"):  # it was given back by the one who held it
            pass
    assert list(scope.ids()) == ["first", "fourth", "second", "third"]


class Robbery:
    """A holder saves on and on; it is stopped at a random moment, and its lease passes on."""

    def __init__(self, store: Store, holder: Worker, session: str, after_s: float) -> None:
        self.scope: Scope = store.scope(session)
        self._holder = holder
        self._after_s = after_s
        self._taken = threading.Event()

    def run(self) -> bool:
        """Return whether it was taken while the holder slept."""
        asked = {"session": self.scope.session_id, "ttl_s": TTL_S}
        assert self._holder.ask(["save_on", asked]) == "begun"
        time.sleep(self._after_s)  # a moment of chance, not something waited for
        stop(self._holder)
        thief = Background(self._take)
        # A holder that sleeps inside a transaction keeps its lock: then nobody gets the lease
        # before it wakes, perhaps to renew it.
        asleep = self._taken.wait(3 * TTL_S)
        go_on(self._holder)
        if not asleep and not self._taken.wait(TTL_S / 2):
            self._holder.tell("stop")
        thief.result()
        return asleep

    def _take(self) -> None:
        with self.scope.claim(owner="thief", ttl_s=30, wait_s=60) as lease:
            before = self._shown()
            self._taken.set()
            how, saved = self._holder.hear()
            assert self._shown() == before, "something was stored after the lease had passed on"
            assert before[1][:1] == [before[0]]
            # What it saved last may be there although it never heard so.
            assert before[1][::-1][: len(saved)] == saved
            assert len(before[1]) <= len(saved) + 1
            if how == "Conflict":
                self._check_mine(lease)

    def _shown(self) -> tuple[str, list[str]]:
        head = self.scope.info()
        assert head is not None
        return head.id, [info.id for info in self.scope.history()]

    def _check_mine(self, lease: Lease) -> None:
        last = lease.save({"by": "thief"})
        assert self.scope.info() == last


# A file has one writer at a time: one that sleeps there holds up all the others.
STOPS = {"sqlite": (1, 2), "directory": (2, 1), "postgres": (2, 1)}
MORE_STOPS = {"sqlite": (1, 20), "directory": (4, 5), "postgres": (4, 5), "s3": (4, 5)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "plan"),
    [
        *STOPS.items(),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE_STOPS.items()),
    ],
    indirect=["url"],
)
def test_a_holder_that_is_stopped_inside_a_save(
    url: str, store: Store, plan: tuple[int, int]
) -> None:
    """Once another's claim was acknowledged no save of the old holder appears, begun or not."""
    size, rounds = plan
    chance = random.Random(7)
    asleep: list[Any] = []
    with hired(url, *(f"w{number}" for number in range(size))) as workers:
        for number in range(rounds):
            robberies = [
                Robbery(store, worker, f"{number}-{at}", chance.uniform(0.05, 0.5))
                for at, worker in enumerate(workers)
            ]
            asleep += [each.result() for each in [Background(each.run) for each in robberies]]
    assert any(asleep) or len(asleep) < 10  # it may hold a lock whenever it is stopped
    assert [each for each in store.check() if each.severity == "error"] == []


@on()
def test_a_holder_that_is_killed(url: str, store: Store) -> None:
    """Another gets the lease when it has lapsed, not before, and finds all that was saved."""
    scope = store.scope("s")
    granted: list[float] = []

    def take() -> list[str]:
        with scope.claim(owner="heir", wait_s=60):
            granted.append(time.time())
            return [info.id for info in scope.history()][::-1]

    ttl_s = 0.6
    worker = Worker("tests.watching.worker", url, "victim")
    try:
        assert worker.hear() == "ready"
        worker.tell(["report", ttl_s])
        said = [worker.hear() for _ in range(3)]
        heir = Background(take)
        until(lambda: time.time() > said[0][1] + 0.2)  # it has been renewed since, or is lost
        killed = time.time()
        worker.process.kill()
        assert worker.process.stdout is not None
        said += [json.loads(line) for line in worker.process.stdout if line.endswith("\n")]
    finally:
        worker.process.kill()
        worker.end()

    found = heir.result()
    saved = [id for id, _ in said]
    assert found[: len(saved)] == saved
    assert len(found) <= len(saved) + 1
    assert granted[0] > max(ends for _, ends in said) - 0.05
    assert granted[0] < killed + ttl_s + 20
