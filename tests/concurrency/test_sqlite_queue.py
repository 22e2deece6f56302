"""Threads of one process that write to one SQLite file queue up, instead of trying again."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import AlreadyExists, Conflict, InvalidInput, Scope, SnapshotInfo, Store, Unavailable
from limpet.backends.sqlite import joined
from limpet.backends.sqlite.file import SqliteFile
from limpet.backends.sqlite.transaction import WRITE
from limpet.storage import LostAnswer
from tests.waiting import until

WAIT_S = 0.5
SLOW_S = 60.0  # however slow the disk is
THREADS = 6
MANY = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with limpet.open(f"sqlite:///{path}", lock_wait_s=WAIT_S) as store:
        yield store


def file_of(store: Store) -> SqliteFile:
    file = store.driver.opened.backend.storage._file  # type: ignore[attr-defined]
    assert isinstance(file, SqliteFile)
    return file


@pytest.fixture
def patient(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store whose threads wait as long as it takes."""
    monkeypatch.setattr(joined, "_QUEUE_S_MAX", SLOW_S)
    with limpet.open(f"sqlite:///{path}", lock_wait_s=SLOW_S) as store:
        yield store


def test_no_caller_in_the_queue_tries_in_vain(
    patient: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, pauses = file_of(patient), 0

    def pause(_: float) -> None:
        nonlocal pauses
        pauses += 1

    monkeypatch.setattr(file, "_clock", file._clock._replace(sleep=pause))

    def work(thread: int) -> None:
        scope = patient.scope("s", f"line-{thread}")
        for number in range(30):
            scope.save({"n": number})

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    assert pauses == 0
    assert len(list(patient.scopes())) == THREADS


def test_the_queue_does_not_add_up_the_waiting(store: Store, path: Path) -> None:
    """Who waits for the file behind others that do so waits no longer than they do."""

    def work(thread: int) -> float:
        start = time.monotonic()
        with pytest.raises(Unavailable, match="other writers hold the file"):
            store.scope("s", f"line-{thread}").save({})
        return time.monotonic() - start

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(MANY) as pool:
            waited = list(pool.map(work, range(MANY)))
        other.execute("ROLLBACK")
    assert min(waited) >= WAIT_S
    assert max(waited) < MANY * WAIT_S / 2
    store.scope("s").save({})


def test_a_lock_that_an_interrupt_left_behind_is_forgotten(store: Store) -> None:
    threads = file_of(store).joined
    left = threads.lock
    left.acquire()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(store.scope("s").save, {}).result(timeout=300)
    assert threads.lock is not left


def test_a_write_inside_a_write_is_refused(store: Store) -> None:
    """As that of a signal handler, which would wait for itself for good."""

    ended: list[Any] = []

    def write(*_: Any) -> None:
        with pytest.raises(Unavailable, match="other writers hold the file"):
            store.scope("s").save({})
        ended.append("done")

    thread = threading.Thread(target=file_of(store).run, args=(WRITE, write, None), daemon=True)
    thread.start()
    thread.join(20 * WAIT_S)
    assert ended == ["done"]
    store.scope("s").save({})


# Joined writes


def commits_of(store: Store) -> list[str]:
    """Return a list that grows by each COMMIT from now on."""
    said: list[str] = []
    (conn,) = file_of(store)._idle
    conn.set_trace_callback(lambda text: said.append(text) if text == "COMMIT" else None)
    return said


def state_of(scope: Scope, id: str) -> Any:
    found = scope.load(id)
    assert found is not None
    return found.state


def in_line(store: Store, works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run each in a thread of its own, all of them together; return results and errors."""
    file = file_of(store)
    with ThreadPoolExecutor(len(works)) as pool:
        with file.joined.queued():
            futures = []
            for number, work in enumerate(works, 1):
                futures.append(pool.submit(work))
                until(lambda: len(file.joined.waiting) == number)  # noqa: B023
        return [future.exception(timeout=300) or future.result() for future in futures]


def test_saves_that_wait_share_one_commit(patient: Store) -> None:
    patient.scope("s", "line-0").save({"n": 0})
    said = commits_of(patient)
    works = [partial(patient.scope("s", f"line-{n}").save, {"n": n}) for n in range(8)]
    infos = in_line(patient, works)
    assert len(said) == 1
    found = [state_of(patient.scope("s", f"line-{n}"), infos[n].id) for n in range(8)]
    assert found == [{"n": n} for n in range(8)]


def test_one_that_is_refused_leaves_nothing_in_the_others(patient: Store) -> None:
    scopes = [patient.scope("s", f"line-{n}") for n in range(6)]
    for scope in scopes:
        scope.save({"n": 0})
    works: list[Callable[[], Any]] = [partial(scope.save, {"n": 1}) for scope in scopes]
    works[2] = partial(scopes[2].save, {"n": "refused"}, expect=None)
    works[4] = partial(scopes[4].append, "n", ["not a list"])
    scopes[5].save({"n": 1}, id="taken")
    scopes[5].save({"n": 0})
    works[5] = partial(scopes[5].save, {"n": "refused"}, id="taken")  # by the table, half stored
    found = in_line(patient, works)
    assert isinstance(found[5], AlreadyExists)
    assert isinstance(found[2], Conflict)
    assert isinstance(found[4], InvalidInput)
    states = [[state_of(scope, info.id)["n"] for info in scope.history()] for scope in scopes]
    assert states == [[1, 0], [1, 0], [0], [1, 0], [0], [0, 1, 0]]
    assert list(patient.check()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), sqlite3.OperationalError("disk I/O error")])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_ends_the_transaction_of_others_ends_no_save(
    patient: Store, moment: str, error: BaseException
) -> None:
    """Only who leads is interrupted; whatever else is acknowledged is stored, once."""
    scopes = [patient.scope("s", f"line-{n}") for n in range(1, 5)]
    scopes[0].save({"n": 0})
    file = file_of(patient)

    def fail(*_: Any) -> None:
        raise error

    def interrupted() -> None:
        file.joined.run(fail, None)

    works: list[Callable[[], Any]] = [partial(each.save, {"n": 1}) for each in scopes]
    works.insert(0 if moment == "before" else len(works), interrupted)
    found = in_line(patient, works)
    ended = [each for each in found if isinstance(each, BaseException)]
    # Whoever leads; and the one that failed is not told what became of it.
    assert len([each for each in ended if not isinstance(each, LostAnswer)]) == 1
    stored = {info.id for scope in scopes for info in scope.history()}
    assert stored >= {each.id for each in found if isinstance(each, SnapshotInfo)}
    assert len(stored) >= 4
    assert list(patient.check()) == []
