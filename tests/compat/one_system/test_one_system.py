"""All five interfaces over one store: what one of them saves, the others go on with."""

import asyncio
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from limpet import ScopeKey, SnapshotRef, Store
from limpet.compat.agentos import CheckpointStore
from limpet.compat.genkit import SessionStore
from limpet.compat.runs import Checkpoint, RunStore
from limpet.compat.strands import (
    Snapshot,
    SnapshotLocation,
    StoreStorage,
)
from tests.present import present

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "one_store.py"
MOMENT = "019c9bf1-14e5-7eef-96fb-cc07ae54210f"
STORY = f"""\
Strands kept ['{MOMENT}']
AgentOS forked it, with {{'tone': 'bold'}}
Genkit saw it grow from 1 message to 2
a worker is at iteration 3
the fork came from chat-42, snapshot {MOMENT[:8]}
scopes of the kinds agent, agent, run
"""


def example() -> ModuleType:
    spec = present(importlib.util.spec_from_file_location("one_store", EXAMPLE))
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_runs() -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", STORY)


def test_a_conversation_goes_through_all_of_them(store: Store) -> None:
    assert asyncio.run(example().tell(store.aio)) == STORY.splitlines()
    source = ScopeKey("chat-42", "planner")
    (fork,) = [info.key for info in store.scopes(kind="agent") if info.key != source]
    assert fork.scope_id == "planner"

    # The native history has it with its lineage, and the state that Genkit left.
    (info,) = store.scope(*fork).history()
    assert info.forked_from == SnapshotRef(source, MOMENT)
    shown = present(store.scope(*fork).load())
    assert shown.state == {
        "messages": ["Two days in Lisbon?", "Porto!"],
        "scratch": {"tone": "bold"},
    }
    before = present(store.scope(*source).load(MOMENT))
    assert before.state["messages"] == ["Two days in Lisbon?"]

    # Everybody sees the same, each in its own words.
    place = SnapshotLocation(fork.session_id, "agent", "planner")
    told = present(asyncio.run(StoreStorage(store).load_snapshot(place, info.id)))
    assert told.data == shown.state
    graph = present(asyncio.run(CheckpointStore(store).get(info.id)))
    assert (graph.run_id, graph.state) == (fork.session_id, shown.state)
    assert [run.run_id for run in RunStore(store).list()] == ["nightly-1"]
    assert set(store.sessions()) == {"chat-42", fork.session_id, "nightly-1"}
    assert [*store.check()] == []

    # And it goes as it came.
    assert store.delete_session(fork.session_id) == 1
    assert asyncio.run(CheckpointStore(store).get(info.id)) is None


def test_native_saves_are_seen_by_all(store: Store) -> None:
    saved = store.scope("chat-1").save({"messages": ["hello"]}, id="native-1")
    place = SnapshotLocation("chat-1", "agent", "main")

    async def seen() -> list[Any]:
        told = await StoreStorage(store).load_snapshot(place)
        row = await SessionStore[Any](store).get_snapshot(session_id="chat-1")
        graph = await CheckpointStore(store).get("native-1")
        assert told is not None
        assert row is not None
        assert graph is not None
        return [told.data, row.state, graph.state]

    assert asyncio.run(seen()) == [{"messages": ["hello"]}] * 3
    store.scope("chat-1", kind="run").save({"messages": [1], "system_prompt": "be kind"})
    loaded = RunStore(store).load("chat-1")
    assert (loaded.messages, loaded.system_prompt) == ([1], "be kind")
    assert store.scope("chat-1").info() == saved  # nobody has touched it


def test_each_goes_on_where_another_stopped(store: Store) -> None:
    """Genkit saves a turn, Strands goes on from it, AgentOS forks that, a worker runs it."""

    async def relay() -> str:
        sessions = SessionStore[Any](store)
        await sessions.save_snapshot(
            "turn-1", lambda row: {"sessionId": "trip", "state": {"messages": ["one"]}}
        )
        strands, place = StoreStorage(store), SnapshotLocation("trip", "agent", "main")
        told = present(await strands.load_snapshot(place))
        data: Any = told.data
        later = Snapshot("agent", "1.0", told.created_at, {"messages": [*data["messages"], "two"]})
        await strands.save_snapshot(place, "turn-2", is_latest=False, snapshot=later)
        return await CheckpointStore(store).fork("turn-2")

    run_id = asyncio.run(relay())
    found = present(store.scope(run_id).load())
    assert found.state == {"messages": ["one", "two"]}
    assert found.forked_from == SnapshotRef(ScopeKey("trip"), "turn-2")
    runs = RunStore(store)
    runs.save(Checkpoint(run_id, messages=found.state["messages"]))
    assert runs.load(run_id).messages == ["one", "two"]
    assert {info.key.kind for info in store.scopes(run_id)} == {"agent", "run"}
