"""mode=ro: a backup or a file on a read-only mount is read, and not a byte of it changes."""

import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Corrupt, Unavailable, Unsupported
from limpet.backends.sqlite.transaction import READ
from limpet.cli._app import run as run_command
from tests.cases import for_each
from tests.unit.test_sqlite_files import folder_of
from tests.unit.test_sqlite_outages import folder, run

__all__ = ["folder"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is not in use, with its bytes in one file."""
    path = tmp_path / "store.db"
    with limpet.open(f"sqlite:///{path}") as store:
        for number in range(3):
            store.scope("s").save({"n": number}, labels={"a": "b"})
        store.scope("s").set_note("note", 1)
    return path


def read_only(path: Path) -> str:
    return f"sqlite:///{path}?mode=ro"


def read(store: limpet.Store) -> list[Any]:
    scope = store.scope("s")
    return [
        scope.load(),
        list(scope.history()),
        list(store.sessions()),
        list(store.scopes()),
        list(store.history(labels={"a": "b"})),
        list(scope.notes()),
        store.stats(),
        list(store.check()),
    ]


def test_reading_changes_nothing(path: Path) -> None:
    with limpet.open(f"sqlite:///{path}") as store:
        expected = read(store)
    before = folder_of(path)
    with limpet.open(read_only(path)) as store:
        assert read(store) == expected
        assert folder_of(path) == before
    assert folder_of(path) == before


@for_each(
    "write",
    [
        lambda store: store.scope("s").save({"n": 9}),
        lambda store: store.scope("new").append("items", [1]),
        lambda store: store.scope("s").set_note("note", 2),
        lambda store: store.scope("s").delete(),
        lambda store: store.delete_session("s"),
        lambda store: store.scope("s").prune(keep_last=1),
        lambda store: store.compact(),
        lambda store: list(store.repair()),
    ],
)
def test_a_write_is_refused(path: Path, write: Callable[[limpet.Store], object]) -> None:
    before = folder_of(path)
    with limpet.open(read_only(path)) as store:
        with pytest.raises(Unsupported, match="for reading only"):
            write(store)
        assert store.scope("s").load() is not None
    assert folder_of(path) == before


def test_a_file_in_use_is_read_as_it_is_now(path: Path) -> None:
    """Before, while and after another process has a log."""
    with limpet.open(read_only(path)) as reader:
        for number in range(3):
            with limpet.open(f"sqlite:///{path}") as writer:
                for each in range(3):
                    saved = writer.scope("s").save({"n": number, "each": each})
                    assert reader.scope("s").info() == saved
            assert reader.scope("s").info() == saved


def test_a_change_during_a_read_is_noticed(path: Path) -> None:
    with limpet.open(read_only(path)) as reader:
        file = reader.driver.opened.backend.storage._file  # type: ignore[attr-defined]

        def change() -> None:
            with limpet.open(f"sqlite:///{path}") as writer:
                writer.scope("s").save({"n": 9})

        with pytest.raises(Unavailable, match="try again"):
            file.run(READ, lambda *_: change(), None)
        with pytest.raises(Unavailable, match="try again"):
            file.run(READ, lambda *_: read_halves(change), None)
        head = reader.scope("s").load()
        assert head is not None
        assert head.state == {"n": 9}


def read_halves(change: Callable[[], None]) -> None:
    change()
    raise Corrupt("what was read does not fit together")


def test_what_is_missing_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be opened"):
        limpet.open(read_only(tmp_path / "missing.db"))
    assert list(tmp_path.iterdir()) == []


def run_without_rights(script: str, folder: Path) -> None:
    """Run a script as a user that may only read the files of a folder."""
    # Python itself may be in a folder that the other user cannot read.
    rights = """
        import urllib.parse
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
    """
    for each in folder.iterdir():
        each.chmod(0o444)
    folder.chmod(0o555)
    try:
        run(textwrap.dedent(rights) + textwrap.dedent(script), folder / "store.db")
    finally:
        folder.chmod(0o755)


def test_a_folder_that_cannot_be_written(path: Path, folder: Path) -> None:
    shutil.copy(path, folder)
    before = folder_of(folder / "store.db")
    script = """
        with limpet.open("sqlite:///" + sys.argv[1] + "?mode=ro") as store:
            assert store.scope("s").load().state == {"n": 2}
            assert list(store.check()) == []
    """
    run_without_rights(script, folder)
    assert folder_of(folder / "store.db") == before


def test_a_log_in_a_folder_that_cannot_be_written(path: Path, folder: Path) -> None:
    """What is in the log is never left out silently."""
    with limpet.open(f"sqlite:///{path}") as store:
        store.scope("s").save({"n": 9})
        shutil.copy(path, folder)
        shutil.copy(f"{path}-wal", folder)
    script = """
        try:
            limpet.open("sqlite:///" + sys.argv[1] + "?mode=ro")
        except limpet.Unavailable as error:
            assert "log (-wal)" in str(error), error
        else:
            raise AssertionError("it was read without its log")
    """
    run_without_rights(script, folder)
    with limpet.open(read_only(folder / "store.db")) as store:
        head = store.scope("s").load()
        assert head is not None
        assert head.state == {"n": 9}


@for_each("arguments", [["ls"], ["log", "s"], ["stats"], ["check"], ["export"], ["grep", "n"]])
def test_reading_commands_change_nothing(path: Path, arguments: list[str]) -> None:
    before = folder_of(path)
    done = run_command([*arguments, "--url", f"sqlite:///{path}"])
    assert done == (arguments[0] == "grep")  # which finds nothing
    assert folder_of(path) == before
