"""`limpet ls` and `limpet stats`: for people and as JSON, and their exit codes."""

import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
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
        line.save({"n": 3}, keep=False, status="waiting")
        line.fork(first.id, scope_id="side").save({"n": 2}, status="running")


def talk(url: str) -> None:
    """Save two conversations: one with a title, one with a first message, and a plain state."""
    with limpet.open(url) as store:
        trip = store.scope("bob/trip")
        asked = {"role": "user", "content": "A weekend in\nLisbon?"}
        told = {"role": "assistant", "content": "Take tram 28."}
        trip.save({"messages": [asked, told]}, status="completed")
        trip.fork(trip.save({"messages": [asked, told, asked]}).id, scope_id="side")
        tax = store.scope("ann/tax")
        tax.save({"messages": [{"role": "system", "content": "Be brief."}, asked]}, status="")
        tax.set_note("title", "Taxes of 2023")
        store.scope("plain").save({"step": 3, "files": []})


def test_which_conversation_was_that(command: Command, any_url: str) -> None:
    talk(any_url)
    done = command("ls", "--sort", "name", "--url", any_url, COLUMNS="120")
    assert (done.returncode, done.stderr) == (0, "")
    heading, tax, trip, plain = (re.split("  +", row) for row in done.stdout.splitlines())
    assert heading == ["session", "title", "last message", "status", "age", "size"]
    assert tax[:4] == ["ann/tax", "Taxes of 2023", "user A weekend in Lisbon?", "\N{EN DASH}"]
    assert trip[:3] == ["bob/trip", "A weekend in Lisbon?", "user A weekend in Lisbon?"]
    assert plain[:2] == ["plain", "{step, files}"]
    shown = command("ls", "bob", "--url", any_url).stdout.splitlines()
    assert shown[0] == "bob/trip"
    assert shown[1].split() == ["scope", "title", "last", "message", "status", "age", "size"]
    assert [row.split()[0] for row in shown[2:]] == ["main", "side"]


def test_it_reads_the_states_that_it_shows_alone(
    command: Command, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with limpet.open(url) as store:
        for number in range(120):
            store.scope(f"many-{number:03}").save({"messages": [str(number)]})
    loaded: list[str | None] = []
    load = limpet.Scope.load

    def counted(scope: limpet.Scope, id: str | None = None) -> limpet.Snapshot | None:
        loaded.append(id)
        return load(scope, id)

    monkeypatch.setattr(limpet.Scope, "load", counted)
    for name in ("leaves", "history"):  # what -l is for
        monkeypatch.setattr(limpet.Scope, name, lambda *a: pytest.fail("not needed"))
    assert "… 72 more" in command("ls", "--url", url).stdout
    assert len(loaded) == 50


def test_the_whole_width_is_used_and_no_id_is_cut(command: Command, url: str) -> None:
    long = "x" * 70
    with limpet.open(url) as store:
        for name in ("short", long):
            store.scope(name).save({"messages": [{"role": "user", "content": "word " * 90}]})
    for columns in (60, 80, 120, 200):
        shown = command("ls", "--url", url, COLUMNS=str(columns)).stdout.splitlines()
        assert any(row.split()[0] == long for row in shown)
        if columns > 100:
            assert max(map(cell_len, shown)) == columns
    assert command("ls", "-l", "--url", url, COLUMNS="40").stdout.count(long) == 1


def test_storage_is_listed(command: Command, any_url: str) -> None:
    fill(any_url)
    done = command("ls", "-l", "--url", any_url)
    assert (done.returncode, done.stderr) == (0, "")
    heading, *rows = done.stdout.splitlines()
    names = ["session", "age", "status", "scopes", "snapshots", "branches", "stored"]
    assert heading.split()[:7] == names
    assert [row.split()[0] for row in rows] == ["bob/trip", "alice/2", "alice/1"]
    assert rows[0].split()[2:6] == ["running", "2", "4", "2"]
    assert rows[1].split()[2:6] == ["failed", "1", "1", "1"]
    shown = command("ls", "-l", "bob", "--url", any_url, COLUMNS="100").stdout.splitlines()
    heading, *rows = shown[1:]
    assert heading.split() == [
        *("scope", "kind", "age", "status", "snapshots", "branches", "logical", "head"),
        *("forked", "from"),
    ]
    main, side = (row.split() for row in rows)
    assert [main[at] for at in (0, 1, 3, 4, 5, 8)] == ["main", "agent", "waiting", "2", "1", "◇"]
    assert [side[at] for at in (0, 1, 3, 4, 5, 8)] == ["side", "agent", "running", "2", "1", "◆"]
    assert side[-1].startswith("main@…")


def test_its_json_says_what_the_library_says(command: Command, any_url: str) -> None:
    fill(any_url)
    with limpet.open(any_url) as store:
        stats = store.stats("bob/trip")
        line = store.scope("bob/trip")
        heads = [line.info(), store.scope("bob/trip", "side").info()]
        (source,) = line.history()
    done = command("ls", "--json", "-l", "--url", any_url)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["session_id"] for each in found] == ["bob/trip", "alice/2", "alice/1"]
    assert heads[0] is not None
    assert heads[1] is not None
    counts = {
        "snapshots": 4,
        "branches": 2,
        "logical_bytes": stats.logical_bytes,
        "stored_bytes": stats.stored_bytes,
    }
    brief = {
        "session_id": "bob/trip",
        "title": None,
        "message": None,
        "status": "running",
        "created_at": heads[1].created_at.isoformat().replace("+00:00", "Z"),
        "size": heads[0].size + heads[1].size,
        "kinds": ["agent"],
        "scopes": 2,
        "damaged": 0,
    }
    assert found[0] == brief | counts
    assert json.loads(command("ls", "--json", "--url", any_url).stdout.splitlines()[0]) == brief
    shown = command("ls", "bob/trip", "--json", "-l", "--url", any_url).stdout.splitlines()
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
    for verb in ("ls", "stats"):
        done = command(verb, "carol", "--url", url)
        assert (done.returncode, done.stdout) == (1, "")
        fact = "there is no such session: `limpet ls` lists them"
        assert done.stderr == f"limpet: {fact}. name=`carol`\n"
    fill(url)
    assert command("ls", "alice", "--url", url).returncode == 2
    assert command("ls", "bob/trip", "--sort", "age", "--url", url).returncode == 2


def test_damage_is_told(command: Command, url: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "agents.db")) as conn, conn:
        conn.execute("UPDATE snapshots SET status = 'forged' WHERE parent_id IS NOT NULL")
    done = command("ls", "--url", url)
    assert done.returncode == 0
    (alice,) = (row for row in done.stdout.splitlines() if row.startswith("alice"))
    assert alice.split()[:3] == ["alice/chat-1", "damaged", "-"]
    counts = command("ls", "-l", "--url", url).stdout
    (alice,) = (row for row in counts.splitlines() if row.startswith("alice"))
    assert alice.split()[:6] == ["alice/chat-1", "-", "damaged", "1", "2", "1"]
    shown = command("log", "alice", "--url", url).stdout.splitlines()
    assert shown[1] == "the head of planner is damaged: run `limpet check`"
    assert len(shown) == 3


def test_stats_show_counts_sizes_and_what_is_biggest(command: Command, url: str) -> None:
    done = command("stats", "--url", url)
    assert (done.returncode, done.stderr) == (0, "")
    first, second, *_ = done.stdout.splitlines()
    assert first == "2 sessions · 2 scopes · 3 snapshots"
    assert "as JSON" in second
    assert "stored" in second
    alice, bob = (line for line in done.stdout.splitlines() if "chat-" in line)
    assert alice.startswith("alice/chat-1 ")  # the biggest first, with the longest bar
    assert alice.count("█") == 24
    assert bob.startswith("bob/chat-2 ")
    assert bob.count("█") < 24


def test_stats_for_programs(command: Command, url: str) -> None:
    with limpet.open(url) as store:
        stats = store.stats()
    assert json.loads(command("stats", "--json", "--url", url).stdout) == {
        "session": None,
        "sessions": 2,
        "scopes": 2,
        "snapshots": 3,
        "logical_bytes": stats.logical_bytes,
        "stored_bytes": stats.stored_bytes,
        "ratio": round(stats.stored_bytes / stats.logical_bytes, 4),
        "largest": [{"name": name, "bytes": size} for name, size in stats.largest],
    }
    one = json.loads(command("stats", "bob/chat-2", "--json", "--url", url).stdout)
    assert one["session"] == "bob/chat-2"
    assert one["largest"] == [{"name": "main:files", "bytes": 2}]


def test_an_empty_store_has_no_ratio(command: Command, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    limpet.open(url).close()
    assert json.loads(command("stats", "--json", "--url", url).stdout)["ratio"] is None
    assert command("stats", "--url", url).stdout.startswith("0 sessions · 0 scopes · 0 snapshots\n")
