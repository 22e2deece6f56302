"""`limpet notes`: what is next to the states, and memories of LangGraph's store."""

import json
from typing import Any

import limpet
from limpet.compat.langgraph import LimpetStore
from tests.cli.conftest import Command


def test_list_show_write_and_delete(command: Command, any_url: str) -> None:
    with limpet.open(any_url) as store:
        chat = store.scope("chat-42")
        head = chat.save({"messages": [{"role": "user", "content": "hello"}]})
        chat.set_note("review", {"by": ["Ada"]}, on=head)
        chat.set_note("memo", "other scopes have notes, too")
        store.scope("chat-42", "planner").set_note("memo", "2")

    def notes(*words: str) -> Any:
        return command("notes", *words, "--url", any_url)

    done = notes("chat", "title", "--set", '"A trip to Lisbon"', "--scope", "main")
    assert (done.returncode, done.stdout) == (0, "written title of chat-42:main@\n")
    rows = notes("chat-42").stdout.splitlines()
    assert rows[0].split() == ["scope", "note", "on", "age", "value"]
    assert [row.split()[0] for row in rows[1:]] == ["memo", "title", "review", "planner"]
    assert '"A trip to Lisbon"' in rows[2]
    assert notes("chat-42", "title").stdout == "A trip to Lisbon\n"
    assert notes("chat-42", "review").stdout == '{\n  "by": [\n    "Ada"\n  ]\n}\n'
    listed = [json.loads(line) for line in notes("chat-42", "--json").stdout.splitlines()]
    assert [(each["scope_id"], each["name"], each["on"]) for each in listed] == [
        ("main", "memo", None),
        ("main", "title", None),
        ("main", "review", head.id),
        ("planner", "memo", None),
    ]
    shown = command("show", "chat-42", "--scope", "main", "--url", any_url).stdout
    assert shown.index("notes") < shown.index("memo") < shown.index("review")

    store_url = ("--url", any_url)
    with limpet.open(any_url) as store:
        store.scope("odd", "x").set_note("--n\x1b[2J", "a\x1b[2Jb\u202e")
    assert command("notes", *store_url, "odd", "--", "--n\x1b[2J").stdout == "a\\x1b[2Jb\\u202e\n"
    assert "\x1b" not in notes("odd").stdout + notes("odd", "\x1b").stderr
    assert notes("odd", "--on", "no-such").stderr == "there are no notes\n"
    assert notes("odd", "", "--set", "1").stderr.count("JSON") == 0
    assert notes("odd", "--kind", "graph").returncode == 1

    assert notes("chat-42", "review", "--rm", "--on", head.id, "--yes").returncode == 0
    assert notes("chat-42", "review").returncode == 1
    assert notes("chat-42", "review", "--rm", "--yes").returncode == 1
    assert notes("chat-42", "title", "--rm").returncode == 2  # there is nobody to ask
    assert notes("chat-42", "title", "--set", "Lisbon").returncode == 2
    assert notes("chat-42", "--set", "1").returncode == 2
    done = notes("chat-43")
    assert (done.returncode, "did you mean `chat-42`?" in done.stderr) == (1, True)


def test_memories(command: Command, any_url: str) -> None:
    with limpet.open(any_url) as store:
        memories = LimpetStore(store)
        memories.put(("users", "alice"), "food", {"likes": "trout"})
        listed = command("notes", "users/alice", "--json", "--url", any_url).stdout
        assert json.loads(listed)["value"] == {"likes": "trout"}
        done = command("notes", "users/alice", "food", "--set", "{}", "--url", any_url)
        assert (done.returncode, "LimpetStore.put" in done.stderr) == (2, True)
        done = command("show", "users/alice", "--url", any_url)
        assert (done.returncode, "`limpet notes SESSION`" in done.stderr) == (1, True)
        found = command("grep", "trout", "--url", any_url).stdout
        assert found == "users/alice:main@:note food:likes: trout\n"
        assert command("notes", "users/alice", "food", "--rm", "--yes", "--url", any_url).stdout
        assert memories.get(("users", "alice"), "food") is None


def test_grep_in_notes(command: Command, any_url: str) -> None:
    with limpet.open(any_url) as store:
        chat = store.scope("chat")
        first = chat.save(["fox"])
        chat.set_note("den", "a fox", on=first)
        head = chat.save([])
        chat.set_note("hen", ["a fox"], on=head)
        chat.set_note("title", "The fox")

    def found(*words: str) -> list[tuple[str | None, str | None]]:
        done = command("grep", "fox", "--json", *words, "--url", any_url)
        lines = map(json.loads, done.stdout.splitlines())
        return [(each.get("note"), each["id"]) for each in lines]

    assert found() == [("title", None), ("hen", head.id)]
    assert {*found("--history")} == {
        (None, first.id),
        ("title", None),
        ("hen", head.id),
        ("den", first.id),
    }
    assert found("--history", "--status", "") == [(None, first.id)]
