"""Threads of one process that write to one SQLite file queue up, instead of trying again."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Store, Unavailable
from limpet.backends.sqlite.file import SqliteFile
from limpet.backends.support import queue

WAIT_S = 0.5
SLOW_S = 60.0  # however slow the disk is
THREADS = 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with limpet.open(f"sqlite:///{path}", lock_wait_s=WAIT_S) as store:
        yield store


def file_of(store: Store) -> SqliteFile:
    file = store.driver.opened.backend._file  # type: ignore[attr-defined]
    assert isinstance(file, SqliteFile)
    return file


def test_no_caller_in_the_queue_tries_in_vain(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "_WAIT_S_MAX", SLOW_S)
    store = limpet.open(f"sqlite:///{path}", lock_wait_s=SLOW_S)
    file, pauses = file_of(store), 0

    def pause(_: float) -> None:
        nonlocal pauses
        pauses += 1

    monkeypatch.setattr(file, "_clock", file._clock._replace(sleep=pause))

    def work(thread: int) -> None:
        scope = store.scope("s", f"line-{thread}")
        for number in range(30):
            scope.save({"n": number})

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    assert pauses == 0
    assert len(list(store.scopes())) == THREADS
    store.close()


def test_the_queue_does_not_add_up_the_waiting(store: Store, path: Path) -> None:
    """Who waits for the file behind others that do so waits no longer than they do."""

    def work(thread: int) -> float:
        start = time.monotonic()
        with pytest.raises(Unavailable, match="other writers hold the file"):
            store.scope("s", f"line-{thread}").save({})
        return time.monotonic() - start

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(THREADS) as pool:
            waited = list(pool.map(work, range(THREADS)))
        other.execute("ROLLBACK")
    assert min(waited) >= WAIT_S
    assert max(waited) < (THREADS - 1) * WAIT_S
    store.scope("s").save({})


def test_a_thread_that_takes_long_is_waited_for_as_others_are(store: Store) -> None:
    """As one in whose middle a signal handler asks another thread to save, and waits for it."""

    with file_of(store).transaction(write=True):
        start = time.monotonic()
        with ThreadPoolExecutor(1) as pool, pytest.raises(Unavailable, match="other writers"):
            pool.submit(store.scope("s").save, {}).result(timeout=20)
        assert time.monotonic() - start < 4 * WAIT_S
    store.scope("s").save({})


def test_a_lock_that_an_interrupt_left_behind_is_forgotten(store: Store) -> None:
    threads = file_of(store)._queue
    left = threads._lock
    left.acquire()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(store.scope("s").save, {}).result(timeout=20)
    assert threads._lock is not left


def test_a_write_inside_a_write_is_refused(store: Store) -> None:
    """As that of a signal handler, which would wait for itself for good."""

    ended: list[Any] = []

    def write() -> None:
        with file_of(store).transaction(write=True):
            with pytest.raises(Unavailable, match="other writers hold the file"):
                store.scope("s").save({})
            ended.append("done")

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    thread.join(20 * WAIT_S)
    assert ended == ["done"]
    store.scope("s").save({})


def test_a_failed_write_lets_the_next_one_through(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt), file_of(store).transaction(write=True):
        raise KeyboardInterrupt
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(store.scope("s").save, {"n": 1}).result(timeout=10).id
