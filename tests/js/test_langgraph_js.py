"""`LimpetSaver` in LangGraph.js: its validation suite, a crash, and Python on one thread."""

import json
import operator
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

from limpet import InvalidInput, Store
from limpet.compat.langgraph import LimpetSaver
from tests.interop import node
from tests.js.serving import CLIENT, Served, serve
from tests.js.staging import check_examples, check_types, stage
from tests.present import present
from tests.servers.proxy import Proxy
from tests.waiting import until

GUIDE = CLIENT.parent.parent / "docs" / "guides" / "javascript_langgraph.md"
TESTS = 726
RUN_S_MAX = 500


@pytest.fixture(scope="session")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LangGraph.js and the client, side by side."""
    return stage("langgraph", tmp_path_factory.mktemp("langgraph"))


def start(staged: Path, url: str, *given: str) -> "subprocess.Popen[str]":
    command = [node.find_runtime().node, str(staged / "driver.mjs"), url, *given]
    return subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")


def ask(staged: Path, url: str, *given: str) -> Any:
    """Return the last thing that a program says."""
    with start(staged, url, *given) as process:
        said, _ = process.communicate(timeout=RUN_S_MAX)
    return json.loads(said.splitlines()[-1])


# LangGraph's own suite


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["memory", "sqlite", "postgres"])
def test_the_published_validation_suite(
    engine: str, staged: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/a.db"}
    check_suite(urls.get(engine) or request.getfixturevalue("postgres_url"), staged, tmp_path)


def check_suite(store: str, staged: Path, folder: Path) -> None:
    report = folder / "report.json"
    vitest = str(staged / "node_modules" / "vitest" / "vitest.mjs")
    options = ["--globals", "--no-cache", "--reporter=json", f"--outputFile={report}"]
    with serve(store) as served:
        done = subprocess.run(
            [node.find_runtime().node, vitest, "run", "suite.test.mjs", *options],
            cwd=staged,
            env={"LIMPET_TEST_URL": served.url, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    found = json.loads(report.read_text())
    assert found["numTotalTests"] == found["numPassedTests"] == TESTS


@pytest.mark.slow
def test_the_types_fit(staged: Path) -> None:
    check_types(staged)


@pytest.mark.slow
def test_the_examples_of_the_guide(staged: Path, served: Served) -> None:
    """Also those of AgentOS, which need no packages."""
    assert check_examples(GUIDE, staged, served.url, node.find_runtime()) == 2


# Crashes


def test_a_killed_graph_goes_on_where_it_was(staged: Path, shared: Served, store: Store) -> None:
    """What ran before is not run again, nor is the parallel node that had ended."""
    scope = store.scope("killed", "main", "thread")
    with start(staged, shared.url, "run", "killed", "hang") as process:
        assert process.stdout is not None
        said = {json.loads(process.stdout.readline()) for _ in range(3)}
        until(lambda: (head := scope.info()) and [*scope.notes(on=head.id)])
        process.kill()
    assert said == {"first", "left", "right"}
    with start(staged, shared.url, "run", "killed", "resume") as process:
        said_after, _ = process.communicate(timeout=RUN_S_MAX)
    *ran, done = [json.loads(line) for line in said_after.splitlines()]
    assert ran == ["right", "last"]
    assert done == ["first", "left", "right", "last"]


@pytest.mark.slow
def test_savers_that_do_not_know_of_each_other(staged: Path, shared: Served) -> None:
    """The greatest id stays the latest, and no write of a task is lost or replaced."""
    found = ask(staged, shared.url, "race", "raced")
    ids = [f"{number:02}" for number in range(20)]
    assert found == {"latest": ids[-1], "ids": ids[::-1], "writes": [*range(8)], "error": "second"}


@pytest.mark.slow
def test_a_list_decodes_each_message_once(staged: Path, shared: Served) -> None:
    """Else 600 checkpoints of a conversation take half a minute: the square of its length."""
    found = ask(staged, shared.url, "list", "listed")
    assert found == {"decoded": 40, "lengths": list(range(40, 0, -1)), "same": True}


@pytest.mark.slow
def test_lost_requests_and_answers(staged: Path, shared: Served) -> None:
    with Proxy(shared.port) as proxy:
        proxy.drop_replies(2, method="PUT")
        proxy.drop_replies(2, method="POST")
        proxy.drop_requests(1, method="GET")
        found = ask(staged, proxy.url, "run", "lossy")
    assert found == ["first", "left", "right", "last"]
    assert ask(staged, shared.url, "run", "lossy", "resume") == found


# One thread, two languages


class Asking(TypedDict):
    answers: Annotated[list[str], operator.add]


def chat(store: Store) -> Any:
    """The same graph as in driver.mjs."""

    def reply(state: MessagesState) -> Any:
        id = f"py-{len(state['messages'])}"
        call = {"name": "clock", "args": {"zone": "UTC"}, "id": f"call-{id}", "type": "tool_call"}
        usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
        said: list[Any] = [
            AIMessage("", id=id, tool_calls=[call], usage_metadata=usage),
            ToolMessage("noon", id=f"{id}-tool", tool_call_id=call["id"]),
            AIMessage([{"type": "text", "text": "so far"}], id=f"{id}-end"),
        ]
        return {"messages": said}

    graph = StateGraph(MessagesState).add_node("bot", reply)
    return graph.add_edge(START, "bot").add_edge("bot", END).compile(LimpetSaver(store))


def asking(store: Store) -> Any:
    """The same graph as in driver.mjs: it asks, and then works on the answer in parallel."""
    graph = StateGraph(Asking)
    graph.add_node("ask", lambda state: {"answers": [interrupt({"question": "which?"})]})
    graph.add_node("work", lambda state: {"answers": [f"python worked on {state['answer']}"]})
    graph.add_edge(START, "ask")
    graph.add_conditional_edges(
        "ask", lambda state: [Send("work", {"answer": each}) for each in state["answers"]], ["work"]
    )
    return graph.compile(LimpetSaver(store))


def config(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


def shown(message: Any) -> dict[str, Any]:
    return {
        "type": message.type,
        "id": message.id,
        "content": message.content,
        "calls": getattr(message, "tool_calls", []),
        "usage": getattr(message, "usage_metadata", None),
    }


@pytest.mark.parametrize(
    ("thread_id", "session_id"), [("both", "both"), pytest.param("", "!", marks=pytest.mark.slow)]
)
def test_each_language_continues_the_conversation_of_the_other(
    thread_id: str, session_id: str, staged: Path, shared: Served, store: Store
) -> None:
    graph = chat(store)
    first = graph.invoke({"messages": [HumanMessage("one", id="h-1")]}, config(thread_id))
    second = ask(staged, shared.url, "turn", thread_id, "two")
    assert second[:4] == [shown(each) for each in first["messages"]]
    third = graph.invoke({"messages": [HumanMessage("three", id="h-3")]}, config(thread_id))
    assert [shown(each) for each in third["messages"][:8]] == second
    assert [type(each).__name__ for each in third["messages"][4:8]] == [
        "HumanMessage",
        "AIMessage",
        "ToolMessage",
        "AIMessage",
    ]
    lengths = [
        len(each.values.get("messages", ())) for each in graph.get_state_history(config(thread_id))
    ]
    assert lengths == [12, 9, 8, 8, 5, 4, 4, 1, 0]
    assert ask(staged, shared.url, "history", thread_id) == lengths
    saved = present(store.scope(session_id, "main", "thread").load())
    messages = saved.state["channel_values"]["messages"]
    assert {next(iter(each)) for each in messages} == {"$message"}


@pytest.mark.slow
def test_each_language_answers_the_question_of_the_other(
    staged: Path, shared: Served, store: Store
) -> None:
    graph = asking(store)
    graph.invoke({"answers": []}, config("asked-in-python"))
    answered = ask(staged, shared.url, "answer", "asked-in-python", "red")
    assert answered == ["red", "js worked on red"]

    assert ask(staged, shared.url, "ask", "asked-in-js") == [{"question": "which?"}]
    found = graph.invoke(Command(resume="blue"), config("asked-in-js"))
    assert found == {"answers": ["blue", "python worked on blue"]}


@pytest.mark.slow
def test_values_that_both_languages_have(staged: Path, shared: Served, store: Store) -> None:
    ask(staged, shared.url, "values", "from-js", "shared")
    saver = LimpetSaver(store)
    found = present(saver.get_tuple(config("from-js")))
    value = found.checkpoint["channel_values"]["value"]
    tool = value.pop("tool")
    assert isinstance(tool, ToolMessage)
    assert tool.artifact == {"$ref": 1}
    assert value == {
        "$first": {"lc": "no record", "more": {"lc": 2, "text": "nor this"}},
        "bytes": b"\0\xff",
        "map": {"k": [1]},
        "nothing": None,
        "set": {1, "x"},
    }
    ours = {"big": 2**70, "bytes": b"\0\xff", "map": {1: ["x"]}, "pair": (1, [2]), "set": {3}}
    saver.put(config("from-python"), made(value=ours), {}, {})
    shown_there = [2.0**70, [0, 255], [[1, ["x"]]], [1, [2]], [3], True, True, True]
    assert ask(staged, shared.url, "show", "from-python") == shown_there
    foreign = {"messages": [{"role": "user", "content": "hi", "id": "h-0"}]}
    store.scope("foreign", "main", "thread").save(foreign)
    assert [each["type"] for each in ask(staged, shared.url, "turn", "foreign", "x")[:3]] == [
        "human",
        "human",
        "ai",
    ]


def made(**values: Any) -> Any:
    """Return a checkpoint."""
    versions: dict[str, Any] = {"channel_versions": {}, "versions_seen": {}}
    ts = "2026-11-17T09:30:00+00:00"
    return {"v": 4, "id": "1", "ts": ts, "channel_values": values, **versions}


@pytest.mark.slow
def test_what_only_one_language_has_is_refused_in_the_other(
    staged: Path, shared: Served, store: Store
) -> None:
    found = ask(staged, shared.url, "values", "values")
    assert found == {
        "keys": ["$first", "bytes", "map", "nothing", "pattern", "set", "tool"],
        "same": ["no record", [0, 255], [["k", [1]]], True, "/a/g", [1, "x"]],
        "tool": [True, {"$ref": 1}],
    }
    saver = LimpetSaver(store)
    with pytest.raises(InvalidInput, match=r"a type of LangGraph.js. type=`RegExp`"):
        saver.get_tuple(config("values"))

    checkpoint = made(messages=[], price=Decimal("1.50"))
    saver.put(config("python"), checkpoint, {}, {})
    found = ask(staged, shared.url, "turn", "python", "one")
    assert found["error"] == "InvalidInput"
    assert (
        "read this thread in Python. tag=`$decimal` path=`channel_values/price`" in found["message"]
    )
