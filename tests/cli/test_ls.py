"""`limpet ls`: sessions and scopes, for people and as JSON, and its exit codes."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.cells import cell_len

import limpet
from tests.cli.conftest import Command

START = datetime(2024, 1, 1, tzinfo=UTC)


def fill(url: str) -> None:
    """Save three sessions: the oldest is `alice/1`, and `bob/trip` has a fork and a draft."""
    with limpet.open(url) as store:
        for minute in range(3):
            moment = START + timedelta(minutes=minute)
            store.scope("alice/1").save({"n": minute}, created_at=moment)
        store.scope("alice/2").save({"text": "x" * 3000}, status="failed")
        line = store.scope("bob/trip")
        first = line.save({"n": 1})
        line.fork(first.id, scope_id="side").save({"n": 2}, status="running")
        line.save({"n": 3}, keep=False)


def test_sessions_and_scopes_are_listed(command: Command, any_url: str) -> None:
    fill(any_url)
    done = command("ls", "--url", any_url)
    assert (done.returncode, done.stderr) == (0, "")
    heading, *rows = done.stdout.splitlines()
    assert heading.split()[:6] == ["session", "age", "snapshots", "branches", "status", "stored"]
    assert [row.split()[0] for row in rows] == ["bob/trip", "alice/2", "alice/1"]
    assert rows[0].split()[2:5] == ["4", "2", "completed"]
    assert rows[1].split()[2:5] == ["1", "1", "failed"]
    heading, *rows = command("ls", "bob", "--url", any_url, COLUMNS="100").stdout.splitlines()[1:]
    assert heading.split() == [
        *("kind", "scope", "age", "snapshots", "branches", "status", "size", "head"),
        *("forked", "from"),
    ]
    main, side = (row.split() for row in rows)
    assert [main[at] for at in (0, 1, 3, 4, 5, 8)] == ["agent", "main", "2", "1", "completed", "◇"]
    assert [side[at] for at in (0, 1, 3, 4, 5, 8)] == ["agent", "side", "2", "1", "running", "◆"]
    assert side[-1].startswith("main@…")


def test_its_json_says_what_the_library_says(command: Command, any_url: str) -> None:
    fill(any_url)
    with limpet.open(any_url) as store:
        stats = store.stats("bob/trip")
        line = store.scope("bob/trip")
        heads = [line.info(), store.scope("bob/trip", "side").info()]
        (source,) = line.history()
    found = [
        json.loads(line) for line in command("ls", "--json", "--url", any_url).stdout.splitlines()
    ]
    assert [each["session_id"] for each in found] == ["bob/trip", "alice/2", "alice/1"]
    assert heads[0] is not None
    assert found[0] == {
        "session_id": "bob/trip",
        "kinds": ["agent"],
        "scopes": 2,
        "damaged": 0,
        "status": "completed",
        "created_at": heads[0].created_at.isoformat().replace("+00:00", "Z"),
        "snapshots": 4,
        "branches": 2,
        "logical_bytes": stats.logical_bytes,
        "stored_bytes": stats.stored_bytes,
    }
    shown = command("ls", "bob/trip", "--json", "--url", any_url).stdout.splitlines()
    main, side = map(json.loads, shown)
    assert [each["head"]["id"] for each in (main, side)] == [each.id for each in heads if each]
    assert (main["head"]["kept"], main["forked_from"]) == (False, None)
    place = {"session_id": "bob/trip", "scope_id": "main", "kind": "agent"}
    assert side["forked_from"] == {**place, "id": source.id}
    assert {"snapshots": 2, "branches": 1, "damaged": False}.items() <= side.items()


def test_an_order_a_prefix_and_a_limit(command: Command, url: str) -> None:
    fill(url)
    done = command("ls", "--sort", "size", "-n", "1", "--url", url)
    _, first, more = done.stdout.splitlines()
    assert first.startswith("alice/2")
    assert more == "… 4 more (-n 0 shows all)"
    done = command("ls", "--sort", "name", "--prefix", "alice/", "-n", "0", "--url", url)
    names = [row.split()[0] for row in done.stdout.splitlines()[1:]]
    assert names == ["alice/1", "alice/2", "alice/chat-1"]
    assert command("ls", "bob/t", "-n", "1", "--url", url).stdout.endswith(
        "… 1 more (-n 0 shows all)\n"
    )


def test_an_empty_store_says_so_and_is_fine(command: Command, any_url: str) -> None:
    with limpet.open(any_url) as store:
        store.scope("gone").save(1)
        store.delete_session("gone")
    done = command("ls", "--url", any_url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "the store is empty\n")


def test_what_is_not_there_and_what_is_not_clear(command: Command, url: str) -> None:
    done = command("ls", "carol", "--url", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "limpet: there is no such session: `limpet ls` lists them. name=`carol`\n"
    fill(url)
    assert command("ls", "alice", "--url", url).returncode == 2
    assert command("ls", "bob/trip", "--sort", "age", "--url", url).returncode == 2


def test_damage_is_told(command: Command, url: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "agents.db")) as conn, conn:
        conn.execute("UPDATE snapshots SET status = 'forged' WHERE parent_id IS NOT NULL")
    done = command("ls", "--url", url)
    assert done.returncode == 0
    (alice,) = (row for row in done.stdout.splitlines() if row.startswith("alice"))
    assert alice.split()[:5] == ["alice/chat-1", "-", "2", "1", "damaged"]
    shown = command("log", "alice", "--url", url).stdout.splitlines()
    assert shown[1] == "the head of planner is damaged: run `limpet check`"
    assert len(shown) == 3


def test_nothing_is_wider_than_the_terminal_or_draws_on_it(command: Command, url: str) -> None:
    with limpet.open(url) as store:
        for name in (
            "日本語のとても長いセッションの名前です/会話",
            "a/" + "long-" * 20,
            "\x1b[2J\nx",
        ):
            line = store.scope(name, "範囲" * 20)
            line.save({"n": 1}, id="識別子" * 9, status="waiting for somebody to answer")
            line.fork("識別子" * 9)
    for columns, arguments in ((100, ("ls",)), (60, ("ls", "日本語")), (40, ("ls",))):
        shown = command(*arguments, "--url", url, COLUMNS=str(columns)).stdout
        assert "\x1b" not in shown
        assert max(map(cell_len, shown.splitlines())) <= columns
    assert "\\x1b[2J\\nx" in shown
