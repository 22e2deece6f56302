"""Real agents of the Strands SDK for Python on every engine."""

from typing import Any

import pytest
from strands import Agent
from strands.session import SnapshotSessionManager

from limpet import ScopeKey, Store
from tests.compat.strands_python.agents import (
    Echo,
    agent_on,
    answer_to,
    graph_on,
    manager_on,
    said,
    storage_on,
    wait,
)
from tests.present import present

ALWAYS: dict[str, Any] = {"snapshot_trigger": lambda **_: True}
IMAGE: Any = {"image": {"format": "png", "source": {"bytes": b"\x89PNG\x00\xff"}}}


def manager_of(agent: Any) -> SnapshotSessionManager:
    manager = agent._session_manager
    assert isinstance(manager, SnapshotSessionManager)
    return manager


def test_an_agent_goes_on_where_another_stopped(store: Store) -> None:
    first = agent_on(storage_on(store))
    first.state.set("userId", "u-42")
    first("Grüße 👋")
    again = agent_on(storage_on(store.aio))
    assert said(again.messages) == ["Grüße 👋", "echo: Grüße 👋"]
    assert again.messages == first.messages
    assert again.state.get() == {"userId": "u-42"}
    again("and you?")
    assert said(agent_on(storage_on(store)).messages)[2:] == ["and you?", "echo: and you?"]

    head = present(store.scope("chat-42", "planner").load())
    assert said(head.state["messages"])[-1] == "echo: and you?"


def test_an_agent_goes_back(store: Store) -> None:
    agent = agent_on(storage_on(store), **ALWAYS)
    for prompt in ("one", "two", "three"):
        agent(prompt)
    manager = manager_of(agent)
    ids = wait(manager.list_snapshot_ids(agent))
    assert len(ids) == 3
    assert wait(manager.list_snapshot_ids(agent, limit=1, start_after=ids[0])) == [ids[1]]
    assert [info.id for info in store.scope("chat-42", "planner").history()] == ids[::-1]
    assert wait(manager.restore_snapshot(agent, snapshot_id=ids[0]))
    assert said(agent.messages) == ["one", "echo: one"]
    assert not wait(manager.restore_snapshot(agent, snapshot_id=ids[0][:-4] + "ffff"))
    forced = wait(manager.save_snapshot(agent, is_latest=False))
    assert wait(manager.list_snapshot_ids(agent))[-1] == forced
    assert said(agent_on(storage_on(store)).messages)[-1] == "echo: three"

    branch = store.scope("chat-42", "planner").fork(ids[1], scope_id="bold")
    assert said(agent_on(storage_on(store), agent_id="bold").messages)[2:] == ["two", "echo: two"]
    assert branch.info() is not None


def test_a_session_is_deleted(store: Store) -> None:
    storage = storage_on(store)
    agent = agent_on(storage, **ALWAYS)
    for prompt in ("one", "two"):
        agent(prompt)
    agent_on(storage, "other")("hello")
    wait(storage.write("context/chat-42/planner/tu-1_0", b"stashed"))
    wait(manager_on(storage, "chat-42").delete_session())
    assert list(store.sessions()) == ["other"]
    assert agent_on(storage).messages == []


@pytest.mark.filterwarnings("ignore:context_window_limit is not set")
def test_what_an_agent_sets_aside_belongs_to_its_session(store: Store) -> None:
    storage = storage_on(store)
    agent = Agent(
        agent_id="planner",
        model=Echo(),
        callback_handler=None,
        storage=storage,
        session_manager=SnapshotSessionManager("chat-42"),
        context_manager="auto",
    )
    agent("hello")
    kept = wait(storage.list("context/chat-42/"))
    assert len(kept) == 2
    head = present(store.scope("chat-42", "planner").load())
    assert head.state["stash"] == {"location": "external", "storage_type": "ByteStorage"}
    store.delete_session("chat-42")
    assert wait(storage.list("")) == []


def test_an_agent_waits_for_an_answer(store: Store) -> None:
    asked = agent_on(storage_on(store))("confirm")
    assert asked.stop_reason == "interrupt"
    again = agent_on(storage_on(store))
    result = again(answer_to(asked.interrupts, "yes"))
    assert result.stop_reason == "end_turn"
    assert said(again.messages)[-1] == "echo: approved: yes"


def test_a_graph_goes_on_where_it_failed(store: Store) -> None:
    """The first agent does not run again; and once the run has ended, the next begins anew."""
    calls: list[str] = []
    storage = storage_on(store)
    with pytest.raises(ConnectionError):
        graph_on(storage, calls, fails=True)("go")
    graph_on(storage, calls)("go")
    assert calls == ["first", "second", "second"]
    graph_on(storage, calls)("again")
    assert calls[3:] == ["first", "second"]
    [info] = store.scopes("chat-42")
    assert info.key == ScopeKey("chat-42", "team", "multiAgent")
