"""Agents in TypeScript and in Python take turns, with the real SDK on both sides."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from strands.storage import LocalFileStorage

import limpet
from limpet import Store, Unsupported
from limpet.compat.strands import export_sessions, find_layout, import_sessions
from limpet.compat.strands.dialects.payloads import dialect_of
from tests.compat.strands_python.agents import (
    FIXTURES,
    PROMPT,
    agent_on,
    answer_to,
    graph_on,
    manager_on,
    said,
    storage_on,
    wait,
)
from tests.interop import node
from tests.interop.conftest import PROJECT
from tests.interop.ground import LAYOUTS, Ground
from tests.interop.places import Below, Place
from tests.interop.sdk import Sdk, SdkError

pytestmark = pytest.mark.timeout(300)  # the first test may have to install the SDK

WHERE = "scopes/agent/planner/snapshots/"
IMAGE: Any = {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}
ALWAYS: dict[str, Any] = {"snapshot_trigger": lambda **_: True}


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        return tmp_path / "store"
    return Below(request.getfixturevalue("seaweedfs"), f"team/{uuid4().hex}")


@pytest.fixture(params=["classic", "unified"])
def ground(sdk: Sdk, place: Place, request: pytest.FixtureRequest) -> Ground:
    """Storage that both sides know, in each layout."""
    return Ground(sdk, LAYOUTS[request.param], place)


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


def test_an_agent_in_typescript_gives_the_answer_that_one_in_python_waits_for(
    sdk: Sdk, tmp_path: Path
) -> None:
    with limpet.open("memory:") as store:
        agent_on(storage_on(store, dialect="typescript"))("confirm")
        export_sessions(store, tmp_path, layout="unified")
    runtime = node.find_runtime()
    packages = node.install("strands", PROJECT, cache=node.cache_folder(), runtime=runtime)
    script = Path(__file__).parent / "answer.mjs"
    done = subprocess.run(
        [runtime.node, "--no-warnings", script, packages, tmp_path, "chat-42", "planner", "yes"],
        check=True,
        capture_output=True,
    )
    told = json.loads(done.stdout)
    assert told["ids"] == ["tool:tu-9:approve"]
    assert [message["role"] for message in told["messages"]] == ["user", "assistant"] * 2
    result = told["messages"][2]["content"][0]["toolResult"]
    assert result["content"] == [{"text": "approved: yes"}]
    with limpet.open("memory:") as store:
        import_sessions(store, tmp_path, layout="unified")
        agent = agent_on(storage_on(store))
        assert said(agent.messages) == ["confirm", "done"]
        assert not agent._interrupt_state.activated


def test_agents_take_turns(ground: Ground) -> None:
    theirs = ground.theirs("chat-42", "planner")
    theirs.converse("one", "add 2 3", history=True, app_state={"n": 1})
    expected = ["one", "echo: one", "add 2 3", "the tool has spoken"]
    with limpet.open("memory:") as store:
        ground.pull(store)
        storage = storage_on(store, dialect="typescript")
        agent = agent_on(storage, **ALWAYS)
        assert said(agent.messages) == expected
        assert agent.state.get() == {"n": 1}
        agent.state.set("n", 2)
        agent([{"text": "three"}, IMAGE])
        expected += ["three", "echo: three"]

        ground.push(store)
        restored = theirs.restore()
        assert said(restored["messages"]) == expected
        assert restored["state"] == {"n": 2}
        assert restored["systemPrompt"] == [{"text": PROMPT}]
        assert restored["messages"][-2]["content"][1]["image"]["source"] == {"bytes": "iVBORw=="}
        ids = [message["trackingId"] for message in restored["messages"]]
        assert ids == [message["tracking_id"] for message in agent.messages]
        assert theirs.restore(theirs.ids()[-1]) == restored
        assert len(theirs.ids()) == 3

        theirs.converse("four")
        expected += ["four", "echo: four"]
        ground.pull(store)
        assert said(agent_on(storage).messages) == expected
        assert said(agent_on(storage_on(store)).messages) == expected


def test_what_is_written_for_typescript_reads_as_it_was_written(store: Store) -> None:
    storage = storage_on(store, dialect="typescript")
    for path in FIXTURES.glob("py_snapshot/**/*.json"):
        key = str(path.relative_to(FIXTURES / "py_snapshot"))
        wait(storage.write(key, path.read_bytes()))
        assert wait(storage.read(key)) == path.read_bytes()
    head = store.scope("demo-py", "support-bot").load()
    assert head is not None
    assert dialect_of(head.metadata["strands"]) == "typescript"
    assert "trackingId" in head.state["messages"][0]


def test_without_the_dialect_typescript_gets_nothing_it_could_misread(ground: Ground) -> None:
    """An agent in TypeScript refuses the document of one in Python, unless it is translated."""
    with limpet.open("memory:") as store:
        agent_on(storage_on(store))("one")
        ground.push(store)
        with pytest.raises(SdkError, match="Unsupported snapshot schema version"):
            ground.theirs("chat-42", "planner").restore()
        ground.push(store, payload="typescript")
        restored = ground.theirs("chat-42", "planner").restore()
        assert said(restored["messages"]) == ["one", "echo: one"]


def test_teams_take_turns_between_runs(ground: Ground) -> None:
    theirs, calls = ground.theirs("chat-42", "team", "multiAgent"), list[str]()

    def orchestrate() -> Any:
        return theirs.ask("orchestrate", sessionId="chat-42", graphId="team", prompt="go")

    assert orchestrate()["status"] == "COMPLETED"
    with limpet.open("memory:") as store:
        ground.pull(store)
        storage = storage_on(store, dialect="typescript")
        graph_on(storage, calls)("go")
        ground.push(store)
        assert calls == ["first", "second"]
        assert orchestrate() == {"status": "COMPLETED", "nodes": ["first", "second"]}
        ground.pull(store)

        # In the middle of a run it is the team's own business.
        with pytest.raises(ConnectionError):
            graph_on(storage, calls, fails=True)("go")
        ground.push(store)
        with pytest.raises(SdkError):
            orchestrate()
        graph_on(storage, calls)("go")
        assert calls[2:] == ["first", "second", "second"]
        head = store.scope("chat-42", "team", "multiAgent").load()
        assert head is not None
        running = {**head.state, "state": {"_pendingInput": "go", "nodes": {}}}
        store.scope("chat-42", "team", "multiAgent").save(running)
        with pytest.raises(Unsupported, match="has not finished its run"):
            graph_on(storage, calls)("go")


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


def test_a_folder_in_typescript_words_is_none_of_the_python_sdk(tmp_path: Path) -> None:
    """Guards the reason for all this: neither SDK reads what the other wrote."""
    shutil.copytree(FIXTURES / "ts_unified_localfile", tmp_path / "store")
    theirs = LocalFileStorage(str(tmp_path / "store"))
    with pytest.raises(Exception, match="created_at"):
        agent_on(theirs, "demo-unified", "support-bot")
