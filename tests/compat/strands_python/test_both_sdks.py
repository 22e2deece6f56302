"""Agents in Python go on with what agents in TypeScript left, with the real SDK on both sides."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from strands.storage import LocalFileStorage

import limpet
from limpet import Store, Unsupported
from limpet.compat.strands import export_sessions, find_layout, import_sessions
from tests.compat.strands_python.agents import (
    FIXTURES,
    agent_on,
    answer_to,
    graph_on,
    manager_on,
    said,
    storage_on,
    wait,
)
from tests.interop.ground import LAYOUTS, Ground
from tests.interop.places import Below, Place
from tests.interop.sdk import Sdk
from tests.present import present

WHERE = "scopes/agent/planner/snapshots/"
IMAGE: Any = {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}
ALWAYS: dict[str, Any] = {"snapshot_trigger": lambda **_: True}


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.slow)])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        return tmp_path / "store"
    return Below(request.getfixturevalue("seaweedfs"), f"team/{uuid4().hex}")


@pytest.fixture(params=["classic", "unified"])
def ground(sdk: Sdk, folder: Place, request: pytest.FixtureRequest) -> Ground:
    """Storage that both sides know, in each layout."""
    return Ground(sdk, LAYOUTS[request.param], folder)


@pytest.mark.parametrize(
    ("fixture", "session_id"),
    [
        ("ts_unified_localfile", "demo-unified"),
        ("ts_filestorage", "demo-invocation"),
        ("ts_filestorage", "demo-trigger"),
    ],
)
def test_an_agent_in_python_goes_on_with_a_real_session(fixture: str, session_id: str) -> None:
    [latest] = (FIXTURES / fixture).rglob(f"{session_id}/**/snapshot_latest.json")
    theirs = json.loads(latest.read_text())["data"]
    with limpet.open("memory:") as store:
        import_sessions(store, FIXTURES / fixture, layout=find_layout(FIXTURES / fixture))
        agent = agent_on(storage_on(store), session_id, "support-bot")
        assert said(agent.messages) == said(theirs["messages"])
        ids = [message["tracking_id"] for message in agent.messages]
        assert ids == [message["trackingId"] for message in theirs["messages"]]
        assert agent.state.get() == theirs["state"]
        assert agent.system_prompt == theirs["systemPrompt"]
        agent("and now?")
        again = agent_on(storage_on(store), session_id, "support-bot")
        assert said(again.messages) == [*said(theirs["messages"]), "and now?", "echo: and now?"]
        [past, *_] = wait(manager_on(storage_on(store), session_id).list_snapshot_ids(agent))
        assert wait(
            manager_on(storage_on(store), session_id).restore_snapshot(agent, snapshot_id=past)
        )


def test_an_agent_in_python_gives_the_answer_that_one_in_typescript_waits_for() -> None:
    with limpet.open("memory:") as store:
        import_sessions(store, FIXTURES / "ts_filestorage")
        agent = agent_on(storage_on(store), "demo-interrupt", "approver")
        result = agent(answer_to(agent._interrupt_state.interrupts.values(), "yes"))
        assert result.stop_reason == "end_turn"
        assert said(agent.messages)[-1] == "echo: approved: yes"
        assert agent.messages[0]["content"][1]["image"]["source"]["bytes"] == b"\x89PNG"


def test_an_agent_in_python_goes_on_with_what_one_in_typescript_left(ground: Ground) -> None:
    theirs = ground.theirs("chat-42", "planner")
    theirs.converse("one", "add 2 3", history=True, app_state={"n": 1})
    with limpet.open("memory:") as store:
        ground.pull(store)
        storage = storage_on(store)
        agent = agent_on(storage, **ALWAYS)
        assert said(agent.messages) == ["one", "echo: one", "add 2 3", "the tool has spoken"]
        assert agent.state.get() == {"n": 1}
        agent([{"text": "three"}, IMAGE])
        assert agent_on(storage).messages == agent.messages
        past = wait(manager_on(storage, "chat-42").list_snapshot_ids(agent))
        assert past[:-1] == theirs.ids()


def test_a_team_is_handed_over_between_runs(ground: Ground) -> None:
    theirs, calls = ground.theirs("chat-42", "team", "multiAgent"), list[str]()
    done = theirs.ask("orchestrate", sessionId="chat-42", graphId="team", prompt="go")
    assert done["status"] == "COMPLETED"
    with limpet.open("memory:") as store:
        ground.pull(store)
        scope = store.scope("chat-42", "team", "multiAgent")
        head = present(scope.load())
        graph_on(storage_on(store), calls)("go")
        assert calls == ["first", "second"]
        # In the middle of a run it is the team's own business.
        running = {"orchestratorId": "team", "state": {"_pendingInput": "go", "nodes": {}}}
        scope.save(running, metadata=head.metadata)
        with pytest.raises(Unsupported, match="has not finished its run"):
            graph_on(storage_on(store), calls)("go")


def test_a_folder_of_the_sdk_moves_into_a_store_and_back(store: Store, tmp_path: Path) -> None:
    theirs = LocalFileStorage(str(tmp_path / "in"))
    agent_on(theirs, **ALWAYS)("one")
    key = f"session/chat-42/{WHERE}snapshot_latest.json"
    import_sessions(store, tmp_path / "in", layout="unified")
    ours = storage_on(store)
    assert wait(ours.list("")) == wait(theirs.list(""))
    assert wait(ours.read(key)) == (tmp_path / "in" / key).read_bytes()
    agent = agent_on(ours, **ALWAYS)
    assert said(agent.messages) == ["one", "echo: one"]
    agent("two")

    export_sessions(store, tmp_path / "out", layout="unified")
    theirs = LocalFileStorage(str(tmp_path / "out"))
    again = agent_on(theirs, **ALWAYS)
    assert again.messages == agent.messages
    ids = wait(manager_on(theirs, "chat-42").list_snapshot_ids(again))
    assert ids == wait(manager_on(ours, "chat-42").list_snapshot_ids(again))
    for id in ids:
        assert wait(manager_on(theirs, "chat-42").restore_snapshot(again, snapshot_id=id))
        assert wait(manager_on(ours, "chat-42").restore_snapshot(agent, snapshot_id=id))
        assert again.messages == agent.messages
