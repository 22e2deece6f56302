"""Check of files that SQLite itself finds damaged; check of long histories in bounded memory."""

import os
import shutil
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from limpet.backends.sqlite.transaction import SqliteTransaction
from limpet.errors import Corrupt, LimpetError
from limpet.model import Finding, ScopeKey
from limpet.opening import draw, open_backend
from limpet.protocol import Backend, Commit, NoteWrite
from tests.cases import for_each
from tests.effort import times

PAGE_BYTES = 4096


def path_in(folder: Path) -> Path:
    return folder / "store.db"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return path_in(tmp_path)


def url_of(path: Path) -> str:
    return f"sqlite:///{path}?synchronous=off"


def fill(path: Path, count: int, size: int = 500) -> None:
    """Fill a store with states that have nothing in common; leave all of it in the one file."""
    backend = open_backend(url_of(path))
    chance = Random(size)
    for number in range(count):
        text = chance.randbytes(size // 2).hex().encode()
        body = b'{"n":%d,"text":"%s"}' % (number, text)
        commit = Commit(ScopeKey(f"s-{number % 7}"), body, "", b'{"k":"v"}', b"{}", draw())
        backend.commit(commit)
        if number % 5 == 0:
            backend.write_note(NoteWrite(commit.scope, f"n-{number}", None, b"1", draw()))
    backend.close()


def inspect(
    backend: Backend, *, repair: bool = False, limit: int = 100
) -> tuple[list[Finding], int]:
    """Return all findings, and how many pages they came in."""
    findings: list[Finding] = []
    pages = 0
    after: str | None = ""
    while after is not None:
        found, after = backend.check(after, repair=repair, limit=limit)
        findings, pages = findings + found, pages + 1
    return findings, pages


def root_of(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path)) as conn:
        found = conn.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,))
        (page,) = found.fetchone()
    assert isinstance(page, int)
    return page


def overwrite(path: Path, page: int, noise: bytes, at: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES + at)
        file.write(noise)


@for_each("table", ["snapshots", "tails", "labels", "notes", "scopes"], path=path_in)
def test_a_damaged_page_is_named_and_nothing_is_touched(path: Path, table: str) -> None:
    """Also not what could be mended in a sound file: the rest of the tables is only inspected."""
    fill(path, 40)
    overwrite(path, root_of(path, table), b"\xff" * 100)
    with closing(sqlite3.connect(path, isolation_level=None)) as conn, suppress(sqlite3.Error):
        conn.execute("UPDATE scopes SET last = 1")
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    before = path.read_bytes()
    backend = open_backend(url_of(path))

    for repair in (False, True):
        found, _ = inspect(backend, repair=repair)
        damaged = [each for each in found if each.code == "file_damaged"]
        assert damaged
        assert all(".recover" in each.message for each in damaged)
        assert all(each.severity == "error" for each in damaged)
        assert not any(each.repaired for each in found)
    backend.close()
    assert path.read_bytes() == before


def test_an_index_that_lacks_rows_is_named(path: Path) -> None:
    """Though every table can be read."""
    fill(path, 40)
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("PRAGMA writable_schema = ON")
        conn.execute("CREATE INDEX twin ON notes (scope_pk, updated_at) WHERE pk < 0")
        (page,) = conn.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'twin'").fetchone()
        conn.execute("DELETE FROM sqlite_schema WHERE name = 'twin'")
        conn.execute("UPDATE sqlite_schema SET rootpage = ? WHERE name = 'notes_by_time'", (page,))
    backend = open_backend(url_of(path))
    found, _ = inspect(backend, repair=True)
    backend.close()

    assert {each.code for each in found} == {"file_damaged"}
    assert any("notes_by_time" in each.message for each in found)


@for_each("part", [0.3, 0.6, 0.95], path=path_in)
def test_a_truncated_file(path: Path, part: float) -> None:
    """It does not open; if it happens while it is open, check says so, and repair refuses."""
    fill(path, 40)
    backend = open_backend(url_of(path))
    assert backend.read_info(ScopeKey("s-1"), None) is not None
    os.truncate(path, int(path.stat().st_size * part) // PAGE_BYTES * PAGE_BYTES)
    before = path.read_bytes()

    with pytest.raises(Corrupt):
        open_backend(url_of(path))
    found, _ = inspect(backend)
    assert {each.code for each in found} == {"file_damaged"}
    with pytest.raises(Corrupt):
        inspect(backend, repair=True)
    backend.close()
    assert path.read_bytes() == before


@pytest.mark.long
def test_noise_anywhere_is_survived(path: Path) -> None:
    """With random bytes anywhere, check ends, and repair changes nothing in a damaged file."""
    fill(path, 60)
    pages = path.stat().st_size // PAGE_BYTES
    for seed in range(times(8, full=12, torture=80)):
        copy = Path(shutil.copy(path, path.with_name(f"{seed}.db")))
        chance = Random(seed)
        for _ in range(chance.choice([1, 1, 5])):
            noise = chance.randbytes(chance.choice([1, 8, 100]))
            at = chance.randrange(PAGE_BYTES - len(noise))
            overwrite(copy, chance.randrange(2, pages + 1), noise, at)
        check_noisy(copy)


def check_noisy(path: Path) -> None:
    for repair in (False, True):
        try:
            backend = open_backend(url_of(path))
        except LimpetError:
            return  # how opening fails on a damaged schema is not tested here
        found, _ = inspect(backend, repair=repair, limit=9)
        backend.close()
        if any(each.code == "file_damaged" for each in found):
            assert not any(each.repaired for each in found)


@for_each("keys", [[3, 4], [9, 3], [3]], path=path_in)
def test_a_tree_with_a_cycle_is_left(path: Path, monkeypatch: Any, keys: list[int]) -> None:
    """The walk goes on behind the greatest key it has met, or with the next table."""
    fill(path, 10)
    backend = open_backend(url_of(path))
    found_keys = [(key,) for key in keys]
    monkeypatch.setattr(SqliteTransaction, "all", lambda *_: found_keys)

    cursors = ["snapshots:5:ro"]
    while cursors[-1].startswith("snapshots"):
        found, after = backend.check(cursors[-1], repair=False, limit=2)
        assert after is not None
        assert {each.code for each in found} == {"file_damaged"}
        cursors.append(after)
    with pytest.raises(Corrupt):
        backend.check("snapshots:5:rw", repair=True, limit=2)
    backend.close()
    assert len(cursors) <= 3


# Bounds.


def test_a_long_history_is_inspected_in_pages(path: Path) -> None:
    fill(path, 2000, size=10)
    backend = open_backend(url_of(path))

    for repair in (False, True):
        found, pages = inspect(backend, repair=repair, limit=100)
        assert found == []
        # The file; scopes, segments, shared states; snapshots and labels; notes; the few in tails.
        assert 1 + 3 + 2 * (2000 // 100 + 1) + (400 // 100 + 1) < pages < 70
    backend.close()


def test_what_others_write_meanwhile_is_not_reported(path: Path) -> None:
    """Every page sees whole commits only, with repair as well."""
    fill(path, 30)
    writer, backend = open_backend(url_of(path)), open_backend(url_of(path))
    done = threading.Event()

    def write() -> None:
        for number in range(300):
            key = ScopeKey(f"new-{number % 3}")
            save = Commit(key, b"{}", "", b'{"k":"v"}', b"{}", draw(), keep=number % 2 == 0)
            writer.commit(save)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        for repair in (False, True):
            assert inspect(backend, repair=repair, limit=3)[0] == []
    thread.join()
    writer.close()
    backend.close()
