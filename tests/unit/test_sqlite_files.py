"""Which files the SQLite engine takes as its own, which it refuses, and how it makes new ones."""

import os
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Corrupt, InvalidInput, LimpetError, Unavailable, Unsupported
from limpet.backends.sqlite import in_place
from limpet.backends.sqlite.errors import APPLICATION_ID
from limpet.backends.sqlite.in_place import Connection
from limpet.backends.sqlite.schema import MIGRATIONS, NEWEST
from limpet.backends.sqlite.transaction import READ
from limpet.cli._app import run as code_of_command
from limpet.cli._exits import CORRUPT
from tests.cases import for_each


def path_in(folder: Path) -> Path:
    return folder / "store.db"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return path_in(tmp_path)


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def fill(path: Path, count: int = 40) -> None:
    with limpet.open(url_of(path), synchronous="off") as store:
        for number in range(count):
            body = {"n": number, "text": os.urandom(2_000).hex()}
            store.scope(f"s-{number % 4}").save(body, id=f"id-{number:03}", labels={"a": "b"})
            store.scope(f"s-{number % 4}").set_note("name", number)


def folder_of(path: Path) -> dict[str, bytes | None]:
    """Return everything in the folder, with its bytes."""
    return {p.name: p.read_bytes() if p.is_file() else None for p in path.parent.iterdir()}


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        for statement in statements:
            conn.execute(statement)


# Files of others.

OURS = "CREATE TABLE a (b)"
REFUSED: list[tuple[list[str] | bytes | Callable[[Path], None], type[LimpetError], str]] = [
    (["CREATE TABLE snapshots (a)"], InvalidInput, "another program"),
    ([OURS, "PRAGMA journal_mode = WAL"], InvalidInput, "another program"),
    (["PRAGMA application_id = 7"], InvalidInput, "another program"),
    (["PRAGMA user_version = 1"], InvalidInput, "another program"),
    ([OURS, f"PRAGMA user_version = {2**31 - 1}"], InvalidInput, "another program"),
    (["filled", "PRAGMA application_id = 1"], InvalidInput, "another program"),
    (
        ["filled", f"PRAGMA user_version = {NEWEST + 1}"],
        Unsupported,
        f"found=`{NEWEST + 1}` known=`{NEWEST}`",
    ),
    (["filled", "PRAGMA user_version = 3"], Unsupported, "before the first release"),
    (Path.mkdir, LimpetError, "."),
    (os.mkfifo, InvalidInput, "."),  # which is not waited for
    *(
        (content, LimpetError, "path=")
        for content in (
            b"Dear diary,\n" * 100,
            b"x",
            b"SQLite format 3",
            b"SQLite format 3\0" + b"\xff" * 2000,
            b"\0" * 5000,
            os.urandom(10_000),
        )
    ),
]


@for_each("content, error, message", REFUSED, path=path_in)
def test_what_is_not_ours_is_left_alone(
    path: Path,
    content: list[str] | bytes | Callable[[Path], None],
    error: type[LimpetError],
    message: str,
) -> None:
    """A database of another program, of another version of ours, or a file that is none."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif callable(content):
        content(path)
    else:
        if content[0] == "filled":
            fill(path)
        execute(path, *(each for each in content if each != "filled"))
    before = folder_of(path)
    for url in (url_of(path), f"{url_of(path)}?mode=ro"):
        with pytest.raises(error, match=message) as refused:
            limpet.open(url).close()
        assert "\n" not in str(refused.value)
    assert folder_of(path) == before


def test_a_missing_folder_is_not_made(path: Path) -> None:
    with pytest.raises(InvalidInput, match="folder"):
        limpet.open(url_of(path / "below" / "store.db"))
    path.write_bytes(b"")
    with pytest.raises(InvalidInput, match="folder"):
        limpet.open(url_of(path / "store.db"))
    assert folder_of(path) == {path.name: b""}


# Damaged files.


def read_all(url: str) -> Iterator[tuple[str, Any]]:
    """Yield what can be read of a store, piece by piece."""
    with limpet.open(url) as store:
        for session in store.sessions():
            scope = store.scope(session)
            for info in scope.history():
                found = scope.load(info.id)
                assert found is not None
                yield info.id, found.state


@for_each("part", [20, 99, 100, 511, 512, 4095, 4096, 4097, 0.1, 0.5, 0.9, -1], path=path_in)
def test_a_truncated_file_raises_or_is_answered_rightly(path: Path, part: float) -> None:
    """Promise 10: no error of SQLite leaks, and nothing is left out without a word."""
    fill(path)
    truth = dict(read_all(url_of(path)))
    assert len(truth) == 40
    size = path.stat().st_size
    os.truncate(path, size - 1 if part < 0 else int(part * size if part < 1 else part))
    before = path.read_bytes()

    read: dict[str, Any] = {}  # and what comes before an error
    try:
        read.update(read_all(url_of(path)))
        assert read == truth
    except (Corrupt, InvalidInput):
        assert read.items() <= truth.items()
    assert path.read_bytes() == before


# New files.


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch(mode=0o600)
    fill(path)
    assert len(list(read_all(url_of(path)))) == 40
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert conn.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        assert conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_new_file_is_readable_by_its_owner_alone(path: Path) -> None:
    """States hold secrets: no other user may read them, whatever the umask."""
    before = os.umask(0)
    try:
        with limpet.open(url_of(path)) as store:
            store.scope("s").save({"a": 1})
            modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm"), 0o600)


def test_a_relative_path_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections made after a change of folder lead to the same file."""
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with limpet.open("sqlite:///store.db") as store:
        walk = store.sessions()
        store.scope("a").save({"a": 1})
        monkeypatch.chdir(tmp_path / "other")
        store.driver.opened.backend.storage._file._idle.pop().close()  # type: ignore[attr-defined]
        store.scope("b").save({"b": 1})
        assert list(walk) == ["a", "b"]
    assert list((tmp_path / "other").iterdir()) == []


# Making a file ready beside others.


def test_others_may_make_the_file_ready_at_any_moment(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each statement of opening, in turn, another process gets in and makes it ready.

    It is distinguished from a database of another program by facts of one moment.
    """
    before: list[str] = []
    turn = 0

    class Interrupted(Connection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            before.append(sql)
            if len(before) == turn and not self.in_transaction:
                monkeypatch.undo()
                with limpet.open(url_of(path)) as other:
                    other.scope("s").save({"a": 1})
            return super().execute(sql, *rest)

    connect = sqlite3.connect
    while turn <= len(before):
        turn, before[:] = turn + 1, []
        path = path.with_name(f"{turn}.db")
        monkeypatch.setattr(
            sqlite3, "connect", lambda *a, **k: connect(*a, **k | {"factory": Interrupted})
        )
        with limpet.open(url_of(path)) as store:
            store.scope("s").save({"b": 1})
            file = store.driver.opened.backend.storage._file  # type: ignore[attr-defined]
            query = "SELECT version FROM schema_migrations"
            versions = file.run(READ, lambda conn, asked: conn.execute(asked).fetchall(), query)
        monkeypatch.undo()
        assert versions == [(each.version,) for each in MIGRATIONS]
    assert turn > 10


# A file that is removed or replaced while the store is open.


def lose(path: Path, how: str) -> None:
    log = path.with_name(path.name + "-wal")
    if how == "replaced":
        with limpet.open(url_of(path.with_name("other.db"))) as other:
            other.scope("s").save({"other": True})
        os.replace(path.with_name("other.db"), path)
    elif how == "moved":
        path.rename(path.with_name("elsewhere.db"))
    elif how.startswith("truncated"):
        os.truncate(path, 0 if how.endswith("to nothing") else path.stat().st_size // 8192 * 4096)
    if how in ("removed", "both removed"):
        path.unlink()
    if how in ("log removed", "both removed"):
        log.unlink()


LOSSES = [
    *("removed", "moved", "replaced", "both removed", "log removed"),
    *("truncated", "truncated to nothing"),
]


@for_each("how", LOSSES, path=path_in)
def test_nothing_is_saved_into_a_file_that_is_gone(path: Path, how: str) -> None:
    """Promise 1: what would be lost is not acknowledged, on old connections and on new ones.

    Nor is anything read of it, which might be old.
    """
    with limpet.open(url_of(path)) as store:
        scope = store.scope("s")
        scope.save({"n": 1, "list": []})
        lose(path, how)
        verbs: list[Callable[[], object]] = [
            lambda: scope.save({"n": 2}),
            lambda: scope.append("list", [1]),
            lambda: scope.set_note("a", 1),
            scope.delete,
            scope.load,
            lambda: list(scope.history()),
            lambda: list(scope.ids()),
            lambda: scope.note("a"),
            lambda: list(store.sessions()),
            store.compact,
            lambda: list(store.repair()),
            lambda: list(store.check()),
        ]
        for verb in [*verbs, *verbs]:
            with pytest.raises(Unavailable, match=r"was (removed|replaced|truncated)"):
                verb()
    if how == "log removed":  # closing the store, as the message says, copies what was saved
        with limpet.open(url_of(path)) as store:
            head = store.scope("s").load()
            assert head is not None
            assert head.state == {"n": 1, "list": []}


@for_each("how", ["removed", "replaced"], path=path_in)
def test_no_new_connection_reads_another_file(
    path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is one made: it would empty the log that ours is reading, which may end the process."""
    with limpet.open(url_of(path)) as store:
        store.scope("s").save({"n": 1})
        lose(path, how)
        file = store.driver.opened.backend.storage._file  # type: ignore[attr-defined]
        in_use = [file._idle.pop() for _ in list(file._idle)]  # by other threads
        monkeypatch.delattr(sqlite3, "connect")
        with pytest.raises(Unavailable):
            store.scope("s").load()
        file._idle.extend(in_use)


def test_a_file_that_others_make_smaller_is_not_truncated(path: Path) -> None:
    """Another process gives pages back, and what is added after that is only in its log."""
    with limpet.open(url_of(path)) as store, limpet.open(url_of(path)) as other:
        store.scope("large").save({"text": os.urandom(400_000).hex()})
        store.scope("s").save({"n": 1})
        other.compact()
        before = path.stat().st_size
        assert store.scope("s").load()  # its size is seen
        other.delete_session("large")
        other.compact()
        assert path.stat().st_size < before
        other.scope("more").save({"text": os.urandom(40_000).hex()})
        assert store.scope("s").load()
        assert store.scope("s").save({"n": 2})


def test_a_file_that_grows_while_its_log_is_read_is_not_truncated(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with limpet.open(url_of(path)) as store, limpet.open(url_of(path)) as other:
        other.scope("large").save({"text": os.urandom(400_000).hex()})
        other.compact()
        store.scope("s").save({"n": 1})  # the size is seen
        other.delete_session("large")
        other.compact()

        def while_others_write(log: str) -> object:
            monkeypatch.undo()
            other.scope("more").save({"text": os.urandom(400_000).hex()})
            other.compact()  # the pages are in the file, and the log is begun again
            other.scope("more").save({"n": 1})
            return read_log(log)

        read_log = in_place._read_log
        monkeypatch.setattr(in_place, "_read_log", while_others_write)
        assert store.scope("s").load()
        assert store.scope("s").save({"n": 2})


def test_a_link_may_be_moved_with_its_file(path: Path) -> None:
    """What counts is the file that the path leads to."""
    target = path.with_name("target.db")
    path.symlink_to(target)
    with limpet.open(url_of(path)) as store:
        store.scope("s").save({"n": 1})
        target.rename(path.with_name("moved.db"))
        path.unlink()
        path.symlink_to(path.with_name("moved.db"))
        assert store.scope("s").save({"n": 2})


# What cannot be opened.


@for_each("byte", [0, 5, 16, 21], path=path_in)
def test_a_damaged_header_is_damage(path: Path, byte: int) -> None:
    """Also for the exit code of the command."""
    fill(path, 4)
    content = bytearray(path.read_bytes())
    content[byte] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(Corrupt, match="damaged"):
        list(limpet.open(url_of(path)).sessions())
    assert code_of_command(["ls", "--url", url_of(path)]) == CORRUPT
    assert path.read_bytes() == content


def test_too_many_open_files(path: Path) -> None:
    fill(path, 4)
    script = """
        import errno, os, resource, sys
        import limpet
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.EMFILE
        while True:
            try:
                limpet.open(sys.argv[1]).close()
                break
            except limpet.Unavailable:
                os.close(taken.pop())
    """
    command = [sys.executable, "-c", textwrap.dedent(script), url_of(path)]
    subprocess.run(command, check=True, timeout=300)
