"""`limpet diff`: what changed, for people, as a patch, and as an exit code."""

import json

import pytest

import limpet
from limpet.cli._app import run
from limpet.core.diff import diff
from tests.cli.conftest import Command

ASKED = {"role": "user", "content": "Is there a train at ten?"}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "trains", "arguments": '{"at": 10}'}}
    ],
}
FOUND = {"role": "tool", "tool_call_id": "c1", "content": "At ten past ten."}
LINES = [f"line {number}" for number in range(30)]
FIRST = {"mood": "calm", "n": 1, "messages": [ASKED], "files": {"a.md": "\n".join(LINES)}}
SECOND = {
    "mood": "bold",
    "messages": [ASKED, CALLED, FOUND],
    "files": {"a.md": "\n".join([*LINES[:9], "line nine", *LINES[10:]]), "b.md": "one\ntwo"},
}


def fill(url: str) -> limpet.ScopeKey:
    """Save two snapshots, and fork a third off into another session; return where it is."""
    with limpet.open(url) as store:
        chat = store.scope("a b'c\n\x1b[2J")
        chat.save(FIRST)
        second = chat.save(SECOND)
        return chat.fork(second.id, to="other", patch={"mood": "odd"}).key


def test_what_a_snapshot_changed(command: Command, any_url: str) -> None:
    fill(any_url)
    done = command("diff", "@", "-s", "a b", "--url", any_url, COLUMNS="80")
    assert (done.returncode, done.stderr) == (1, "")
    old, new, *lines = done.stdout.splitlines()
    assert old.startswith("--- a b'c\\n\\x1b[2J:main@")
    assert new.startswith("+++ a b'c\\n\\x1b[2J:main@")
    assert lines == [
        "",
        "- n  1",
        "~ mood  calm → bold",
        "",
        "messages",
        "  + 1  assistant  ▸ trains(at=10)",
        "  + 2  tool  ◂ trains → At ten past ten.",
        "",
        "files",
        "  ~ a.md",
        "      … 8 lines",
        "        line 8",
        "      - line 9",
        "      + line nine",
        "        line 10",
        "      … 19 lines",
        "  + b.md",
        "      + one",
        "      + two",
        "",
        "3 added, 2 changed, 1 removed",
    ]


def test_json_and_patch(command: Command, any_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    fill(any_url)
    done = command("diff", "a b@~1", "a b@", "--json", "--url", any_url)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert (told["a"]["session_id"], told["b"]["parent_id"]) == ("a b'c\n\x1b[2J", told["a"]["id"])
    assert told["changes"][0] == {"path": "/n", "kind": "removed", "before": 1, "after": None}
    assert told["patch"] == diff(FIRST, SECOND).to_json_patch()
    assert run(["diff", "a b@~1", "a b@", "--patch", "--url", any_url]) == 1
    assert json.loads(capsys.readouterr().out) == told["patch"]


def test_across_sessions(any_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    fork = fill(any_url)
    assert run(["diff", "a b@", f"{fork.session_id}@", "--json", "--url", any_url]) == 1
    across = json.loads(capsys.readouterr().out)
    # The first of a fork is compared with what it came from.
    assert run(["diff", "other", "--json", "--url", any_url]) == 1
    assert across == json.loads(capsys.readouterr().out)
    assert [change["path"] for change in across["changes"]] == ["/mood"]


def test_no_difference_is_0(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", "alice/chat-1@", "alice/chat-1@", "--url", url]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no difference"


def test_stat(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    fill(url)
    assert run(["diff", "a b@~1", "a b@", "--stat", "--url", url]) == 1
    assert capsys.readouterr().out.splitlines()[3:] == [
        " n              1  -",
        " mood           1  ~",
        " messages       2  ++",
        " files          2  +~",
        "",
        "3 added, 2 changed, 1 removed",
    ]
    assert run(["diff", "a b@~1", "a b@", "--stat", "--json", "--url", url]) == 1
    stat = json.loads(capsys.readouterr().out)["stat"]
    assert stat[3] == {"key": "files", "added": 1, "changed": 1, "removed": 0, "moved": 0}
    assert run(["diff", "a b@", "--stat", "--patch", "--url", url]) == 2


def test_the_first_of_all_is_compared_with_nothing(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diff", "bob/chat-2", "--url", url]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[3]) == ("--- nothing", "+ files  {}")
    assert run(["diff", "bob/chat-2", "--json", "--url", url]) == 1
    assert json.loads(capsys.readouterr().out)["a"] is None


def test_what_came_before_may_be_gone(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with limpet.open(url) as store:
        chat = store.scope("alice/chat-1", "planner")
        chat.prune(keep_last=1)
    assert run(["diff", "alice/chat-1@", "--url", url]) == 1
    assert "the parent or fork source was deleted" in capsys.readouterr().err
    assert run(["diff", "alice/chat-1@", "nobody@", "--url", url]) == 1


def test_states_that_are_no_objects(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with limpet.open(url) as store:
        for state in (["a", {"id": 1}, {"id": 2}], [{"id": 2}, "a", {"id": 1}], "x" * 500, None):
            store.scope("list").save(state)
    for back in (2, 1, 0):
        assert run(["diff", f"list@~{back}", "--url", url]) == 1
    shown = capsys.readouterr().out
    assert "(the state)\n  > 0  from 2\n" in shown
    assert "\n1 moved\n" in shown
    assert f"      - {'x' * 71}…\n      + null\n" in shown


def test_long_things_are_folded_until_asked_for(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with limpet.open(url) as store:
        chat = store.scope("long")
        chat.save({"many": [], "text": "", "words": "x " * 300 + "old"})
        many = [{"id": number} for number in range(100)]
        chat.save({"many": many, "text": "\n".join(LINES), "words": "x " * 300 + "new"})
    assert run(["diff", "long@", "--url", url]) == 1
    folded = capsys.readouterr().out
    assert "  … 80 more changes; --full shows all\n" in folded
    assert "    … 18 more lines; --full shows all\n" in folded
    assert "    - …" in folded
    assert max(map(len, folded.splitlines())) <= 100
    assert run(["diff", "long@", "--full", "--url", url]) == 1
    full = capsys.readouterr().out
    assert "more" not in full
    assert "x " * 300 + "new" in full
    assert full.count('"id": ') == 100
