"""Storms: everything at once on scopes whose states build on each other, on SQLite and PostgreSQL.

Whoever reads meanwhile gets exactly what was saved, and so does whoever reads at the end.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Store
from tests.concurrency import storm
from tests.concurrency.crew import Worker, url_of
from tests.concurrency.pg_tools import Background
from tests.concurrency.storm import SESSION, SHARED, Own
from tests.effort import times
from tests.servers.postgres import with_option


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        # No process is killed here, so waiting for the disk would only make the storm slower.
        return f"{url_of(tmp_path / 'store.db')}?synchronous=off"
    # Deadlocks are noticed at once: each would cost a second.
    quick = "-c%20deadlock_timeout%3D30ms"
    return with_option(request.getfixturevalue("postgres_url"), "options", quick)


def begin(stack: ExitStack, task: str, url: str, numbers: range, message: object) -> list[Worker]:
    workers = [stack.enter_context(Worker(storm.__name__, task, url, n, message)) for n in numbers]
    for worker in workers:
        assert worker.hear() == "ready"
    for worker in workers:
        worker.tell("go")
    return workers


def together(*works: Callable[[], Any]) -> list[Any]:
    return [each.result() for each in [Background(work) for work in works]]


def is_well(store: Store) -> bool:
    return [found for found in store.check() if found.severity != "info"] == []


def verify(url: str, owns: list[Own]) -> None:
    """See that exactly what the writers know of is there, and that with it everything goes."""
    expected: dict[str, dict[str, str]] = {name: {} for name in SHARED}
    for own in owns:
        for name, digests in own.items():
            expected.setdefault(name, {}).update(digests)
    expected.pop("pruned", None)
    with limpet.open(url) as store:
        for name, digests in expected.items():
            scope = store.scope(SESSION, name)
            ids = [info.id for info in scope.history()]
            assert sorted(ids) == list(scope.ids()) == sorted(digests), name
            for found in scope.load_many(ids):
                storm.check(found)
                assert storm.digest(found.state) == digests[found.id], f"{name} {found.id}"
        for info in store.scopes(SESSION):
            assert info.key.scope_id in {*expected, "pruned"}
            head = store.scope(*info.key).load()
            # None where all were deleted, and what was saved since then stands aside.
            assert (head is None) == (info.head is None)
            if head is not None:
                storm.check(head)
        assert is_well(store)
        store.compact()
        assert is_well(store)
        store.delete_session(SESSION)
        store.delete_session("control")
        assert list(store.check()) == []


def rage(url: str, *, numbers: range, count: int, readers: int) -> None:
    """Let processes with two threads each write, and others read, until all is written."""
    with limpet.open(url) as store, ExitStack() as stack:
        looking = begin(stack, "read", url, range(100, 100 + readers), "")
        writing = begin(stack, "write", url, numbers, count)
        owns = [own for worker in writing for own in worker.hear()]
        store.scope("control").set_note("done", True)
        loaded = [worker.hear() for worker in looking]
    assert min(loaded) > 100, "the readers did not read beside the writers"
    verify(url, owns)


@pytest.mark.slow
def test_a_family_in_a_storm(url: str) -> None:
    """Promises 2, 3 and 5: processes with two threads each, on forks of forks of forks."""
    rage(url, numbers=range(3), count=22, readers=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.torture) for n in range(1, 6))]
)
def test_a_family_in_a_longer_storm(url: str, seed: int) -> None:
    rage(url, numbers=range(10 * seed + 1, 10 * seed + 5), count=120, readers=2)


def test_threads_and_tasks_share_a_store(url: str) -> None:
    """What the store remembers of a scope is never another moment's, in threads and in tasks."""
    count, tasks = times(15, full=60), times(40, full=200)
    with limpet.open(url) as store:
        owns = together(
            lambda: storm.Writer(store, 1).run(count),
            lambda: storm.Writer(store, 2).run(count),
            lambda: asyncio.run(storm.write_async(store.aio, 3, tasks)),
            lambda: asyncio.run(storm.write_async(store.aio, 4, tasks)),
        )
    verify(url, owns)


@pytest.mark.slow
def test_repair_during_writes(url: str) -> None:
    """Others wait while a part is mended, and nothing that they are about to write is touched."""
    ended = threading.Event()

    def mend() -> list[Own]:
        rounds = 0
        while not ended.is_set() or rounds < 3:
            assert [each for each in other.repair() if each.severity != "info"] == []
            rounds += 1
        return []

    def write() -> list[Own]:
        try:
            return together(*(lambda n=n: storm.Writer(store, n).run(15) for n in (5, 6, 7)))
        finally:
            ended.set()

    with limpet.open(url) as store, limpet.open(url) as other:
        owns, _ = together(write, mend)
    verify(url, owns)


def check_appended(store: Store, writers: int, count: int) -> None:
    """See that every state in history is the one before it and one item more."""
    scope = store.scope(SESSION, "items")
    states = [found.state for found in scope.load_many(scope.ids())]
    final = states[-1]["items"]
    storm.check_items(final)
    assert len(states) == len(final) == writers * count
    for length, state in enumerate(states, 1):
        assert state == {"items": final[:length]}
    assert is_well(store)


def test_processes_append_to_one_list(url: str) -> None:
    """Promise 6, and that each state in between reads back exactly, also meanwhile."""
    writers, count = 3, 40
    with limpet.open(url) as store, ExitStack() as stack:
        looking = begin(stack, "read", url, range(1), "")
        workers = begin(stack, "append_items", url, range(writers), count)
        assert [worker.hear() for worker in workers] == [count] * writers
        store.scope("control").set_note("done", True)
        assert [worker.hear() for worker in looking] > [0]
        check_appended(store, writers, count)
    with limpet.open(url) as store:
        check_appended(store, writers, count)


def test_opening_the_file_again_lets_go_of_no_lock(tmp_path: Path) -> None:
    """A process that closes any handle of a file loses all its locks on it, also SQLite's.

    Then another process takes itself for the last one, deletes the log that is still in use, and
    what is acknowledged from there on is lost.
    """
    path = tmp_path / "store.db"
    with limpet.open(url_of(path)) as store:
        store.scope(SESSION, "mine").save({"n": 0}, id="0")
        limpet.open(url_of(path)).close()
        with ExitStack() as stack:  # another process opens the file, writes and closes it
            (worker,) = begin(stack, "append_items", url_of(path), range(1), 1)
            assert worker.hear() == 1
        store.scope(SESSION, "mine").save({"n": 1}, id="1")
        assert path.with_name(path.name + "-wal").exists()
        check_appended(store, 1, 1)
    with limpet.open(url_of(path)) as store:
        assert list(store.scope(SESSION, "mine").ids()) == ["0", "1"]
