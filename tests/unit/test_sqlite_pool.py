"""The connections of one SQLite store: how they are set up, how many there are, how they end."""

import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Store
from limpet.backends.sqlite.file import SqliteFile
from limpet.backends.sqlite.in_place import Connection
from limpet.backends.sqlite.transaction import READ, WRITE
from limpet.engine import Engine
from tests.cases import for_each


def path_in(folder: Path) -> Path:
    return folder / "store.db"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return path_in(tmp_path)


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with limpet.open(f"sqlite:///{path}") as store:
        yield store


def file_of(store: Store) -> SqliteFile:
    file = store.driver.opened.backend.storage._file  # type: ignore[attr-defined]
    assert isinstance(file, SqliteFile)
    return file


def descriptors(path: Path) -> int:
    """Return how many descriptors of this process lead to the database, its log or its index."""
    files = [os.stat(file) for file in path.parent.iterdir()]
    known = {(file.st_dev, file.st_ino) for file in files}
    count = 0
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # the listing itself used one
            found = os.fstat(int(name))
            count += (found.st_dev, found.st_ino) in known
    return count


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run a function in several threads, which all begin together."""
    begin = threading.Barrier(count)

    def run(number: int) -> Any:
        begin.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@for_each(
    "option, synchronous",
    [("", 2), ("?synchronous=full", 2), ("?synchronous=normal", 1)],
    path=path_in,
)
def test_every_connection_keeps_the_promises(path: Path, option: str, synchronous: int) -> None:
    """Promise 1: whichever connection a write gets, it syncs at each commit unless told else."""
    names = ("synchronous", "journal_mode", "auto_vacuum", "trusted_schema")
    together = threading.Barrier(6)

    def settings(conn: Connection, together: threading.Barrier) -> tuple[Any, ...]:
        together.wait()  # so that each of the threads has a connection of its own
        return tuple(conn.execute(f"PRAGMA {name}").fetchone()[0] for name in names)

    with limpet.open(f"sqlite:///{path}{option}") as store:
        store.scope("s").save({"a": 1})
        found = at_once(6, lambda _: file_of(store).run(READ, settings, together))
        assert found == [(synchronous, "wal", 2, 0)] * 6
        idle = file_of(store)._idle
        assert len(idle) == 6
        assert len({id(conn) for conn in idle}) == 6
        written = file_of(store).run(WRITE, settings, threading.Barrier(1))
        assert written == found[0]


def test_connections_are_as_many_as_calls_at_once(store: Store, path: Path) -> None:
    """32 threads with many calls need at most 32 connections; one thread needs one."""
    for number in range(50):
        store.scope("s").save({"n": number})
        assert store.scope("s").load() is not None
    assert len(file_of(store)._idle) == 1

    def work(thread: int) -> None:
        scope = store.scope("s", f"line-{thread}")
        for number in range(10):
            scope.save({"n": number})
            assert scope.load() is not None
            assert next(scope.history()) is not None

    at_once(32, work)
    once = len(file_of(store)._idle)
    assert once <= 32
    at_once(32, work)
    assert len(file_of(store)._idle) <= 32
    assert descriptors(path) <= 3 * 33
    store.close()
    assert descriptors(path) == 0


def test_close_does_not_end_a_call_that_waits(path: Path) -> None:
    """A write that waits for another process when the store is closed is still done.

    So is one that waits behind it in this process: both have begun.
    """
    store = limpet.open(f"sqlite:///{path}")
    store.scope("s").save({"n": 0})
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        other.execute("BEGIN IMMEDIATE")
        begun = [pool.submit(store.scope("s").append, "items", [number]) for number in range(2)]
        wait_until_waiting(2)
        store.close()
        other.execute("ROLLBACK")
        saved = {end.result().id for end in begun}
    assert descriptors(path) == 0
    with limpet.open(f"sqlite:///{path}") as again:
        assert {info.id for info in again.scope("s").history(limit=2)} == saved


def wait_until_waiting(count: int) -> None:
    """Wait until that many threads are about to save."""
    code = Engine.commit.__wrapped__.__code__  # type: ignore[attr-defined]
    inside = 0
    while inside < count:
        inside = 0
        for top in sys._current_frames().values():
            frame = top
            while frame is not None and frame.f_code is not code:
                frame = frame.f_back  # type: ignore[assignment]
            inside += frame is not None
