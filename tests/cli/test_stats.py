"""`limpet stats`: what it shows, its JSON, and its exit codes."""

import json
from pathlib import Path

import limpet
from tests.cli.conftest import Command


def test_it_shows_counts_sizes_and_what_is_biggest(command: Command, url: str) -> None:
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


def test_it_shows_one_session(command: Command, url: str) -> None:
    done = command("stats", "alice/chat-1", "--url", url)
    assert done.returncode == 0
    assert done.stdout.splitlines()[:2] == ["alice/chat-1", "1 scope · 2 snapshots"]
    assert "planner:messages" in done.stdout


def test_its_json_says_what_the_library_says(command: Command, url: str) -> None:
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


def test_a_session_that_is_not_there_is_1(command: Command, url: str) -> None:
    done = command("stats", "carol", "--url", url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "limpet: there is no such session: `limpet ls` lists them. name=`carol`\n"


def test_asking_creates_nothing(command: Command, tmp_path: Path) -> None:
    done = command("stats", "--url", "sqlite:///absent.db")
    assert done.returncode == 1
    assert "there is no such file" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_url_may_stand_in_the_environment(command: Command, url: str, tmp_path: Path) -> None:
    assert command("stats", LIMPET_URL=url).returncode == 0
    # An option wins over the environment.
    assert command("stats", "--url", url, LIMPET_URL="sqlite:///absent.db").returncode == 0
    assert command("stats", LIMPET_URL="sqlite:///absent.db").returncode == 1
    assert not (tmp_path / "absent.db").exists()


def test_names_cannot_draw_on_the_terminal(command: Command, url: str) -> None:
    with limpet.open(url) as store:
        store.scope("evil\x1b[2J\nname [bold]").save(1)
    shown = command("stats", "--url", url).stdout
    assert "\x1b" not in shown
    assert "evil\\x1b[2J\\nname [bold]" in shown
