"""The demo of the inspector: its sessions, its agent, and what is left of them."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

import limpet
from limpet import runs
from limpet.inspector.demo import fill, running_agent, sessions, stories
from limpet.inspector.demo.agent import KEPT_MAX, RUN
from limpet.views.chat import Answer, Call, Chat, Media, Part, Text, read_chat
from tests.waiting import WAIT_S_MAX, until

NOW = datetime(2026, 4, 14, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[limpet.Store]:
    url = f"sqlite:///{tmp_path_factory.mktemp('demo')}/demo.db"
    assert fill(f"{url}?synchronous=off", now=NOW) == []
    with limpet.open(url) as store:
        yield store


def chat_of(scope: limpet.Scope) -> Chat:
    found = scope.load()
    assert found is not None
    chat = read_chat(found.state)
    assert chat is not None
    return chat


def parts_of(chat: Chat) -> list[Part]:
    return [part for turn in chat.turns for part in turn.parts]


def test_chats_of_all_shapes_are_read(store: limpet.Store) -> None:
    """Every call has its result, and nothing is left as JSON."""
    scopes = {
        "strands": store.scope(sessions.TRIP, "planner"),
        "genkit": store.scope(f"maria/{sessions.KELP}"),
        "anthropic": store.scope(sessions.BUG, "coder"),
        "openai": store.scope("support/8841", "support"),
        "langgraph": store.scope(sessions.INVOICE, kind="thread"),
    }
    for scope in scopes.values():
        parts = parts_of(chat_of(scope))
        calls = [part for part in parts if isinstance(part, Call)]
        assert calls
        assert all(call.result is not None for call in calls)
        assert not any(isinstance(part, Answer) for part in parts)
        assert all(isinstance(part, Text | Call | Media) for part in parts)
    trip, bug = (parts_of(chat_of(scopes[name])) for name in ("strands", "anthropic"))
    assert sum(isinstance(p, Call) and bool(p.result and p.result.is_error) for p in trip) == 1
    assert any(isinstance(part, Text) and part.thinking for part in trip)
    long = next(part.result for part in bug if isinstance(part, Call))
    assert long is not None
    assert isinstance(long.parts[0], Text)
    assert long.parts[0].text.count("\n") > 2_000
    kelp = parts_of(chat_of(scopes["genkit"]))
    assert [part.mime for part in kelp if isinstance(part, Media)] == ["image/png"]
    assert len(chat_of(store.scope(sessions.NEWSROOM, "desk", "multiAgent")).turns) == 4


def test_the_same_is_written_each_time(store: limpet.Store, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/again.db?synchronous=off"
    fill(url, now=NOW)
    with limpet.open(url) as again:
        for scope in store.scopes():
            infos, others = (list(each.scope(*scope.key).history()) for each in (store, again))
            assert [each.id for each in infos] == [each.id for each in others]
            assert [each.created_at for each in infos] == [each.created_at for each in others]


def test_without_langgraph_its_session_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "limpet.compat.langgraph", None)
    assert [line.partition(":")[0] for line in fill("memory:")] == [
        "the session of LangGraph is left out"
    ]


def test_the_agent_saves_in_another_process_and_stops(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/live.db"
    with limpet.open(url) as store:
        with running_agent(url, pace_s=0.001) as agent:
            rounds = 5  # each has fewer snapshots than are kept of all
            until(
                lambda: (
                    (head := store.scope(RUN, kind="run").info())
                    and head.labels.get("round") == str(rounds)
                )
            )
            live = runs.get(store, RUN)
            assert live is not None
            assert live.status == "running"
            runs.abort(store, RUN)  # by a person: the agent begins again
            until(
                lambda: (
                    (head := store.scope(RUN, kind="run").info())
                    and head.labels.get("round") == str(rounds + 2)
                )
            )
        assert agent.returncode == 0
        kept = len(list(store.scope(RUN, kind="run").history()))
        assert KEPT_MAX <= kept < KEPT_MAX + 3 * len(stories.INCIDENT)


PARENT = """
import sys, time
from limpet.inspector.demo import running_agent
with running_agent(sys.argv[1]) as agent:
    print(agent.pid, flush=True)
    time.sleep(60)
"""


def test_the_agent_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, f"sqlite:///{tmp_path}/live.db"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    until(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX"
    return False


@pytest.mark.slow
def test_the_command_shows_the_demo_until_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "limpet", "ui", "--demo", "--no-open", "--port", "0", "--json"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "LIMPET_URL": "sqlite:///elsewhere.db"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment, cwd=tmp_path, start_new_session=True
    ) as ui:
        assert ui.stdout is not None
        url = json.loads(ui.stdout.readline())["url"]
        with urllib.request.urlopen(url) as answer:
            assert sessions.TRIP in answer.read().decode()
        agents = until(lambda: Path(f"/proc/{ui.pid}/task/{ui.pid}/children").read_text().split())
        assert len(agents) == 1
        os.killpg(ui.pid, signal.SIGINT)
        assert ui.wait(WAIT_S_MAX) == 0
    assert not is_running(int(agents[0]))
    assert list(tmp_path.iterdir()) == []


def test_a_url_and_the_demo_exclude_each_other(tmp_path: Path) -> None:
    from limpet.cli._app import run

    assert run(["ui", "sqlite:///x.db", "--demo"]) == 2
