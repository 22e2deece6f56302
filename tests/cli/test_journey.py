"""A day with the command: every verb once, on every engine; the slow ones as processes."""

import json
import re
import secrets
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest

import limpet
from limpet import runs
from tests.cli.conftest import Command
from tests.cli.test_command import on_terminal


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("sqlite process", marks=pytest.mark.slow),
        pytest.param("folder", marks=pytest.mark.slow),
        pytest.param("postgres", marks=pytest.mark.slow),
        pytest.param("s3", marks=pytest.mark.slow),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    match request.param:
        case "sqlite" | "sqlite process":
            return f"sqlite:///{tmp_path / 'agents.db'}"
        case "folder":
            return str(tmp_path / "agents")
        case "postgres":
            url: str = request.getfixturevalue("postgres_url")
            return url
    service = request.getfixturevalue("seaweedfs")
    for key in ("access_key_id", "secret_access_key"):
        monkeypatch.setenv(f"AWS_{key.upper()}", service.options[key])
    options = {k: v for k, v in service.options.items() if "key" not in k}
    return f"s3://{service.name}/{secrets.token_hex(8)}?{urlencode(options)}"


def test_every_verb(place: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    in_process = request.node.callspec.params["place"] == "sqlite"
    command: Command = request.getfixturevalue("command" if in_process else "process")
    with limpet.open(place) as store:
        chat = store.scope("alice/chat-1", "planner")
        for text in ("hello", "where to?", "to Lisbon"):
            chat.append("messages", [{"role": "user", "content": text}])
        with suppress(RuntimeError), runs.start(store, "nightly", task="report") as run:
            run.step({"pages": 1})
            raise RuntimeError("out of paper")

    def asked(*arguments: str, code: int = 0) -> str:
        done = command(*arguments, LIMPET_URL=place)
        assert (done.returncode, done.stderr) == (code, ""), arguments
        return done.stdout

    def told(*arguments: str, code: int = 0) -> list[dict[str, object]]:
        return [json.loads(line) for line in asked(*arguments, "--json", code=code).splitlines()]

    assert {each["session_id"] for each in told("ls")} == {"alice/chat-1", "nightly"}
    assert "planner" in asked("ls", "alice")
    assert [each["is_head"] for each in told("log", "alice/chat-1")] == [True, False, False]
    assert asked("log", "alice/chat-1", "--graph").count("●") == 2
    assert "where to?" in asked("show", "alice/chat-1@~1")
    assert "to Lisbon" in asked("diff", "alice/chat-1@", code=1)
    assert "messages.2.content" in asked("grep", "Lisbon")
    assert "to Lisbon" in asked("tail", "alice/chat-1", "-n", "1")
    assert "RuntimeError: out of" in asked("runs")
    assert "2 scopes" in asked("stats")
    asked("fork", "alice/chat-1@~1", "--as", "other")
    asked("restore", "alice/chat-1:planner@~2")
    assert asked("show", "alice/chat-1:planner@", "--path", "messages.0.content").strip() == "hello"
    asked("prune", "alice/chat-1", "planner", "--keep-last", "2", "--yes")
    asked("rm", "nightly", "--yes")
    asked("check")
    asked("check", "--repair")
    asked("compact")
    done = command("doctor", LIMPET_URL=place)
    assert (done.returncode, done.stdout.count("✓ ") >= 3) == (0, True)
    lines = asked("export")
    (tmp_path / "x.jsonl").write_text(lines)
    asked("import", "x.jsonl", "--url", "sqlite:///copy.db")
    asked("copy", "sqlite:///copy.db", f"file://{tmp_path}/copied")
    assert command("export", LIMPET_URL=f"file://{tmp_path}/copied").stdout == lines


def test_who_waits_sees_how_far_it_is(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/source.db?synchronous=off"
    with limpet.open(source) as store:
        for number in range(100):
            store.scope("long").append("messages", [f"message {number}"])
    code, drawn = on_terminal("copy", source, f"sqlite:///{tmp_path}/target.db")
    assert code == 0
    assert "copying" in drawn
    assert "snapshots ·" in drawn
    assert "1 session · 100 snapshots" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
