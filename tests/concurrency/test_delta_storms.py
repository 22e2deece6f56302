"""Many write to the same scopes at once, so that groups of states are closed under contention.

Whoever reads meanwhile gets exactly what was saved, and so does whoever reads at the end.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Store
from tests.concurrency import storm
from tests.concurrency.crew import Worker, url_of
from tests.concurrency.storm import SESSION, SHARED, Own

SCRIPT = Path(storm.__file__)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def url_at(path: Path) -> str:
    # No process is killed here, so waiting for the disk would only make the storm slower.
    return f"{url_of(path)}?synchronous=off"


def begin(stack: ExitStack, task: str, url: str, numbers: range, message: object) -> list[Worker]:
    workers = [stack.enter_context(Worker(SCRIPT, task, url, n, message)) for n in numbers]
    for worker in workers:
        assert worker.hear() == "ready"
    for worker in workers:
        worker.tell("go")
    return workers


def verify(path: Path, owns: list[Own]) -> None:
    """See that exactly what the writers know of is there, and that nothing is wrong with it."""
    with limpet.open(url_at(path)) as store:
        expected: dict[str, dict[str, str]] = {name: {} for name in SHARED}
        for own in owns:
            for name, digests in own.items():
                expected.setdefault(name, {}).update(digests)
        expected.pop("pruned", None)
        for name, digests in expected.items():
            scope = store.scope(SESSION, name)
            ids = [info.id for info in scope.history()]
            assert sorted(ids) == list(scope.ids()) == sorted(digests), name
            for found in scope.load_many(ids):
                storm.check(found)
                assert storm.digest(found.state) == digests[found.id], f"{name} {found.id}"
        for info in store.scopes(SESSION):
            head = store.scope(*info.key).load()
            if head is not None and info.key.scope_id != "items":
                storm.check(head)
        assert [found for found in store.check() if found.severity != "info"] == []
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def rage(path: Path, *, writers: range, count: int, readers: int) -> None:
    with limpet.open(url_at(path)) as store, ExitStack() as stack:
        looking = begin(stack, "read", url_at(path), range(100, 100 + readers), "")
        writing = begin(stack, "write", url_at(path), writers, count)
        owns = [worker.hear() for worker in writing]
        store.scope("control").set_note("done", True)
        loaded = [worker.hear() for worker in looking]
    assert min(loaded) > 100, "the readers did not read beside the writers"
    verify(path, owns)


@pytest.mark.slow
def test_processes_write_and_read_the_same_scopes(path: Path) -> None:
    """Promises 2, 3 and 5: four processes write what two others read."""
    rage(path, writers=range(4), count=30, readers=2)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(6))
def test_a_longer_storm(path: Path, seed: int) -> None:
    rage(path, writers=range(10 * seed, 10 * seed + 6), count=120, readers=3)


def check_appended(store: Store, writers: int, count: int) -> None:
    """See that every state in history is the one before it and one item more."""
    scope = store.scope(SESSION, "items")
    history = [info.id for info in scope.history()][::-1]
    states = [found.state for found in scope.load_many(history)]
    final = states[-1]["items"]
    storm.check_items(final)
    assert len(states) == len(final) == writers * count
    for length, state in enumerate(states, 1):
        assert state == {"items": final[:length]}
    assert [found for found in store.check() if found.severity != "info"] == []


def test_processes_append_to_one_list(path: Path) -> None:
    """Promise 6, and that each state in between reads back exactly."""
    writers, count = 4, 60
    with limpet.open(url_at(path)) as store, ExitStack() as stack:
        workers = begin(stack, "append_items", url_at(path), range(writers), count)
        assert [worker.hear() for worker in workers] == [count] * writers
        check_appended(store, writers, count)
    with limpet.open(url_at(path)) as store:
        check_appended(store, writers, count)


def in_threads(*works: Callable[[], Any]) -> list[Any]:
    """Do all of it at once; return the answers, or raise the first error."""
    answers: list[Any] = [None] * len(works)
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(works))

    def run(at: int) -> None:
        barrier.wait()
        try:
            answers[at] = works[at]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return answers


def threads_and_tasks(path: Path, *, count: int, tasks: int) -> None:
    with limpet.open(url_at(path)) as store:
        owns = in_threads(
            lambda: storm.write(store, 1, count),
            lambda: storm.write(store, 2, count),
            lambda: asyncio.run(storm.write_async(store.aio, 3, tasks)),
            lambda: asyncio.run(storm.write_async(store.aio, 4, tasks)),
        )
    verify(path, owns)


def test_threads_and_tasks_share_a_store(path: Path) -> None:
    """What the store remembers of a scope is never another moment's, in threads and in tasks."""
    threads_and_tasks(path, count=25, tasks=64)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_threads_and_tasks_share_a_store_for_long(path: Path) -> None:
    threads_and_tasks(path, count=250, tasks=800)


def test_threads_append_and_read_one_list(path: Path) -> None:
    """Appends with nothing but the tail at hand, beside reads of every moment of the past."""
    writers, count = 3, 60
    stop = threading.Event()

    def read(store: Store) -> int:
        seen = 0
        while not stop.is_set():
            for found in store.scope(SESSION, "items").load_many(
                info.id for info in store.scope(SESSION, "items").history(limit=40)
            ):
                storm.check_items(found.state["items"])
                seen += 1
        return seen

    with limpet.open(url_at(path)) as store:
        reader = threading.Thread(target=read, args=(store,))
        reader.start()
        try:
            works = [
                lambda number=number: storm.append_items(store, number, count)
                for number in range(writers)
            ]
            assert in_threads(*works) == [count] * writers
        finally:
            stop.set()
            reader.join()
        check_appended(store, writers, count)


def test_opening_the_file_again_lets_go_of_no_lock(path: Path) -> None:
    """A process that closes any handle of a file loses all its locks on it, also SQLite's.

    Then another process takes itself for the last one, deletes the log that is still in use, and
    what is acknowledged from there on is lost.
    """
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
        check_appended(store, 1, 1)
