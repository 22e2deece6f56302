"""The demo of the inspector: its sessions, its agent, and what is left of them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import runs
from limpet.compat import agentos, genkit, strands
from limpet.compat import runs as go_runs
from limpet.compat.langgraph import LimpetSaver
from limpet.inspector.demo import fill, running_agent, sessions, stories
from limpet.inspector.demo.agent import KEPT_MAX, RUN
from limpet.views import overview
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


def test_each_facade_reads_its_own_session(store: limpet.Store) -> None:
    async def read() -> None:
        place = strands.SnapshotLocation(sessions.TRIP, "agent", "planner")
        storage = strands.StoreStorage(store)
        ids = await storage.list_snapshot_ids(place)
        latest = await storage.load_snapshot(place)
        assert latest == await storage.load_snapshot(place, ids[-1])

        turns = genkit.SessionStore[Any](store)
        turn = await turns.get_snapshot(session_id=sessions.KELP, context=sessions.READER)
        assert turn is not None
        assert (turn.snapshot_id, turn.status) == ("fact-check", "expired")

        checkpoints = agentos.CheckpointStore(store)
        node = await checkpoints.latest(sessions.GRAPH_RUN)
        assert node is not None
        assert (node.graph_id, node.node_id) == (sessions.GRAPH, "review")
        assert len(await checkpoints.list(sessions.GRAPH)) == 5

    asyncio.run(read())
    digests = go_runs.RunStore(store).list()
    assert [each.iteration for each in digests if each.run_id.startswith(sessions.DIGEST)] == [5, 4]
    saver = LimpetSaver(store)
    thread = saver.get_tuple({"configurable": {"thread_id": sessions.INVOICE}})
    assert thread is not None
    assert thread.pending_writes
    assert thread.pending_writes[0][1] == "__interrupt__"


def test_runs_have_every_status(store: limpet.Store) -> None:
    found = {name: runs.get(store, name) for name in sessions.RUNS}
    statuses = [each and each.status for each in found.values()]
    assert statuses == ["completed", "failed", "aborted", "expired"]
    failed = found[sessions.RUNS[1]]
    assert failed is not None
    assert failed.error is not None
    assert failed.error.type == "ConnectionError"


def test_chats_of_all_shapes_are_read(store: limpet.Store) -> None:
    """Every call has its result, and nothing is left as JSON."""
    scopes = {
        "strands": store.scope(sessions.TRIP, "planner"),
        "genkit": store.scope(f"maria/{sessions.KELP}"),
        "anthropic": store.scope(sessions.BUG, "coder"),
        "openai": store.scope("support/8841", "support"),
        "langgraph": store.scope(sessions.INVOICE, kind="thread"),
    }
    for shape, scope in scopes.items():
        chat = chat_of(scope)
        assert chat.shape == shape
        parts = parts_of(chat)
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


def test_histories_have_branches_forks_and_drafts(store: limpet.Store) -> None:
    planner, by_day, cheaper, villach = (
        store.scope(sessions.TRIP, name) for name in ("planner", "by-day", "cheaper", "villach")
    )
    head = by_day.info()
    assert head is not None
    origins = [list(each.history())[-1].forked_from for each in (by_day, cheaper, villach)]
    at = limpet.SnapshotRef(planner.key, f"turn-{stories.TRIP_FORK_AT + 1:02}")
    assert origins == [at, at, limpet.SnapshotRef(by_day.key, head.id)]
    assert len(list(planner.leaves())) == 1
    assert len(list(store.scope(sessions.BUG, "coder").leaves())) == 2
    port = store.scope(sessions.PORT, "coder")
    assert len(list(port.history())) == sessions.PORT_STEPS + 25
    assert len(list(port.leaves())) == 6
    draft = store.scope(sessions.STORY, "writer").info()
    assert draft is not None
    assert not draft.kept


def test_sessions_have_titles_and_ages(store: limpet.Store) -> None:
    found = {each.session_id: each for each in overview.sessions(store).shown}
    assert found[sessions.TRIP].about.title == "Night train to Venice"
    assert found[sessions.PORT].about.title == "Port the parser to Python, file by file"
    ages = [NOW - each.head.created_at for each in found.values() if each.head is not None]
    assert min(ages) > timedelta(0)
    assert min(ages) < timedelta(minutes=5)
    assert max(ages) > timedelta(days=4)
    assert len({age // timedelta(minutes=1) for age in ages}) > 15
    statuses = {each.head.status for each in found.values() if each.head is not None}
    assert statuses >= {
        "completed",
        "failed",
        "aborted",
        "running",
        "waiting",
        "pending",
        "blocked",
    }


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
