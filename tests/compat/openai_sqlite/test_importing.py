"""Sessions of the OpenAI Agents SDK are imported without it, from files that it wrote."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet.compat.openai_sqlite import import_sqlite

HERE = Path(__file__).parent
Source = Callable[..., Path]


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """Return a function that makes a file: one of those here, changed by SQL."""

    def make(name: str, *changes: str) -> Path:
        path = tmp_path / f"{name}.db"
        with closing(sqlite3.connect(path)) as conn:
            if not conn.execute("SELECT 1 FROM sqlite_schema").fetchone():
                conn.executescript((HERE / f"{name}.sql").read_text(encoding="utf-8"))
            for change in changes:
                conn.execute(change)
            conn.commit()
        return path

    return make


def scope(store: limpet.Store, session_id: str, branch: str = "main") -> Any:
    return store.scope(session_id, branch, "conversation")


def texts(items: list[Any]) -> list[str]:
    """Return items as short texts: a question, the name of a call, its output, an answer."""
    return [
        each["content"][0]["text"]
        if each.get("role") == "assistant"
        else each.get("content") or each.get("name") or each["output"]
        for each in items
    ]


def contents(store: limpet.Store) -> dict[Any, Any]:
    """Return everything in a store: the ids and states of all snapshots."""
    return {
        each.key: [(i.id, i.created_at, store.scope(*each.key).load(i)) for i in history]
        for each in store.scopes()
        if (history := list(store.scope(*each.key).history()))
    }


def test_sessions(store: limpet.Store, source: Source) -> None:
    path = source(
        "plain",
        "UPDATE agent_messages SET created_at = '2026-01-02 03:04:05' WHERE id < 4",
        "UPDATE agent_messages SET created_at = '2026-01-02 03:04:09' WHERE id = 4",
    )
    before = path.read_bytes()
    done = import_sqlite(store, path)
    assert (done.count, done.skipped) == (4, ())
    assert path.read_bytes() == before
    assert list(store.sessions()) == ["alice/1", "bob/1"]
    alice = scope(store, "alice/1")
    assert texts(alice.load().state["items"]) == [
        *("shell", "look_up", "SHELL", "found: SHELL"),
        *("rock", "look_up", "ROCK", "found: ROCK"),
    ]
    history = list(alice.history())[::-1]
    assert [len(alice.load(each).state["items"]) for each in history] == [3, 4, 8]
    assert [each.created_at for each in history[:2]] == [
        datetime(2026, 1, 2, 3, 4, second, tzinfo=UTC) for second in (5, 9)
    ]
    assert history[1].parent_id == history[0].id


def test_again(store: limpet.Store, source: Source) -> None:
    for name in ("plain", "advanced"):
        first = import_sqlite(store, source(name))
        before = contents(store)
        again = import_sqlite(store.aio, str(source(name)))
        assert (again.count, again.unchanged, first.unchanged) == (0, first.count, 0)
        assert contents(store) == before


def test_what_is_new_in_the_file_is_added(store: limpet.Store, source: Source) -> None:
    new = """INSERT INTO agent_messages (session_id, message_data)
             VALUES ('bob/1', '{"role": "user", "content": "more"}')"""
    import_sqlite(store, source("plain"))
    done = import_sqlite(store, source("plain", new))
    assert (done.count, done.unchanged) == (1, 3)
    bob = scope(store, "bob/1")
    assert texts(bob.load().state["items"])[-2:] == ["found: TIDE", "more"]
    assert [len(bob.load(each).state["items"]) for each in bob.history()] == [5, 4]


def test_an_import_that_was_interrupted_continues(store: limpet.Store, source: Source) -> None:
    whole = source("plain").read_bytes()
    part = source("plain", "DELETE FROM agent_messages WHERE id > 3")
    import_sqlite(store, part)
    part.write_bytes(whole)
    assert import_sqlite(store, part).skipped == ()
    assert len(scope(store, "alice/1").load().state["items"]) == 8


def test_what_was_continued_in_the_store_stays(store: limpet.Store, source: Source) -> None:
    import_sqlite(store, source("plain"))
    alice, bob = scope(store, "alice/1"), scope(store, "bob/1")
    alice.append("items", [{"role": "user", "content": "here"}])
    assert import_sqlite(store, source("plain")).skipped == ()
    bob.save({"items": []})  # cleared
    before = contents(store)
    done = import_sqlite(store, source("plain"))
    assert [(each.code, each.scope) for each in done.skipped] == [("session_skipped", bob.key)]
    assert contents(store) == before
    new = """INSERT INTO agent_messages (session_id, message_data) VALUES ('alice/1', '{}')"""
    done = import_sqlite(store, source("plain", new))
    assert [each.scope for each in done.skipped] == [alice.key, bob.key]
    assert contents(store) == before


def test_branches(store: limpet.Store, source: Source) -> None:
    done = import_sqlite(store, source("advanced"))
    assert done.skipped == ()
    asked = {
        "main": ["shell", "rock", "tide"],
        "bold": ["shell", "sand", "foam"],
        "bolder": ["shell", "sand", "kelp"],
        "fresh": ["salt"],
    }
    scopes = {each.key.scope_id for each in store.scopes("chat", kind="conversation")}
    assert scopes == set(asked)
    for branch, words in asked.items():
        items = scope(store, "chat", branch).load().state["items"]
        assert [each["content"] for each in items if each.get("role") == "user"] == words
        assert len(items) == 4 * len(words)
    for branch, source_of, count in (("bold", "main", 4), ("bolder", "bold", 8)):
        first = list(scope(store, "chat", branch).history())[-1]
        assert first.forked_from is not None
        assert first.forked_from.scope == ("chat", source_of, "conversation")
        there = scope(store, "chat", source_of).load(first.forked_from.id)
        assert there.state == scope(store, "chat", branch).load(first).state
        assert len(there.state["items"]) == count
    assert list(scope(store, "chat", "fresh").history())[-1].forked_from is None


def test_bad_rows_are_reported_and_skipped(store: limpet.Store, source: Source) -> None:
    rows: dict[str, str] = {
        "'{not json'": "the item is not JSON",
        "'{\"n\": NaN}'": "not finite",
        "'[\"\\ud800\"]'": "surrogate",
        "x'ff00'": "the item is not JSON",
        "''": "the item is not JSON",
        "printf('%.*c%.*c', 3000, '[', 3000, ']')": "",
    }
    insert = "INSERT INTO agent_messages (session_id, message_data) VALUES ('bob/1', {})"
    good = """INSERT INTO agent_messages (session_id, message_data, created_at)
              VALUES ('bob/1', '{"role": "user", "content": "last"}', 'soon')"""
    odd = """INSERT INTO agent_messages (session_id, message_data)
             VALUES ('', '{}'), ('a' || char(0) || 'b', '{}'), (CAST(x'ff' AS TEXT), '{}')"""
    path = source("plain", *(insert.format(each) for each in rows), good, odd)
    done = import_sqlite(store, path)
    items = scope(store, "bob/1").load().state["items"]
    assert texts(items)[-2:] == ["found: TIDE", "last"]
    messages = [each.message for each in done.skipped if each.code == "item_skipped"]
    assert len(messages) == len(rows)
    for message, fact in zip(messages, rows.values(), strict=True):
        assert fact in message
        assert "row=`" in message
    assert [each.code for each in done.skipped].count("session_skipped") == 3
    assert list(store.sessions()) == ["alice/1", "bob/1"]


def test_a_prefix_and_a_table(store: limpet.Store, source: Source) -> None:
    path = source("plain", 'ALTER TABLE agent_messages RENAME TO "my ""messages"')
    with pytest.raises(limpet.NotFound, match="no such table"):
        import_sqlite(store, path)
    assert import_sqlite(store, path, table='my "messages', prefix="bob/").count == 1
    assert list(store.sessions()) == ["bob/1"]


def test_what_is_no_such_file(tmp_path: Path, source: Source) -> None:
    (tmp_path / "text.db").write_text("no database, but long enough to look at" * 40)
    with limpet.open("memory:") as store:
        with pytest.raises(limpet.NotFound, match="does not exist"):
            import_sqlite(store, tmp_path / "none.db")
        with pytest.raises(limpet.InvalidInput, match="not a SQLite database"):
            import_sqlite(store, tmp_path / "text.db")
        path = source("plain", "ALTER TABLE agent_messages RENAME COLUMN message_data TO data")
        with pytest.raises(limpet.Unsupported, match="another layout"):
            import_sqlite(store, path)
        with pytest.raises(limpet.InvalidInput, match="expected a store"):
            import_sqlite("memory:", path)  # type: ignore[arg-type]


def test_a_file_that_is_being_written(store: limpet.Store, source: Source) -> None:
    path = source("plain", "PRAGMA journal_mode = WAL")
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("DELETE FROM agent_messages")
        assert import_sqlite(store, path).count == 3
        conn.execute("ROLLBACK")
