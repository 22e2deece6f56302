"""Corners of `redact` that are the same on every engine, and what it must report."""

import os
import sqlite3
import time
from pathlib import Path

import pytest

import limpet
from limpet import JSON, Corrupt, Redacted, Scope, Store, Unavailable
from limpet.api import redacting
from limpet.core import limits

URL = "sqlite:///agents.db?synchronous=off"


def is_secret(path: str, value: JSON) -> bool:
    return isinstance(value, str) and value == "secret"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def saved(store: Store, count: int) -> Scope:
    chat = store.scope("chat-42")
    for n in range(count):
        chat.save({"of": "secret", "n": n, "text": "x" * 3000}, id=f"s{n}")
    return chat


def test_what_is_changed_in_place_meanwhile_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it was gone over before."""
    monkeypatch.setattr(limits, "PAGE_ITEMS_MAX", 2)
    with limpet.open("memory:") as store:
        chat = saved(store, 6)
        todo = ["s5"]

        def changes(path: str, value: JSON) -> bool:
            if value == 0 and todo:  # of the oldest, the last that is asked about
                chat.update(todo.pop(), lambda s: s.with_(state={"of": "secret", "late": 1}))
            return is_secret(path, value)

        assert chat.redact(changes) == Redacted(7, 0)
        assert {s.state["of"] for s in chat.load_many(chat.ids())} == {None}


def test_one_that_was_interrupted_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PAGE_ITEMS_MAX", 4)
    asked = 0

    def interrupted(path: str, value: JSON) -> bool:
        nonlocal asked
        asked += 1
        if asked > 50:
            raise KeyboardInterrupt
        return is_secret(path, value)

    with limpet.open(URL) as store:
        chat = saved(store, 20)
        with pytest.raises(KeyboardInterrupt):
            chat.redact(interrupted)
    with limpet.open(URL) as store:
        chat = store.scope("chat-42")
        left = [s.id for s in chat.load_many(chat.ids()) if s.state["of"] is not None]
        assert 0 < len(left) < 20
        assert chat.redact(is_secret) == Redacted(len(left), 0)
        assert [f for f in store.check() if f.severity != "info"] == []
        assert {s.state["of"] for s in chat.load_many(chat.ids())} == {None}


def test_pages_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redacting, "_PAGE_BYTES_MAX", 7000)
    with limpet.open(URL) as store:
        assert saved(store, 9).redact(is_secret) == Redacted(9, 0)


def test_what_listings_omit_is_reported() -> None:
    with limpet.open(URL) as store:
        chat = saved(store, 4)
        with sqlite3.connect("agents.db") as db:
            db.execute("UPDATE snapshots SET status = 'changed' WHERE id = 's2'")
        db.close()
        with pytest.raises(Corrupt, match="may hold the content"):
            chat.redact(is_secret)
        chat.delete_snapshot("s2")
        chat.redact(is_secret)
        assert {s.state["of"] for s in chat.load_many(chat.ids())} == {None}


def test_writers_that_never_stop_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redacting, "_PASSES_MAX", 3)
    with limpet.open("memory:") as store:
        chat = saved(store, 2)

        def saves(path: str, value: JSON) -> bool:
            if path == "":
                store.scope("chat-42").save({"of": "secret"})
            return is_secret(path, value)

        with pytest.raises(Unavailable, match="stop them"):
            chat.redact(saves)


def test_a_fork_without_its_first_snapshot_is_known_by_its_name() -> None:
    with limpet.open("memory:") as store:
        chat = saved(store, 1)
        fork = chat.fork("s0")
        fork.save({"of": "secret"})
        fork.prune(keep_last=1)
        assert chat.redact(is_secret) == Redacted(2, 0)


def test_a_state_of_a_class_is_redacted_as_json() -> None:
    from typing import TypedDict

    class Chat(TypedDict):
        of: str

    with limpet.open("memory:") as store:
        chat = store.scope("chat-42", model=Chat)
        chat.save({"of": "secret"})
        assert chat.redact("/of", replacement="") == Redacted(1, 0)
        found = chat.load()
        assert found is not None
        assert found.state == {"of": ""}


def test_compact_removes_what_a_killed_writer_left(tmp_path: Path) -> None:
    with limpet.open(str(tmp_path / "agents")) as store:
        saved(store, 1)
        (head,) = (tmp_path / "agents").rglob("head")
        left = head.with_name(".limpet-0123456789abcdef")
        left.write_bytes(head.read_bytes())
        store.compact()
        assert left.exists()  # its writer may still be at work
        old = time.time() - 7200
        os.utime(left, (old, old))
        store.compact()
        assert not left.exists()
