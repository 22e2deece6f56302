"""The verbs that change a store: fork, restore, rm, prune, redact, compact and repair."""

import json
import shlex
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet.cli._app import run
from tests.cases import for_each
from tests.cli.conftest import Command
from tests.cli.test_command import on_terminal
from tests.cli.test_grep import damage

SECRET = "hunter2"
ODD = "o d'd\"\n\x1b[2J$(x)"
Says = Callable[..., Any]


def fill(url: str, session: str = ODD, snapshots: int = 3) -> list[str]:
    """Save the states 0, 1, 2, …; return the ids."""
    with limpet.open(url) as store:
        chat = store.scope(session)
        return [chat.save({"n": n, "mood": "calm"}).id for n in range(snapshots)]


def states(url: str, session: str = ODD, scope: str = "main") -> list[Any]:
    """Return what the history holds, the oldest first."""
    with limpet.open(url) as store:
        line = store.scope(session, scope)
        ids = [info.id for info in line.history()]
        return [snapshot.state["n"] for snapshot in line.load_many(reversed(ids))]


def sessions(url: str) -> list[str]:
    with limpet.open(url) as store:
        return list(store.sessions())


@pytest.fixture
def says(capsys: pytest.CaptureFixture[str]) -> Says:
    """Return a function that runs a verb in this process; it gives the code and both outputs."""

    def says(url: str, *arguments: str) -> tuple[int, str, str]:
        code = run([*arguments, "--url", url])
        told = capsys.readouterr()
        return code, told.out, told.err

    return says


# Fork.


def test_fork(command: Command, any_url: str) -> None:
    ids = fill(any_url)
    done = command("fork", f"{ODD}@~1", "--set", 'mood="b=d"', "--set", "n=7", "--url", any_url)
    assert (done.returncode, done.stderr) == (0, "")
    (name,) = done.stdout.splitlines()
    session, _, scope = name.rpartition(":")
    assert session == "o d'd\"\\n\\x1b[2J$(x)"
    with limpet.open(any_url) as store:
        head = store.scope(ODD, scope).load()
    assert head is not None
    assert head.state == {"n": 7, "mood": "b=d"}
    assert head.forked_from == (limpet.ScopeKey(ODD), ids[1])
    assert states(any_url) == [0, 1, 2]


def test_fork_to_another_session(any_url: str, says: Says) -> None:
    fill(any_url, "chat")
    code, out, _ = says(any_url, "fork", "chat", "--to", "new", "--as", "side", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["scope"] == {"session_id": "new", "scope_id": "side", "kind": "agent"}
    assert told["head"]["forked_from"]["session_id"] == "chat"
    assert says(any_url, "fork", "chat", "--to", "new", "--as", "side")[0] == 3
    assert states(any_url, "new", "side") == [2]


@for_each("change", ["mood", "mood=bold", "mood=", "mood=NaN", f"mood={SECRET}"])
def test_what_is_set_must_be_json(change: str, url: str, says: Says) -> None:
    code, out, err = says(url, "fork", "bob/chat-2", "--set", change)
    assert (code, out) == (2, "")
    assert "quote a text as JSON" in err
    assert SECRET not in err
    assert says(url, "fork", "nobody", "--to", "x")[0] == 1


# Restore.


def test_restore(command: Command, any_url: str) -> None:
    ids = fill(any_url)
    done = command("restore", ids[0][:-1], "--url", any_url)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"has the state of {ids[0][:8]}…{ids[0][-4:]}" in done.stdout
    assert done.stdout.endswith(f"{ids[2][:8]}…{ids[2][-4:]} stays in history\n")
    assert states(any_url) == [0, 1, 2, 0]


def test_restore_tells_programs(any_url: str, says: Says) -> None:
    ids = fill(any_url, "chat")
    code, out, _ = says(any_url, "restore", "chat@~2", "--json")
    told = json.loads(out)
    assert (code, told["changed"]) == (0, True)
    assert [told[each]["id"] for each in ("restored", "before")] == [ids[0], ids[2]]
    assert told["head"]["parent_id"] == ids[0]
    # Again it is the head already, and nothing is done.
    code, out, _ = says(any_url, "restore", "chat", "--json")
    again = json.loads(out)
    assert (code, again["changed"], again["head"]) == (0, False, told["head"])
    assert "nothing was done" in says(any_url, "restore", "chat")[1]
    # What was decided by an older look is not done.
    code, out, _ = says(any_url, "restore", ids[1], "--expect", told["before"]["revision"])
    assert (code, out) == (3, "")
    assert says(any_url, "restore", ids[1], "--expect", told["head"]["revision"])[0] == 0
    assert states(any_url, "chat") == [0, 1, 2, 0, 1]


def test_a_draft_is_not_lost_unasked(url: str, says: Says) -> None:
    ids = fill(url, "chat")
    with limpet.open(url) as store:
        store.scope("chat").save({"n": "draft"}, keep=False)
    code, _, err = says(url, "restore", ids[0])
    assert code == 2
    assert "pass --yes" in err
    code, out, _ = says(url, "restore", ids[0], "--yes")
    assert code == 0
    assert "was a draft and is lost" in out
    assert says(url, "restore", "nobody")[0] == 1


# Rm.


def test_rm(command: Command, any_url: str) -> None:
    for session in (ODD, "s", "s1", "t/1", "t/2"):
        fill(any_url, session)
    refused = command("rm", "s", "--url", any_url)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("- session s  3 snapshots, ")
    assert "--yes" in refused.stderr
    done = command("rm", ODD, "s", "--yes", "--url", any_url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "deleted session o d'd\"\\n\\x1b[2J$(x)  3 snapshots",
        "deleted session s  3 snapshots",
    ]
    assert sessions(any_url) == ["s1", "t/1", "t/2"]


def test_rm_never_guesses(any_url: str, says: Says) -> None:
    ids = fill(any_url, "chat-1")
    for arguments, code in (
        (["chat"], 1),
        (["chat-1", "chat"], 1),  # and nothing is deleted before all are found
        (["--prefix", "x"], 1),
        (["-s", "chat", "--scope", "main"], 1),
        (["-s", "chat-1", "--scope", "mai"], 1),
        (["--snapshot", "chat-1"], 2),
        (["--snapshot", "chat"], 2),
        (["--snapshot", "chat-1~1"], 2),
        (["--snapshot", "chat@"], 2),
        (["--snapshot", "chat@~1"], 2),
        (["--snapshot", "chat-1:mai@~1"], 2),
        (["--snapshot", "@", "-s", "chat"], 2),
        (["--snapshot", ids[0], "-s", "chat-1", "--scope", "ma"], 2),
        (["--snapshot", "nothing"], 1),
    ):
        assert says(any_url, "rm", "--yes", *arguments)[0] == code, arguments
    assert states(any_url, "chat-1") == [0, 1, 2]


def test_rm_what_is_named_clearly(any_url: str, says: Says) -> None:
    forms: list[tuple[Callable[[list[str]], str], list[int]]] = [
        (lambda ids: ids[0], [1, 2]),
        (lambda ids: f"{ids[1][:8]}…{ids[1][-12:]}", [0, 2]),
        (lambda ids: "{session}@~1", [0, 2]),
        (lambda ids: "{session}:main@~1", [0, 2]),
        (lambda ids: f"{{session}}@{ids[2]}", [0, 1]),
        (lambda ids: f"{ids[2]}~1", [0, 2]),
    ]
    for number, (form, left) in enumerate(forms):
        session = f"chat-{number}"
        ref = form(fill(any_url, session)).format(session=session)
        assert says(any_url, "rm", "--yes", "--snapshot", ref)[0] == 0, ref
        assert states(any_url, session) == left
    (id,) = fill(any_url, "last", 1)
    code, out, _ = says(any_url, "rm", "--yes", "--json", "--snapshot", "@", "-s", "last")
    assert (code, json.loads(out)) == (
        0,
        {"session_id": "last", "scope_id": "main", "kind": "agent", "id": id, "snapshots": 1},
    )


def test_what_is_damaged_can_be_deleted(any_url: str, says: Says) -> None:
    with limpet.open(any_url) as store:
        for session in ("a", "b", "c"):
            store.scope(session).save({"text": "a fox"})
    for session in ("a", "b"):
        damage(any_url, session)
    assert says(any_url, "rm", "a", "--yes")[0] == 0
    assert says(any_url, "rm", "-s", "b", "--scope", "main", "--yes")[0] == 0
    assert sessions(any_url) == ["c"]
    assert says(any_url, "check")[0] == 0


def test_rm_a_scope_and_a_prefix(any_url: str, says: Says) -> None:
    for session in ("t/1", "t/2", "u"):
        fill(any_url, session)
    with limpet.open(any_url) as store:
        store.scope("u", "side").save({"n": 1})
        store.scope("u", "side", "graph").save({"n": 1})
        store.scope("u").set_note("a", 1)
    code, out, err = says(any_url, "rm", "-s", "u", "--scope", "side", "--yes")
    assert (code, out) == (2, "")
    assert "give --kind" in err
    code, out, _ = says(any_url, "rm", "-s", "u", "--scope", "side", "--kind", "graph", "--yes")
    assert (code, out) == (0, "deleted scope u:side (graph)  1 snapshot\n")
    code, out, _ = says(any_url, "rm", "--prefix", "t/", "--yes", "--json")
    assert [json.loads(line)["session_id"] for line in out.splitlines()] == ["t/1", "t/2"]
    assert sessions(any_url) == ["u"]


@for_each(
    ("verb", "question", "deleted"),
    [
        (
            "rm alice/chat-1 bob/chat-2",
            "- session alice/chat-1  2 snapshots, 1.5 KiB\n- session bob/chat-2  1 snapshot, 12 B\n"
            "2 sessions, 3 snapshots, 1.5 KiB",
            "deleted session bob/chat-2  1 snapshot",
        ),
        (
            "prune alice/chat-1 planner --keep-last 0",
            "- alice/chat-1:planner  1 snapshot, 531 B\nDelete 1 snapshot, 531 B for good?",
            "deleted 1 snapshot, 531 B, from 1 scope",
        ),
        ("redact alice/chat-1 --path /mood", "Replace it in all snapshots of ", "2 snapshots"),
    ],
)
def test_it_asks(verb: str, question: str, deleted: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    with limpet.open(url) as store:
        chat = store.scope("alice/chat-1", "planner")
        chat.save({"messages": ["hello" * 100], "mood": "calm"})
        chat.save({"messages": ["hello" * 200], "mood": "bold"})
        store.scope("bob/chat-2").save({"files": {}})
        before = [info.revision for info in store.history()]
        for answer, expected in (("n\n", 130), ("y\n", 0)):
            assert [info.revision for info in store.history()] == before
            code, drawn = on_terminal(*verb.split(), "--url", url, answer=answer, TERM="dumb")
            drawn = drawn.replace("\r\n", "\n")
            assert (code, question in drawn, deleted in drawn) == (expected, True, not expected)
        assert [info.revision for info in store.history()] != before


# Prune.


def test_prune(command: Command, any_url: str) -> None:
    fill(any_url, snapshots=5)
    asked = ("prune", ODD, "--keep-last", "2", "--url", any_url)
    tried = command(*asked, "--dry-run")
    assert (tried.returncode, tried.stderr) == (0, "")
    assert tried.stdout.splitlines() == [
        "- o d'd\"\\n\\x1b[2J$(x):main  3 snapshots, 63 B",
        "would delete 3 snapshots, 63 B, from 1 scope",
    ]
    assert states(any_url) == [0, 1, 2, 3, 4]
    done = command(*asked, "--yes", "--json")
    assert json.loads(done.stdout) == {
        "session_id": ODD,
        "scope_id": "main",
        "kind": "agent",
        "count": 3,
        "bytes": 63,
        "dry_run": False,
    }
    assert states(any_url) == [3, 4]


def test_prune_by_age_everywhere(any_url: str, says: Says) -> None:
    old = datetime.now(UTC) - timedelta(days=31)
    with limpet.open(any_url) as store:
        for session in ("a", "b/1", "b/2"):
            for n in range(3):
                store.scope(session).save({"n": n}, created_at=old)
            store.scope(session).save({"n": 3})
    assert says(any_url, "prune", "--all", "--older-than", "32d", "--yes")[:2] == (
        0,
        "nothing to delete\n",
    )
    code, out, _ = says(any_url, "prune", "--prefix", "b/", "--older-than", "30d12h", "--yes")
    assert code == 0
    assert out.splitlines()[-1] == "deleted 6 snapshots, 42 B, from 2 scopes"
    assert [states(any_url, each) for each in ("a", "b/1", "b/2")] == [[0, 1, 2, 3], [3], [3]]
    code, out, _ = says(
        any_url, "prune", "--all", "--older-than", "4w", "--keep-last", "3", "--yes", "--json"
    )
    assert (code, json.loads(out)["count"]) == (0, 1)
    assert states(any_url, "a") == [1, 2, 3]


def test_the_policy_prunes(any_url: str, says: Says) -> None:
    with limpet.open(any_url) as store:
        for session in ("a", "demo/1"):
            for n in range(4):
                store.scope(session).save({"n": n}, labels={"release": "1"} if n == 0 else {})
    assert says(any_url, "policy")[:2] == (0, "")
    limits = ("--keep-last", "1", "--older-than", "0s", "--keep-label", "release")
    assert says(any_url, "policy", "set", *limits)[1].splitlines() == [
        "*  all kinds  keep_last 1, older_than 0:00:00, keep_labels release"
    ]
    age = ("--delete-session-after", "0s")
    assert says(any_url, "policy", "set", "--prefix", "demo/", *age, "--json")[1].count("\n") == 2
    planned = says(any_url, "prune", "--policy", "--dry-run")
    assert planned[:2] == (
        0,
        "- a:main  2 snapshots, 14 B\n- session demo/1  4 snapshots, 28 B\n"
        "would delete 1 session, 6 snapshots, 42 B, 0 items\n",
    )
    assert says(any_url, "prune", "--policy")[0] == 2
    assert states(any_url, "a") == [0, 1, 2, 3]
    code, out, _ = says(any_url, "prune", "--policy", "--yes", "--json")
    assert (code, [json.loads(line) for line in out.splitlines()]) == (
        0,
        [
            {"count": 2, "bytes": 14, "dry_run": False}
            | {"session_id": "a", "scope_id": "main", "kind": "agent"},
            {"count": 4, "bytes": 28, "dry_run": False}
            | {"session_id": "demo/1", "scope_id": None, "kind": None},
            {"sessions": 1, "snapshots": 6, "bytes": 42, "items": 0, "skipped": 0},
        ],
    )
    assert states(any_url, "a") == [0, 3]
    assert says(any_url, "policy", "rm", "--prefix", "demo/")[0] == 0
    assert says(any_url, "policy", "rm", "--prefix", "demo/")[0] == 1
    assert says(any_url, "policy", "set", "--prefix", "demo/")[1].splitlines()[1] == (
        "demo/*  all kinds  keeps everything"
    )


# Redact.


def test_redact(command: Command, any_url: str) -> None:
    with limpet.open(any_url) as store:
        chat = store.scope(ODD)
        for n in range(3):
            chat.save({"n": n, "by": SECRET, "of": {f"a {SECRET}": 1}})
        chat.set_note("title", f"of {SECRET}")
    asked = ("redact", ODD, "--url", any_url, "--yes")

    done = command(*asked, "--text", SECRET)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "o d'd\"\\n\\x1b[2J$(x):main  changed: 3 snapshots, 1 note\n"
    done = command(*asked, "main", "--path", "/n", "--json")
    assert json.loads(done.stdout) == {
        "session_id": ODD,
        "scope_id": "main",
        "kind": "agent",
        "snapshots": 3,
        "notes": 0,
    }

    with limpet.open(any_url) as store:
        found, note = store.scope(ODD).load(), store.scope(ODD).note("title")
        assert found is not None
        assert found.state == {"n": None, "by": None, "of": None}
        assert note is not None
        assert note.value is None


# Compact and repair.


def test_compact_and_repair(command: Command, any_url: str) -> None:
    fill(any_url)
    done = command("compact", "--json", "--url", any_url)
    assert done.returncode == 0
    assert json.loads(done.stdout)["bytes"] >= 0
    done = command("check", "--repair", "--url", any_url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "✓ no errors\n", "")


# All of them.


@for_each(
    ("line", "code"),
    [
        ("rm", 2),
        ("rm --prefix ''", 2),
        ("rm a --prefix b", 2),
        ("rm a --snapshot b", 2),
        ("rm a -s b", 2),
        ("rm -s b", 2),
        ("rm --scope b", 2),
        ("rm --scope b --prefix c", 2),
        ("prune --keep-last 1", 2),
        ("prune alice/chat-1", 2),
        ("prune alice/chat-1 --all --keep-last 1", 2),
        ("prune alice/chat-1 --keep-last -1", 2),
        ("prune alice/chat-1 --older-than 5", 2),
        ("prune alice/chat-1 --older-than '5d 3h'", 2),
        ("prune alice/chat-1 --older-than 99999999999999999999w", 2),
        ("prune alice/chat --keep-last 1", 1),
        ("prune alice/chat-1 plan --keep-last 1", 1),
        ("prune --policy --keep-last 1", 2),
        ("prune --policy --all", 2),
        ("prune --policy --kind agent", 2),
        ("redact alice/chat-1", 2),
        ("redact alice/chat-1 --text ''", 2),
        ("redact alice/chat-1 --path messages", 2),
        ("redact alice --path /messages", 1),
    ],
)
def test_what_is_not_clear_changes_nothing(line: str, code: int, url: str, says: Says) -> None:
    with limpet.open(url) as store:
        before = [(info.id, info.revision) for info in store.history()]
        assert says(url, *shlex.split(line), "--yes")[0] == code
        assert [(info.id, info.revision) for info in store.history()] == before


@for_each(
    "line",
    [
        *("diff x", "grep x", "fork x", "restore x", "rm x", "prune x --keep-last 1", "compact"),
        *("redact x --text x --yes", "check --repair", "runs", "runs abort x", "runs adopt x"),
        "runs show x",
    ],
)
def test_no_store_is_made_and_no_secret_told(line: str, says: Says) -> None:
    url = f"sqlite:///nowhere/x.db?password={SECRET}"
    for each in (url, f"sqlite://bob:{SECRET}@host/x.db", "sqlite:////nowhere/x.db"):
        code, out, err = says(each, *line.split())
        assert code in (1, 2)
        assert SECRET not in out + err
        assert len(err.splitlines()) == 1
