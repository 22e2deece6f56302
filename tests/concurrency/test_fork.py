"""After a fork both processes may go on using the store, and neither loses anything."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import limpet
from tests.concurrency.crew import Worker, url_of
from tests.concurrency.forker import check, save

SCRIPT = Path(__file__).with_name("forker.py")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "store.db"
    yield path
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("scene", ["both_go_on", "parent_closes", "child_closes"])
def test_what_both_acknowledge_is_there(path: Path, scene: str) -> None:
    """Promise 1: whichever of the two ends or closes first, what the other wrote is kept."""
    with Worker(SCRIPT, scene, url_of(path)) as worker:
        assert worker.hear() == "done"

    with limpet.open(url_of(path)) as store:
        check(store, "child", 40)
        check(store, "parent", 10 if scene == "parent_closes" else 40)


def test_a_child_outlives_its_parent(path: Path) -> None:
    """Promise 1: also when another process opens the file after the parent is gone."""
    with Worker(SCRIPT, "parent_ends", url_of(path)) as worker:
        assert worker.hear() == "child"
        worker.process.wait()
        with limpet.open(url_of(path)) as store:
            save(store, "other", 20)
            worker.tell("go on")
            save(store, "other", 20)
            assert worker.hear() == "done"

    with limpet.open(url_of(path)) as store:
        check(store, "parent", 40)
        check(store, "child", 40)
        check(store, "other", 40)


def test_a_fork_while_threads_are_writing(path: Path) -> None:
    """A child neither hangs on what a thread held that it does not have, nor waits for ever."""
    with Worker(SCRIPT, "threads_are_writing", url_of(path)) as worker:
        assert worker.hear() == "done"


def test_the_async_api_works_in_a_child(path: Path) -> None:
    with Worker(SCRIPT, "async_face", url_of(path)) as worker:
        assert worker.hear() == "done"


def test_threads_fork_at_the_same_time(path: Path) -> None:
    """A fork does not happen while another one closes connections."""
    with Worker(SCRIPT, "threads_fork", url_of(path)) as worker:
        assert worker.hear() == "done"


def test_a_fork_during_a_long_transaction(path: Path) -> None:
    """The fork waits two seconds at most, and its child refuses instead of losing a write."""
    with Worker(SCRIPT, "long_transaction", url_of(path)) as worker:
        assert worker.hear() == "done"

    with limpet.open(url_of(path)) as store:
        check(store, "parent", 10)
        check(store, "child", 10)
