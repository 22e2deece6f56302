"""`limpet grep`: where something was said."""

import json
import sqlite3
from pathlib import Path
from urllib.parse import unquote

import pytest

import limpet
from limpet.cli._app import run
from tests.cases import for_each
from tests.cli.conftest import Command

ODD = "o d'd:\n\x1b[2J"


def fill(url: str) -> dict[str, str]:
    """Save some states; return the ids of the first session's snapshots by what they say."""
    with limpet.open(url) as store:
        chat = store.scope("alice/chat", "planner")
        ids = {}
        messages: list[str] = []
        for text in ("a red fox\nand a hen", "a blue fox", "nothing"):
            messages.append(text)
            ids[text] = chat.save({"messages": messages, "fox": 1}).id
        store.scope(ODD).save("FOX \x1b[2J" + "x" * 500, status="running")
        store.scope("bob", kind="graph").save({"a/b": ["no", {"c": "one fox"}]})
    return ids


def test_heads(command: Command, any_url: str) -> None:
    ids = fill(any_url)
    head = ids["nothing"]
    done = command("grep", "fox", "--url", any_url)
    assert (done.returncode, done.stderr) == (0, "")
    short = f"{head[:8]}…{head[-4:]}"
    first, second, third = done.stdout.splitlines()
    assert first == f"alice/chat:planner@{short}:messages.0: a red fox"
    assert second == f"alice/chat:planner@{short}:messages.1: a blue fox"
    assert third.startswith("bob:main@")
    assert third.endswith(":a/b.1.c: one fox")


def test_history_tells_where_it_was_said_first(command: Command, any_url: str) -> None:
    ids = fill(any_url)
    done = command("grep", "fox", "alice", "--history", "--json", "--url", any_url)
    assert done.returncode == 0
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {
            "session_id": "alice/chat",
            "scope_id": "planner",
            "kind": "agent",
            "id": ids[text],
            "path": f"messages.{place}",
            "pointer": f"/messages/{place}",
            "is_key": False,
            "text": text.partition("\n")[0],
            "start": len(text.partition("fox")[0]),
            "end": len(text.partition("fox")[0]) + 3,
        }
        for place, text in enumerate(["a red fox\nand a hen", "a blue fox"])
    ]


def test_nothing_found_is_1(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["grep", "unicorn", "--url", url]) == 1
    assert capsys.readouterr() == ("", "")


def lines(capsys: pytest.CaptureFixture[str], url: str, *arguments: str) -> list[str]:
    """Run it in this process; return what it printed."""
    run(["grep", *arguments, "--url", url])
    return capsys.readouterr().out.splitlines()


def test_what_is_looked_at(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    ids = fill(url)
    head = f"alice/chat:planner@{ids['nothing']}"
    assert lines(capsys, url, "fox", "-c") == [
        f"{head}:2",
        lines(capsys, url, "fox", "-l", "--kind", "graph")[0] + ":1",
    ]
    assert lines(capsys, url, "f.x", "-F") == []
    first = [f"alice/chat:planner@{id}" for id in list(ids.values())[:2]]
    assert lines(capsys, url, "fox", "alice/chat", "--history", "-l") == first
    (told,) = map(json.loads, lines(capsys, url, "-i", "fox", "--json", "--prefix", "o"))
    assert told["session_id"] == ODD
    assert told["text"].startswith("FOX \x1b[2J")
    assert lines(capsys, url, "^fox$", "--keys", "-l") == [head]
    assert len(lines(capsys, url, "(?i)fox", "--status", "running")) == 1
    assert len(lines(capsys, url, "fox", "-m", "1")) == 1
    counted = lines(capsys, url, "fox", "-c", "--json", "--prefix", "alice/")
    assert json.loads(counted[0]) == {
        "session_id": "alice/chat",
        "scope_id": "planner",
        "kind": "agent",
        "id": ids["nothing"],
        "count": 2,
    }
    with limpet.open(url) as store:
        store.scope("alice/chat", "planner").save("a draft of a fox", keep=False)
    assert len(lines(capsys, url, "fox", "alice/chat", "--history")) == 3


def test_a_match_is_shown_with_what_is_around_it(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(url)
    (line,) = lines(capsys, url, "x{9}$", "--prefix", "o")
    assert line.startswith("o d'd:\\n\\x1b[2J:main@")
    assert line.endswith(": …" + "x" * 159)
    (line,) = lines(capsys, url, "^FOX", "--prefix", "o")
    assert ": FOX \\x1b[2Jxx" in line
    assert line.endswith("x…")


@for_each("pattern", ["x[", "(", "*", "(?P<x>a)(?P<x>b)", "a{99999999999}"])
def test_a_bad_pattern_is_2(pattern: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["grep", pattern, "--url", url]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "PATTERN" in told.err.splitlines()[-1]
    assert run(["grep", "-F", pattern, "--url", url]) == 1


def test_what_excludes_each_other(url: str) -> None:
    assert run(["grep", "x", "alice", "--prefix", "b", "--url", url]) == 2
    assert run(["grep", "x", "-l", "-c", "--url", url]) == 2
    assert run(["grep", "x", "-m", "0", "--url", url]) == 2


def damage(url: str, session: str) -> None:
    """Spoil the stored state of a session that has one snapshot."""
    if url.startswith("sqlite:"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as conn:
            conn.execute(
                "UPDATE tails SET body = x'7b7d' WHERE seq IN (SELECT seq FROM snapshots"
                " JOIN scopes ON scopes.pk = scope_pk WHERE session_id = ?)",
                [session],
            )
        conn.close()
        return
    folder = Path(unquote(url.removeprefix("file://"))) / "sessions" / session
    for path in folder.rglob("head"):
        path.write_bytes(path.read_bytes().replace(b"fox", b"f\xffx"))


def spoil_scopes(folder: Path, session: str) -> None:
    """Spoil what the heads, the histories and the notes of a session need."""
    for path in (folder / "sessions" / session).rglob("head"):
        path.write_bytes(b"no head")


def test_what_is_damaged_is_told_and_skipped(
    any_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(any_url)
    with limpet.open(any_url) as store:
        store.scope("carl").save({"text": "a fox in here"})
        store.scope("dora").set_note("den", "a fox")
    damage(any_url, "carl")
    for more in ([], ["--history"]):
        assert run(["grep", "fox", "-l", *more, "--url", any_url]) == 5
        told = capsys.readouterr()
        assert "bob:main@" in told.out
        assert "dora:main@:note den" in told.out
        assert "carl" not in told.out
        (line,) = told.err.splitlines()
        assert line.startswith("limpet: skipped: ")
        spoil_scopes(tmp_path / "agents", "carl")
