"""What each framework's own data says of the work: running, waiting, failed or completed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import limpet
from limpet import Store
from limpet.compat.agentos import CheckpointStore
from limpet.compat.langgraph import LimpetSaver
from limpet.views import overview
from limpet.views.overview import SessionFilter
from tests.cases import for_each
from tests.compat.langgraph.graphs import approving, nested
from tests.compat.strands_python.agents import agent_on, answer_to, graph_on, storage_on

TESTS = Path(__file__).parents[1]
Graph: Any = StateGraph  # whose types are too strict for functions of these tests


def told(store: Store, session_id: str = "") -> tuple[str, tuple[str, ...]]:
    """Return the status of a session, and why it needs attention; the lists must agree."""
    (found,) = overview.sessions(store, prefix=session_id, attention=True).read()
    for where in (SessionFilter(attention=True), SessionFilter(status=found.about.status)):
        listed = [each.session_id for each in overview.sessions(store, where=where).read()]
        is_wanted = bool(found.attention) or where.status is not None
        assert (found.session_id in listed) == is_wanted
    return found.about.status, found.attention


def test_langgraph() -> None:
    waiting = ("waiting", ("waiting",))
    with limpet.open("memory:") as store:
        saver = LimpetSaver(store)

        def at(thread: str, make: Any, given: Any) -> tuple[str, tuple[str, ...]]:
            config: Any = {"configurable": {"thread_id": thread}}
            make(saver).invoke(given, config)
            return told(store, thread)

        hello = {"messages": [("user", "hello")]}
        for make in (approving, nested):
            name = make.__name__
            assert at(name, make, hello) == waiting
            assert at(name, make, Command(resume=True)) == ("completed", ())
            before = [each.status for each in store.scope(name, kind="thread").history()]
            assert {*before} == {"completed"}  # as stored

        def failing(saver: Any) -> Any:
            def fail(_: Any) -> Any:
                raise ValueError("no")

            graph = Graph(MessagesState).add_node("fail", fail).add_edge(START, "fail")
            return graph.compile(checkpointer=saver)

        def paused(saver: Any) -> Any:
            graph = Graph(MessagesState).add_node("last", lambda _: {}).add_edge(START, "last")
            return graph.compile(checkpointer=saver, interrupt_before=["last"])

        with pytest.raises(ValueError, match="no"):
            at("failing", failing, hello)
        assert told(store, "failing") == ("failed", ("failed",))
        assert at("paused", paused, hello) == ("running", ())  # a breakpoint leaves no trace


def test_langgraph_while_an_answer_is_worked_on() -> None:
    """The answer is stored before the node runs again."""
    with limpet.open("memory:") as store:
        seen = []

        def ask(_: Any) -> Any:
            interrupt("first?")
            seen.append(told(store)[0])
            interrupt("second?")

        graph = Graph(MessagesState).add_node("ask", ask).add_edge(START, "ask")
        compiled = graph.compile(checkpointer=LimpetSaver(store))
        config: Any = {"configurable": {"thread_id": "t"}}
        compiled.invoke({"messages": []}, config)
        compiled.invoke(Command(resume="yes"), config)
        assert seen == ["running"]
        assert told(store) == ("waiting", ("waiting",))
        compiled.invoke(Command(resume="yes"), config)
        assert told(store) == ("completed", ())


def test_strands_in_python() -> None:
    async def run(store: Store) -> None:
        agent = agent_on(storage_on(store))
        await agent.invoke_async("hello")
        assert told(store) == ("completed", ())
        asked = await agent.invoke_async("confirm")
        assert told(store) == ("waiting", ("waiting",))
        await agent.invoke_async(answer_to(asked.interrupts, "yes"))
        assert told(store) == ("completed", ())

    with limpet.open("memory:") as store:
        asyncio.run(run(store))
    with limpet.open("memory:") as store:
        with pytest.raises(ConnectionError):
            asyncio.run(graph_on(storage_on(store), [], fails=True).invoke_async("hello"))
        assert told(store) == ("failed", ("failed",))


def test_agentos() -> None:
    found = {}
    for path in sorted((TESTS / "compat/agentos/fixtures").glob("*_*.json")):
        checkpoint = json.loads(path.read_bytes())
        if isinstance(checkpoint, dict) and "runId" in checkpoint:
            with limpet.open("memory:") as store:
                asyncio.run(CheckpointStore(store).save(checkpoint))
                found[path.stem] = told(store)[0]
    assert found == {
        "conditional_skip_after_a": "running",
        "failed_external_node": "failed",
        "human_interrupt": "waiting",
        "linear_every_node_1_a": "running",
        "linear_every_node_2_b": "running",
        "linear_every_node_3_c": "completed",
    }


# Recorded


def strands(name: str) -> Any:
    (path,) = (TESTS / f"interop/fixtures/ts_filestorage/{name}").rglob("snapshot_latest.json")
    return json.loads(path.read_bytes())["data"]


def claude(role: str, content: Any, **more: Any) -> Any:
    message = {"role": role, "content": content}
    return {"type": role, "sessionId": "s", "uuid": "u", "message": message, **more}


def call(name: str) -> Any:
    return [{"type": "tool_use", "id": "t", "name": name, "input": {}}]


def ui(role: str, **part: Any) -> Any:
    return {"messages": [{"id": "1", "role": role, "parts": [part]}]}


TEXT = [{"type": "text", "text": "hello"}]
ANSWER = {"role": "assistant", "content": TEXT}
ASKED = [{"type": "function_call", "call_id": "c", "name": "pay"}]
SHELL = {"type": "local_shell_call", "id": "1", "call_id": "c"}
DONE = {"type": "local_shell_call_output", "id": "c", "output": "ok"}


@for_each(
    ("mark", "state", "status"),
    [
        ("strands", strands("demo-interrupt"), "waiting"),
        ("strands", strands("demo-message"), "completed"),
        ("claude", {"entries": [claude("user", "hello")]}, "running"),
        ("claude", {"entries": [claude("assistant", TEXT), {"type": "mode"}]}, "completed"),
        ("claude", {"entries": [claude("assistant", call("Bash"))]}, "running"),
        ("claude", {"entries": [claude("assistant", call("AskUserQuestion"))]}, "waiting"),
        ("claude", {"entries": [claude("assistant", TEXT, isApiErrorMessage=True)]}, "failed"),
        ("vercel_ai", ui("user", type="text", text="hello"), "running"),
        ("vercel_ai", ui("assistant", type="text", text="hi"), "completed"),
        ("vercel_ai", ui("assistant", type="tool-pay", state="approval-requested"), "waiting"),
        ("vercel_ai", ui("assistant", type="tool-pay", state="output-available"), "completed"),
        ("langchain", {"messages": [{"type": "human", "content": "hello"}]}, ""),
        ("openai", {"items": [*ASKED, ANSWER]}, "waiting"),
        ("openai", {"items": [*ASKED, {"role": "user", "content": "no"}, ANSWER]}, "completed"),
        ("openai", {"items": [SHELL, DONE]}, "running"),  # the model answers next
        ("openai", {"items": [SHELL, DONE, ANSWER]}, "completed"),
        ("openai", {"items": "damaged"}, "completed"),
        ("langgraph", None, "completed"),
        ("workflow", {"messages": {"a": [1]}, "iteration_count": 1}, "running"),
        # What only looks like it
        ("openai", {"items": [{"call_id": [1], "type": "function_call"}]}, ""),
        ("adk", {"events": [{"author": "a", "long_running_tool_ids": 5}]}, ""),
        ("claude", {"entries": [{"message": 5}]}, ""),
        ("langgraph", {"channel_values": {"join:a:b": {"$set": [[1]]}}}, ""),
        ("langgraph", {"channel_values": [1]}, ""),
        ("workflow", {"n": 1}, ""),
    ],
)
def test_what_others_wrote(mark: str, state: Any, status: str) -> None:
    with limpet.open("memory:") as store:
        store.scope("s", kind="conversation").save(state, metadata={mark: True})
        assert told(store)[0] == status


def test_a_status_that_was_given_counts() -> None:
    with limpet.open("memory:") as store:
        state: Any = {"messages": [{"role": "user", "content": "hello"}]}
        store.scope("s").save(state, status="done", metadata={"openai": {}})
        assert told(store) == ("done", ())


def test_langgraph_of_older_versions() -> None:
    """Their edges were channels of other names; a task that asked has written so all the same."""
    with limpet.open("memory:") as store:
        thread = store.scope("t", kind="thread")
        state: Any = {"v": 1, "channel_values": {"branch:agent:condition:tools": "agent"}}
        id = thread.save(state, status="completed", metadata={"langgraph": {}}).id
        assert told(store)[0] == "running"
        thread.set_note("task", {"writes": [["0", "__interrupt__", []]]}, on=id)
        assert told(store) == ("waiting", ("waiting",))
