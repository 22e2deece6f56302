"""Backups: what is restored is the same, and what is damaged or interrupted loses nothing."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import portable
from limpet.engine import moving
from limpet.errors import Corrupt, InvalidInput, Unavailable
from limpet.portable import backups
from tests.cases import for_each
from tests.portable.stores import fill, lines
from tests.runs.conftest import place_of

OTHERS = ("directory", "memory", "postgres", "s3")
ENGINES = ["sqlite", *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)]
KEYS = [f"{letter}{'A' * 42}=" for letter in "AB"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agents.limpet")


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest) -> Iterator[limpet.Store]:
    """A store with one of everything, and a scope with segments, whose forks share a state."""
    place = place_of(request.param, request)
    with limpet.open(place.url, **place.options) as store:
        fill(store)
        chat = store.scope("long", "chat")
        for number in range(100):
            chat.append("messages", [{"n": number, "text": f"message {number} " * 30}])
        for number in range(3):
            chat.fork(chat.load().id, patch={"number": number})  # type: ignore[union-attr]
        yield store


def all_of(store: limpet.Store) -> list[Any]:
    """Return everything, with what the lines of an export leave out."""
    found: list[Any] = [lines(store)]
    for scope in sorted(store.scopes(), key=lambda each: each.key):
        line = store.scope(*scope.key)
        found += [(info.revision, info.updated_at, info.size) for info in line.history()]
        for on in (None, *line.noted_ids()):
            found += [(note.revision, note.updated_at) for note in line.notes(on=on)]
        found += [leaf.id for leaf in line.leaves()]
        if scope.head is not None:
            assert store.find(scope.head.id) or not scope.head.kept
            found.append(scope.head.revision)
    return found


def errors_of(store: limpet.Store) -> list[limpet.Finding]:
    return [each for each in store.check() if each.severity != "info"]


@pytest.mark.parametrize(
    "part_bytes", [1, pytest.param(moving._PART_BYTES, marks=pytest.mark.slow)]
)
def test_what_is_restored_is_the_same(
    store: limpet.Store, path: str, part_bytes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From any engine into any, whole or in parts; again; and further, with the next backup."""
    monkeypatch.setattr(moving, "_PART_BYTES", part_bytes)
    targets = ["memory:", f"sqlite:///{tmp_path}/target.db", f"file://{tmp_path}/target"]
    opened = [limpet.open(targets[0]), limpet.open(targets[1], synchronous="off")]
    opened.append(limpet.open(targets[2], sync=False))
    chat = store.scope("long", "chat")
    for step in range(2):
        expected = all_of(store)
        done = portable.backup(store, path)
        assert (done.skipped, portable.backup(store, path, verify=True).written) == ((), 0)
        for target in opened:
            portable.restore(target, path)
            assert all_of(target) == expected
            assert errors_of(target) == []
            assert portable.restore(target, path).written == 0
        for number in range(70 * (1 - step)):
            chat.append("messages", [{"n": number}])
        chat.update(next(chat.ids()), lambda it: it.with_(state={"messages": [1]}, status="new"))
        store.scope("noted").set_note("manifest", {"v": 2})
    for target in opened:
        with target:
            chat = target.scope("long", "chat")
            before = chat.load()
            assert before is not None
            chat.append("messages", ["mine"])
            assert chat.load().state["messages"] == [*before.state["messages"], "mine"]  # type: ignore[union-attr]


def test_a_backup_follows_whatever_happens(path: str, tmp_path: Path) -> None:
    """Also what no copy follows: pruned, deleted, and begun again under the same name."""
    with limpet.open(f"sqlite:///{tmp_path}/store.db", synchronous="off") as store:
        fill(store)
        chat = store.scope("alice/chat-1", "planner")
        steps: list[Callable[[], object]] = [
            lambda: chat.prune(keep_last=3),
            lambda: store.scope("noted").delete_note("1", on="b"),
            lambda: store.delete_session("kept-only"),
            lambda: (chat.delete(), chat.save({"begun": "again"})),
        ]
        for step in (lambda: None, *steps):
            step()
            portable.backup(store, path)
            with limpet.open("memory:") as target:
                portable.restore(target, path)
                assert all_of(target) == all_of(store)
        assert b"message 19 " not in Path(path).read_bytes()  # of what was pruned nothing is left
        chat.append("more", [1])
        store.scope("x", "s").save({"more": 2})
        before = portable.backup(store, path, sessions=["x"])
        assert before.written == 1
        with limpet.open("memory:") as target:
            portable.restore(target, path)
            assert target.scope("x", "s").load() == store.scope("x", "s").load()
            assert target.scope(*chat.key).load() != chat.load()
        store.delete_session("x")
        for each in list(store.sessions()):
            store.delete_session(each)
        with pytest.raises(InvalidInput, match="the store is empty, and the backup is not"):
            portable.backup(store, path)


def test_a_backup_is_as_small_as_the_store(path: str, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with limpet.open(f"sqlite:///{file}", synchronous="off") as store:
        chat = store.scope("s")
        for number in range(200):
            chat.append("messages", [{"n": number, "text": f"{number * 7919 % 1009} " * 300}])
        store.compact()
        portable.backup(store, path)
        export = len(lines(store))
    assert Path(path).stat().st_size <= 1.2 * file.stat().st_size < export / 10
    assert sorted(os.listdir(tmp_path)) == ["agents.limpet", "store.db"]


_KILLED = """
import os, signal, sys, limpet
from limpet import portable
from limpet.engine import Engine
url, path, verb, count = sys.argv[1:]
write, left = Engine.write_part, int(count)
def stopping(self, part, **options):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return write(self, part, **options)
Engine.write_part = stopping
with limpet.open(url) as store:
    getattr(portable, verb)(store, path)
"""


@pytest.mark.parametrize("verb", ["backup", pytest.param("restore", marks=pytest.mark.slow)])
def test_what_was_killed_goes_on(verb: str, path: str, tmp_path: Path) -> None:
    """What was done before the kill is not done again, and FILE is as it was until the end."""
    source, other = f"sqlite:///{tmp_path}/store.db", (tmp_path / "target").as_uri()
    with limpet.open(source, synchronous="off") as store:
        store.scope("earlier").save(1)
        portable.backup(store, path)
        before = Path(path).read_bytes()
        fill(store)
        if verb == "restore":
            portable.backup(store, path)
        expected = all_of(store)
    command = [sys.executable, "-c", _KILLED, source if verb == "backup" else other, path, verb]
    killed = subprocess.run([*command, "7"], check=False)
    assert killed.returncode == -signal.SIGKILL
    if verb == "backup":
        assert Path(path).read_bytes() == before
        with limpet.open(source) as store:
            total = portable.backup(store, path)
            assert 0 < total.written < total.snapshots + total.notes - 7
        other = f"{tmp_path}/restored.db"
    with limpet.open(other) as target:
        portable.restore(target, path)
        assert all_of(target) == expected
        # A kill may leave a folder without part of its index, which reading does without.
        assert {each.code for each in errors_of(target)} <= {"pointer_missing"}


def _damage(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as conn:
        conn.execute(statement)


DAMAGE = {
    "the record": "UPDATE scopes SET last = last + 5 WHERE session_id = 's'",
    "the head": "DELETE FROM snapshots WHERE id = 's-2'",
    "a snapshot": "UPDATE snapshots SET status = 'x' WHERE id = 's-1'",
    "a state": "UPDATE tails SET body = x'5b5d' WHERE seq = "
    "(SELECT seq FROM snapshots WHERE id = 's-1')",
    "a note": "UPDATE notes SET value = x'5b5d'",
}


@for_each("what", [*DAMAGE])
def test_of_what_is_damaged_the_backup_keeps_what_it_had(
    what: str, path: str, tmp_path: Path
) -> None:
    """It is reported each time; without a backup before, all that can be read is in it."""
    file, other = tmp_path / "store.db", str(tmp_path / "other.limpet")
    with limpet.open(f"sqlite:///{file}", synchronous="off") as store:
        for number in range(3):
            store.scope("s").save({"n": number}, id=f"s-{number}")
            store.scope("sound").save({"n": number})
        store.scope("s").set_note("n", 1)
        expected = all_of(store)
        portable.backup(store, path)
        store.scope("s").save({"n": 9}, id="s-9", head=what != "the head")
        _damage(file, DAMAGE[what])
        for name in (path, other):
            for _ in range(2):
                found = portable.backup(store, name).skipped
                assert {each.scope.session_id for each in found if each.scope} == {"s"}
    with limpet.open("memory:") as target:
        portable.restore(target, path)
        assert all_of(target) == expected
    with limpet.open("memory:") as target:
        portable.restore(target, other)
        assert len(list(target.scope("sound").ids())) == 3
        kept = {"the record": 0, "a note": 4}.get(what, 3)
        assert len(list(target.scope("s").ids())) == kept
        assert errors_of(target) == []


def test_damage_of_a_backup_is_found_and_mended(path: str, tmp_path: Path) -> None:
    with limpet.open(f"sqlite:///{tmp_path}/store.db", synchronous="off") as store:
        fill(store)
        portable.backup(store, path)
        _damage(Path(path), "UPDATE tails SET body = x'00' WHERE seq % 3 = 1")
        with limpet.open("memory:") as target:
            assert portable.restore(target, path).skipped
        portable.backup(store, path, verify=True)
        with limpet.open("memory:") as target:
            assert portable.restore(target, path).skipped == ()
            assert all_of(target) == all_of(store)


@for_each("kind", ["sqlite", "directory"])
def test_an_encrypted_store_has_encrypted_backups(kind: str, path: str, tmp_path: Path) -> None:
    """With the current key alone, also when it has replaced another one since."""
    urls = {"sqlite": f"sqlite:///{tmp_path}/store.db", "directory": f"{tmp_path}/store"}
    with limpet.open(urls[kind], keys=KEYS[0]) as store:
        store.scope("s").save({"text": "a secret"}, labels={"a": "b"})
        store.scope("other").save({"text": "a secret"})
        portable.backup(store, path)
        assert b"a secret" not in Path(path).read_bytes()
    with limpet.open(urls[kind], keys="\n".join(KEYS[::-1])) as store:
        store.rekey()
        store.scope("s").append("more", [1])
        portable.backup(store, path)
    with limpet.open(urls[kind], keys=KEYS[1]) as store:
        expected = all_of(store)
        for name, keys in (("both", KEYS[1]), ("other", KEYS[1])):
            with limpet.open(f"sqlite:///{tmp_path}/{name}.db", keys=keys) as target:
                portable.restore(target, path)
                assert all_of(target) == expected
                assert errors_of(target) == []
    with limpet.open(f"{tmp_path}/wrong", keys=KEYS[0]) as target:
        assert len(portable.restore(target, path).skipped) >= 2
    with limpet.open(f"{urls[kind]}") as store, pytest.raises(Corrupt, match="keys"):
        portable.backup(store, path)
    with limpet.open(urls[kind], keys=KEYS[1]) as store:
        assert all_of(store) == expected


def test_a_key_that_is_gone_is_not_reused(path: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with limpet.open(url, keys=KEYS[0]) as store:
        fill(store)
        portable.backup(store, path)
    with limpet.open(url, keys="\n".join(KEYS[::-1])) as store:
        store.rekey()
    with limpet.open(url, keys=KEYS[1]) as store:
        portable.backup(store, path)
        with limpet.open(f"{tmp_path}/target", keys=KEYS[1], sync=False) as target:
            portable.restore(target, path)
            assert all_of(target) == all_of(store)


def test_a_state_that_was_put_back_is_not_made_genuine(path: str, tmp_path: Path) -> None:
    file, state = tmp_path / "store.db", "SELECT seq, base, encoding, body, checksum FROM tails"
    with limpet.open(f"sqlite:///{file}", keys=KEYS[0]) as store:
        store.scope("s").save({"limit": "none"}, id="a")
        with closing(sqlite3.connect(file, isolation_level=None)) as conn:
            (old,) = conn.execute(state).fetchall()
        store.scope("s").update("a", lambda it: it.with_(state={"limit": "some"}))
        with closing(sqlite3.connect(file, isolation_level=None)) as conn:
            conn.execute("REPLACE INTO tails VALUES (?, ?, ?, ?, ?)", old)
        assert [each.code for each in portable.backup(store, path).skipped] == ["damaged"]
        for url in ("memory:", f"{tmp_path}/target"):
            with limpet.open(url, keys=KEYS[0]) as target:
                assert [each.code for each in portable.copy(store, target).skipped] == ["damaged"]
                portable.restore(target, path)
                assert list(target.scope("s").ids()) == []


def test_only_a_backup_is_replaced_and_a_link_is_followed(path: str, tmp_path: Path) -> None:
    with limpet.open("memory:") as store:
        store.scope("s").save(1)
        for name in ("text", "live.db"):
            (tmp_path / "text").write_text("something else " * 20)
            limpet.open(f"sqlite:///{tmp_path}/live.db").close()
            before = (tmp_path / name).read_bytes()
            with pytest.raises(InvalidInput, match="is no backup, so it is not replaced"):
                portable.backup(store, str(tmp_path / name))
            assert (tmp_path / name).read_bytes() == before
            assert not (tmp_path / f"{name}.part").exists()
        with pytest.raises(Unavailable, match="cannot write"):
            portable.backup(store, str(tmp_path / "absent" / "x"))
        (tmp_path / "elsewhere").mkdir()
        Path(path).symlink_to(tmp_path / "elsewhere" / "real")
        for _ in range(2):
            portable.backup(store, path)
        assert Path(path).is_symlink()
        assert os.listdir(tmp_path / "elsewhere") == ["real"]
        assert (tmp_path / "elsewhere" / "real").stat().st_mode & 0o777 == 0o600


def test_two_backups_into_one_file_do_not_undo_each_other(path: str) -> None:
    with limpet.open("memory:") as store, limpet.open("memory:") as other:
        store.scope("s").save(1)
        other.scope("other").save(1)

        def meanwhile(done: portable.Progress) -> None:
            with pytest.raises(Unavailable, match="another backup is being written"):
                portable.backup(other, path)

        portable.backup(store, path, report=meanwhile)
        with limpet.open(f"sqlite:///{path}", mode="ro") as found:
            assert list(found.sessions()) == ["s"]


def test_a_backup_in_use_is_a_store(path: str) -> None:
    """It can be opened as one, and is no backup any more when it was written to."""
    with limpet.open("memory:") as store:
        fill(store)
        portable.backup(store, path)
        with limpet.open(f"sqlite:///{path}") as opened:
            assert all_of(opened) == all_of(store)
            opened.scope("mine").save(1)
        with pytest.raises(InvalidInput, match="no backup"):
            portable.backup(store, path)


def test_without_an_engine_snapshots_are_backed_up(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over HTTP: also when some were deleted since."""
    monkeypatch.setattr(backups, "engine_of", lambda store: None)
    with limpet.open("memory:") as store:
        fill(store)
        for _ in range(2):
            assert portable.backup(store, path, verify=True).skipped == ()
            with limpet.open("memory:") as target:
                portable.restore(target, path)
                assert lines(target) == lines(store)
            store.scope("alice/chat-1", "planner").prune(keep_last=2)


def test_saves_during_a_copy_are_left_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is changed between two parts: one moment is copied."""
    monkeypatch.setattr(moving, "_PART_BYTES", 1)
    read = moving.read_part
    changes: list[Callable[[limpet.Scope], object]] = [
        lambda scope: scope.append("items", ["more"]),
        lambda scope: scope.delete_snapshot(next(scope.ids())),
        lambda scope: [scope.append("items", ["x" * 2000]) for _ in range(70)],
        lambda scope: scope.delete(),
    ]
    for change in changes:
        for number in (1, 2):
            with limpet.open("memory:") as source, limpet.open("memory:") as target:
                scope, calls = source.scope("s"), 0
                for each in range(70):
                    scope.append("items", [f"{each} " * 700])

                def changing(reader: Any, before: Any) -> Any:
                    nonlocal calls
                    calls += 1
                    if calls == number:  # noqa: B023
                        change(scope)  # noqa: B023
                    return read(reader, before)

                with monkeypatch.context() as patch:
                    patch.setattr(moving, "read_part", changing)
                    portable.copy(source, target)
                assert calls >= number
                assert errors_of(target) == []
                if scope.load() is not None:
                    assert all_of(target) == all_of(source)
