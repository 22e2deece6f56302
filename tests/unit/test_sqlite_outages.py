"""Storage that refuses: read-only files, full disks, and locks that others hold for too long.

Each gives one clear error, changes nothing, and is over when its cause is.
"""

import os
import random
import sqlite3
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import limpet
from limpet import Scope, Store, Unavailable
from tests.cases import for_each
from tests.concurrency.pg_tools import everything, run_script


def path_in(folder: Path) -> Path:
    return folder / "store.db"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return path_in(tmp_path)


def opened(folder: Path) -> Store:
    return limpet.open(f"sqlite:///{path_in(folder)}", lock_wait_s=0.3)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path) as store:
        yield store


def noise(count: int) -> str:
    return random.Random(count).randbytes(count).hex()


def fill(scope: Scope) -> None:
    for number in range(3):
        scope.save({"n": number, "text": noise(500)}, id=f"id-{number}", labels={"a": "b"})
    scope.set_note("name", "value")


WRITES: dict[str, Callable[[Scope], object]] = {
    "save": lambda scope: scope.save({"text": noise(200_000)}),
    "first save": lambda scope: Store(scope.driver).scope("new").save({"text": noise(200_000)}),
    "draft": lambda scope: scope.save({"text": noise(200_000)}, keep=False),
    "append": lambda scope: scope.append("items", [noise(200_000)]),
    "update": lambda scope: scope.update("id-1", lambda s: s.with_(state=noise(200_000))),
    "overwrite": lambda scope: scope.save(noise(200_000), id="id-1", overwrite=True),
    "note": lambda scope: scope.set_note("name", noise(200_000)),
}
DELETES: dict[str, Callable[[Scope], object]] = {
    "delete_snapshot": lambda scope: scope.delete_snapshot("id-1"),
    "delete": lambda scope: scope.delete(),
    "delete_note": lambda scope: scope.delete_note("name"),
    "delete_session": lambda scope: Store(scope.driver).delete_session("s"),
}


def outage(write: Callable[[Scope], object], store: Store) -> Unavailable:
    """Return how a write fails, after checking that it changed nothing."""
    before = everything(store)
    with pytest.raises(Unavailable) as caught:
        write(store.scope("s"))
    assert everything(store) == before
    assert isinstance(caught.value.__cause__, sqlite3.Error | None)
    assert noise(200_000)[:50] not in str(caught.value)
    return caught.value


ALL = {**WRITES, **DELETES}


@for_each("write", ALL.values(), path=path_in, store=opened)
def test_a_lock_that_is_held_for_too_long(
    store: Store, path: Path, write: Callable[[Scope], object]
) -> None:
    """Another connection holds the write lock past `lock_wait_s`; reads go on meanwhile."""
    fill(store.scope("s"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert outage(write, store).outcome_known
        other.execute("ROLLBACK")
    write(store.scope("s"))


def run(script: str, *arguments: object) -> None:
    """Run a script in a process of its own, which may do to itself what a test must not."""
    # The engine is imported at once: another user may not have the right to read it.
    head = "import os, random, resource, signal, sys, limpet, limpet.backends.sqlite.storage\n"
    run_script(head + textwrap.dedent(script), *arguments)


def test_a_disk_that_is_full(path: Path, store: Store) -> None:
    """No file of the process may grow: what SQLite reports is translated, and nothing is lost.

    The limit is moved through the sizes at which different writes of one commit fail.
    """
    for number in range(4):
        store.scope("s").save({"n": number, "text": noise(20_000)}, id=f"id-{number}")
    script = """
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        text = random.Random(1).randbytes(100_000).hex()
        path = sys.argv[1]
        with limpet.open("sqlite:///" + path) as store:
            scope = store.scope("s")
            failures = 0
            largest = max(os.path.getsize(path + end) for end in ("", "-wal", "-shm"))
            for more in range(0, 400_000, 7_000):
                before = [(i.id, i.revision) for i in scope.history()]
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest + more, resource.RLIM_INFINITY))
                try:
                    scope.save({"text": text}, id=f"more-{more}")
                except limpet.Unavailable:
                    failures += 1
                else:
                    before.insert(0, (f"more-{more}", scope.info().revision))
                assert [(i.id, i.revision) for i in scope.history()] == before
                if failures > 30:
                    break
            assert failures > 5, failures
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            scope.save({"text": text}, id="after")
            assert scope.load().state == {"text": text}
            states = [found.state for found in scope.load_many(scope.ids())]
            assert len(states) == len(before) + 1
    """
    run(script, path)
    assert store.scope("s").load("after") is not None
    first = store.scope("s").load("id-0")
    assert first is not None
    assert first.state == {"n": 0, "text": noise(20_000)}
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


READ_ONLY = """
    path = sys.argv[1]
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    # Whether a reader may create the files beside the database depends on the folder.
    try:
        store = limpet.open("sqlite:///" + path, lock_wait_s=0.2)
    except limpet.Unavailable as error:
        assert error.outcome_known
        sys.exit()
    with store:
        scope = store.scope("s")
        try:
            assert scope.load("id-1").state["n"] == 1
        except limpet.Unavailable:
            pass
        for write in (
            lambda: scope.save({"a": 1}),
            lambda: scope.append("items", [1]),
            lambda: scope.set_note("name", 2),
            lambda: scope.delete(),
            lambda: store.delete_session("s"),
        ):
            try:
                write()
            except limpet.Unavailable as error:
                assert error.outcome_known, error
            else:
                raise AssertionError("it was written")
"""


@pytest.mark.parametrize("in_use", [False, True], ids=["closed", "open"])
@pytest.mark.parametrize("folder_too", [False, True], ids=["file", "folder"])
def test_a_file_that_cannot_be_written(folder: Path, folder_too: bool, in_use: bool) -> None:
    """A user with the right to read alone: nothing is written, and no error of SQLite leaks."""
    path = folder / "store.db"
    with limpet.open(f"sqlite:///{path}") as store:
        fill(store.scope("s"))
        before = everything(store)
        if not in_use:
            store.close()
        for file in folder.iterdir():
            file.chmod(0o444)
        folder.chmod(0o555 if folder_too else 0o777)
        try:
            run(READ_ONLY, path)
        finally:
            folder.chmod(0o755)
            for file in folder.iterdir():
                file.chmod(0o644)
    with limpet.open(f"sqlite:///{path}") as store:
        assert everything(store) == before
        store.scope("s").save({"a": 1})


def test_a_file_that_cannot_be_read(folder: Path) -> None:
    with limpet.open(f"sqlite:///{folder}/store.db") as store:
        fill(store.scope("s"))
    (folder / "store.db").chmod(0)
    run(READ_ONLY, folder / "store.db")
