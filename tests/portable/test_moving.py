"""Moved scopes: whoever writes meanwhile, and wherever it stops, nothing is lost or made up."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import opening, portable
from limpet.backends.sqlite import staging
from limpet.engine import Engine, moving
from limpet.errors import Conflict
from limpet.portable import backups
from limpet.portable.copying import engine_of
from tests.portable.stores import lines
from tests.portable.test_backups import all_of, errors_of
from tests.server.process import Server


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "_PART_BYTES", 1)


def _long(scope: limpet.Scope, count: int = 70) -> None:
    for _ in range(count):
        scope.append("items", [os.urandom(1000).hex()])


class Stop(Exception):
    """The process ends here."""


def _after_part(monkeypatch: pytest.MonkeyPatch, number: int, what: Callable[[], object]) -> None:
    """Do something when a part was written."""
    write, left = Engine.write_part, number

    def writing(self: Engine, part: moving.Part, **options: Any) -> int:
        nonlocal left
        written = write(self, part, **options)
        left -= not options.get("verify")
        if left == 0:
            left = -1
            what()
        return written

    monkeypatch.setattr(Engine, "write_part", writing)


def _roll_at_once(store: limpet.Store) -> None:
    engine = engine_of(store)
    assert engine is not None
    engine._roller = None


def test_a_copy_into_a_scope_in_use_takes_nothing_from_its_users(tmp_path: Path) -> None:
    """The target never has a version again that its users may know: a lease and notes stay."""
    url = f"sqlite:///{tmp_path}/target.db"
    with limpet.open("memory:") as source, limpet.open(url) as one, limpet.open(url) as other:
        mine, theirs = other.scope("s"), one.scope("s")
        mine.save({"n": 1})
        portable.copy(one, source)
        theirs.set_note("theirs", 1)
        with theirs.claim(owner="me", wait_s=1) as lease:
            source.scope("s").set_note("copied", 1)
            portable.copy(source, one)
            mine.set_note("mine", 2)
            lease.save({"n": 2})
        assert {note.name for note in theirs.notes()} == {"theirs", "mine", "copied"}
        assert errors_of(one) == []


def test_a_scope_that_begins_again_meanwhile_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    with limpet.open("memory:") as source, limpet.open("memory:") as target:
        scope = source.scope("s")
        _long(scope)
        _after_part(monkeypatch, 1, lambda: (scope.delete(), scope.save({"begun": "again"})))
        portable.copy(source, target)
        assert all_of(target) == all_of(source)


def test_damage_behind_the_first_part_leaves_the_backup_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also of a scope that was begun again; and without an engine."""
    path, file = str(tmp_path / "agents.limpet"), tmp_path / "store.db"
    with limpet.open(f"sqlite:///{file}", synchronous="off") as store:
        _roll_at_once(store)
        scope = store.scope("s")
        for begun in (False, True):
            if begun:
                scope.delete()
            _long(scope)
            portable.backup(store, path)
            with limpet.open("memory:") as target:
                portable.restore(target, path)
                expected = all_of(target)
                ids = set(target.scope("s").ids())
            if begun:
                scope.delete()
                _long(scope)
            else:
                _long(scope, 80)
                scope.update(next(scope.ids()), lambda it: it.with_(status="other"))
            with closing(sqlite3.connect(file, isolation_level=None)) as conn:
                conn.execute("UPDATE tails SET body = x'00'")
            for engine in (True, False):
                with monkeypatch.context() as patch:
                    if not engine:
                        patch.setattr(backups, "engine_of", lambda store: None)
                    found = portable.backup(store, path).skipped
                assert {each.code for each in found} == {"damaged"}
                with limpet.open("memory:") as target:
                    portable.restore(target, path)
                    assert ids <= set(target.scope("s").ids())
                    assert all_of(target) == expected or not engine


def test_what_is_salvaged_is_listed(tmp_path: Path) -> None:
    """Of a scope whose later parts are damaged, the parts before are there."""
    file = tmp_path / "store.db"
    with limpet.open(f"sqlite:///{file}", synchronous="off") as source:
        _roll_at_once(source)
        _long(source.scope("s"))
        with closing(sqlite3.connect(file, isolation_level=None)) as conn:
            conn.execute("UPDATE tails SET body = x'00'")
        path = str(tmp_path / "agents.limpet")
        assert portable.backup(source, path).skipped
        with limpet.open("memory:") as target, limpet.open("memory:") as restored:
            assert portable.copy(source, target).skipped
            assert len(list(target.scope("s").ids())) > 10
            assert errors_of(target) == []
            portable.restore(restored, path)
            assert list(restored.scope("s").ids()) == list(target.scope("s").ids())


def test_a_seq_of_another_scope_is_no_obstacle(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Stores that saved in the same microsecond are merged into one, and into one backup."""
    stamp, path = opening.draw(), str(tmp_path / "agents.limpet")
    with limpet.open("memory:") as target:
        for session in ("one", "other"):
            with limpet.open("memory:") as store:
                monkeypatch.setattr(engine_of(store), "_draw", lambda: stamp)
                store.scope(session).save(1)
                portable.copy(store, target)
                portable.backup(store, path, sessions=[session])
        with limpet.open("memory:") as restored:
            portable.restore(restored, path)
            for each in (target, restored):
                assert list(each.sessions()) == ["one", "other"]
                assert errors_of(each) == []


_KILLED = """
import os, sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("PRAGMA cache_size = 2")
conn.execute("BEGIN IMMEDIATE")
conn.execute("CREATE TABLE x (y)")
for _ in range(100):
    conn.execute("INSERT INTO x VALUES (randomblob(5000))")
os.kill(os.getpid(), 9)
"""


def test_sessions_are_brought_up_to_date_in_what_was_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not in what another backup has left, wherever it was interrupted."""
    path = str(tmp_path / "agents.limpet")
    with limpet.open("memory:") as store, limpet.open("memory:") as target:
        _long(store.scope("long"))
        store.scope("x").save(1)
        portable.backup(store, path)
        portable.restore(target, path)
        subprocess.run([sys.executable, "-c", _KILLED, f"{path}.part"], check=False)
        assert os.path.getsize(f"{path}.part")
        staging.begin(f"{path}.part", path)
        with closing(sqlite3.connect(f"{path}.part")) as conn:
            assert conn.execute("SELECT count(*) FROM scopes").fetchone() == (2,)
        store.scope("long").prune(keep_last=10)
        _long(store.scope("long"))

        def stop() -> None:
            raise Stop

        with monkeypatch.context() as patch, suppress(Stop):
            _after_part(patch, 1, stop)
            portable.backup(store, path)
        assert os.path.getsize(f"{path}.part")
        portable.backup(store, path, sessions=["x"])
        with limpet.open("memory:") as restored:
            portable.restore(restored, path)
            assert all_of(restored) == all_of(target)


def test_newer_data_of_the_target_is_a_conflict_and_nothing_changes() -> None:
    newer: list[Callable[[limpet.Scope], object]] = [
        lambda scope: scope.save({"n": 9}),
        lambda scope: scope.update("a", lambda it: it.with_(status="mine")),
        lambda scope: scope.save({"n": 9}, keep=False),
        lambda scope: scope.set_note("n", "newer"),
    ]
    for change in newer:
        with limpet.open("memory:") as source, limpet.open("memory:") as target:
            scope = source.scope("s")
            scope.save({"n": 1}, id="a")
            _long(scope)
            scope.set_note("n", 1)
            portable.copy(source, target)
            change(target.scope("s"))
            scope.update(next(scope.ids()), lambda it: it.with_(status="theirs"))
            before = all_of(target)
            with pytest.raises(Conflict, match="newer"):
                portable.copy(source, target)
            assert all_of(target) == before


@pytest.mark.slow
def test_a_bound_token_exports_what_it_sees(tmp_path: Path) -> None:
    file, tokens = tmp_path / "tokens", ("a" * 40, "b" * 40)
    file.write_text(f"{tokens[0]}\n{tokens[1]} write alice/\n")
    file.chmod(0o600)
    with Server(tmp_path, "--token-file", str(file)) as server:
        with limpet.open(server.url, token=tokens[0]) as store:
            store.scope("alice/1").save(1)
            store.scope("bob").save(1)
            expected = lines(store, prefix="alice/")
            portable.backup(store, str(tmp_path / "all.limpet"))
        with limpet.open(server.url, token=tokens[1]) as store:
            assert lines(store) == lines(store, prefix="alice/") == expected
            store.scope("alice/1").save(2)
            portable.backup(store, str(tmp_path / "all.limpet"))
    with limpet.open(f"sqlite:///{tmp_path / 'all.limpet'}") as found:
        assert list(found.sessions()) == ["alice/1", "bob"]
        assert len(list(found.scope("alice/1").history())) == 2
