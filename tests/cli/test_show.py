"""`limpet show`: a snapshot as a chat, as a value and as JSON."""

import json
from typing import Any

import pytest

import limpet
from limpet.cli.show import value_at
from tests.cli.conftest import Command
from tests.each_case import each_case

CALLS = [
    {"id": "1", "function": {"name": "search", "arguments": '{"query": "castle"}'}},
    {"id": "2", "function": {"name": "book", "arguments": '{"seats": 4}'}},
]
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'QUJD' * 1024}"}}
STATE: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Is it \x1b[2Jopen?"}, IMAGE]},
        {"role": "assistant", "content": None, "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": "1", "content": "\n".join(map(str, range(226)))},
        {"role": "assistant", "content": "Yes.\n\nUntil six, ñandú 城."},
    ],
    "budget": {"euros": 400},
    "a.b": [1],
}
CHAT = """\
user 0
  Is it \\x1b[2Jopen?
  ▣ image (image/png, 3.0 KiB)

assistant 1
  ▸ search(query="castle")
  │ 0
  │ 1
"""
END = """\
  │ 11
  │ … 214 more lines (--full)
  ▸ book(seats=4)
  │ no result

assistant 3
  Yes.

  Until six, ñandú 城.

other values
budget  {"euros": 400}
a.b     [1]
"""


def test_show(command: Command, any_url: str) -> None:
    with limpet.open(any_url) as store:
        trip = store.scope("trip", "planner")
        first = trip.save({"step": 1}, id="first", status="running")
        info = trip.save(STATE, labels={"step": "02"}, metadata={"tokens": 7, "note": "x" * 200})

    shown = command("show", "trip", "--url", any_url)
    assert (shown.returncode, shown.stderr) == (0, "")
    header, _, chat = shown.stdout.partition("\n\n")
    facts = {line[:9].strip(): line[9:] for line in header.splitlines()}
    assert facts["snapshot"] == info.id
    assert facts["session"] == "trip"
    assert facts["scope"] == "planner (agent)"
    assert facts["saved"].startswith(f"{info.created_at:%Y-%m-%d %H:%M:%S} UTC, ")
    assert facts["status"] == "\N{EN DASH}"
    assert facts["parent"] == first.id
    assert facts["labels"] == "step=02"
    assert facts["metadata"].startswith('{"tokens": 7')
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert chat.startswith(CHAT)
    assert chat.endswith(END)

    full = command("show", "--session", "trip", "--full", LIMPET_URL=any_url).stdout
    assert "  │ 225\n" in full
    assert "--full" not in full
    assert "QUJD" not in shown.stdout + full

    raw = command("show", "@", "-s", "trip", "--raw", "--url", any_url)
    assert json.loads(raw.stdout) == STATE

    told = command("show", "trip@~1", "--json", "--url", any_url)
    assert json.loads(told.stdout)["state"] == {"step": 1}
    assert json.loads(told.stdout)["id"] == "first"

    said = command("show", "trip", "--path", "messages.-1.content", "--url", any_url)
    assert said.stdout == "Yes.\n\nUntil six, ñandú 城.\n"

    absent = command("show", "trip", "--path", "messages.9", "--url", any_url)
    assert (absent.returncode, absent.stdout) == (1, "")
    assert absent.stderr == ("limpet: the state has no value at this path. path=`messages.9`\n")


def test_a_state_without_messages_is_json(command: Command, tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    with limpet.open(url) as store:
        store.scope("files").save({"files": {f"f{n}": n for n in range(100)}}, keep=False)
    shown = command("show", "--url", url, COLUMNS="60")
    assert '\n{\n  "files": {\n    "f0": 0,\n' in shown.stdout
    assert shown.stdout.endswith("… 44 more lines (--full)\n")
    assert "a draft" in shown.stdout
    assert command("show", "nobody", "--url", url).returncode == 1


@each_case(
    ("path", "value"),
    [
        ("", STATE),
        (".", STATE),
        ("budget.euros", 400),
        ("/budget/euros", 400),
        ("a.b", [1]),
        ("a.b.0", 1),
        ("/a.b/-1", 1),
        ("messages.1.tool_calls.0.id", "1"),
    ],
)
def test_paths(path: str, value: Any) -> None:
    assert value_at(STATE, path) == value


@each_case("path", ["x", "messages.4", "messages.x", "messages.-5", "a", "/budget/euros/0"])
def test_paths_that_lead_nowhere(path: str) -> None:
    with pytest.raises(limpet.NotFound):
        value_at(STATE, path)
