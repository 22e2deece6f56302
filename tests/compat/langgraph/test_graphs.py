"""Real graphs: interrupts, subgraphs, nodes side by side, going back, forks, and both faces."""

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph, add_messages
from langgraph.types import Command

from limpet.compat.langgraph import LimpetSaver
from tests.compat.langgraph.graphs import approving, nested
from tests.waiting import until

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def plain(snapshots: Any) -> list[Any]:
    """Return what two savers must agree on: all but ids and times."""
    return [
        (
            each.values,
            each.next,
            [(task.name, [one.value for one in task.interrupts]) for task in each.tasks],
            {k: v for k, v in (each.metadata or {}).items() if k in ("source", "step")},
        )
        for each in snapshots
    ]


def settled(result: Any) -> Any:
    """Return a result without what it waits for, of which the ids differ."""
    return {name: value for name, value in result.items() if name != "__interrupt__"}


def converse(saver: Any, again: Any) -> list[Any]:
    """Go through all of it; `again` is what another process would have. Return what is seen."""
    graph = approving(saver)
    first = graph.invoke({"messages": [HumanMessage("hi", id="h1")], "notes": []}, CONFIG)
    seen = [first["notes"], first["__interrupt__"][0].value]
    graph = approving(again)
    seen += plain([graph.get_state(CONFIG)])
    seen.append(settled(graph.invoke(Command(resume=True), CONFIG)))
    seen += plain(graph.get_state_history(CONFIG))
    # Back to where it was asked, and another answer: a second line from the same parent.
    waiting = next(s for s in graph.get_state_history(CONFIG) if s.next == ("ask",))
    seen.append(settled(graph.invoke(Command(resume="no"), waiting.config)))
    # Another past: the state is changed where it was, and goes on from there.
    update = {"messages": [RemoveMessage(id="h1"), HumanMessage("new", id="h2")]}
    changed = graph.update_state(waiting.config, update, as_node="ask")
    seen.append(settled(graph.invoke(None, changed)))
    seen += plain(graph.get_state_history(CONFIG))
    seen += plain(graph.get_state_history(CONFIG, limit=2, filter={"source": "update"}))
    return seen


def test_interrupts_parallel_nodes_and_time_travel(saver: LimpetSaver) -> None:
    """Two savers over one store stand for two processes; LangGraph's own says what is right."""
    expected = InMemorySaver()
    assert converse(saver, LimpetSaver(saver._sync)) == converse(expected, expected)


def test_subgraphs_wait_and_go_on(saver: LimpetSaver) -> None:
    answers = []
    for each, again in ((saver, LimpetSaver(saver._sync)), (InMemorySaver(),) * 2):
        nested(each).invoke({"messages": [HumanMessage("hi", id="h1")], "notes": []}, CONFIG)
        state = nested(again).get_state(CONFIG, subgraphs=True)
        inside = state.tasks[0].state
        answers.append(
            [
                plain([state, inside]),
                nested(again).invoke(Command(resume="ok"), CONFIG),
                plain(nested(again).get_state_history(CONFIG)),
            ]
        )
    assert answers[0] == answers[1]
    scopes = [info.key.scope_id for info in saver._sync.scopes("t")]
    assert len(scopes) == 2
    assert "main" in scopes
    assert len(list(saver.list(CONFIG))) == 7
    saver.delete_thread("t")
    assert list(saver._sync.scopes("t")) == []


class Failing(TypedDict):
    log: Annotated[list[str], operator.add]


def test_a_failed_step_keeps_what_its_neighbour_did(saver: LimpetSaver) -> None:
    runs: list[str] = []

    def good(state: Failing) -> Any:
        runs.append("good")
        return {"log": ["good"]}

    def bad(state: Failing) -> Any:
        runs.append("bad")
        if runs.count("bad") == 1:
            until(lambda: (found := saver.get_tuple(CONFIG)) and found.pending_writes)
            raise ValueError("once")
        return {"log": ["bad"]}

    def compiled(saver: Any) -> Any:
        graph = StateGraph(Failing)
        graph.add_node("good", good)
        graph.add_node("bad", bad)
        graph.add_edge(START, "good")
        graph.add_edge(START, "bad")
        return graph.compile(checkpointer=saver)

    with pytest.raises(ValueError, match="once"):
        compiled(saver).invoke({"log": []}, CONFIG)
    found = compiled(LimpetSaver(saver._sync)).invoke(None, CONFIG)
    assert sorted(found["log"]) == ["bad", "good"]
    assert sorted(runs) == ["bad", "bad", "good"]


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def test_what_a_node_changes_in_place_is_saved(memory: LimpetSaver) -> None:
    def node(state: Chat) -> Any:
        state["messages"][0].content = "redacted"
        return {"messages": [AIMessage("ok", id="a")]}

    graph = StateGraph(Chat)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    compiled: Any = graph.compile(checkpointer=memory)
    compiled.invoke({"messages": [HumanMessage("secret", id="h")]}, CONFIG)
    values = compiled.get_state(CONFIG).values
    assert [each.content for each in values["messages"]] == ["redacted", "ok"]
