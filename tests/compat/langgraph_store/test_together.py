"""Graphs that use checkpointer and store on one file; two processes; and a differential test."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

import limpet
from limpet import Store
from limpet.compat.langgraph import LimpetSaver, LimpetStore
from tests.compat.langgraph_store.kit import keys


def graph_of(store: Store) -> Any:
    def remember(state: MessagesState, runtime: Runtime[Any]) -> Any:
        assert runtime.store is not None
        text = state["messages"][-1].text
        runtime.store.put(("memories", "ann"), text, {"text": text})
        return {"messages": [("ai", "noted")]}

    async def recall(state: MessagesState, runtime: Runtime[Any]) -> Any:
        assert runtime.store is not None
        found = await runtime.store.asearch(("memories",))
        return {"messages": [("ai", ", ".join(each.value["text"] for each in found))]}

    def recall_now(state: MessagesState, runtime: Runtime[Any]) -> Any:
        return asyncio.run(recall(state, runtime))

    graph = StateGraph(MessagesState)
    graph.add_node("remember", remember)
    graph.add_node("recall", recall_now)
    graph.add_edge(START, "remember")
    graph.add_edge("remember", "recall")
    return graph.compile(checkpointer=LimpetSaver(store), store=LimpetStore(store))


def test_a_graph_with_checkpointer_and_store(store: Store) -> None:
    graph = graph_of(store)
    for thread, text in (("1", "likes tea"), ("2", "likes jazz")):
        config: Any = {"configurable": {"thread_id": thread}}
        found = graph.invoke({"messages": [("user", text)]}, config)
    assert found["messages"][-1].text == "likes jazz, likes tea"
    assert list(store.sessions()) == ["1", "2", "memories/ann"]


WRITER = """
import sys, limpet
from limpet.compat.langgraph import LimpetStore
with limpet.open(sys.argv[1]) as store:
    items = LimpetStore(store)
    for n in range(40):
        items.put(("shared",), f"{sys.argv[2]}-{n}", {"n": n})
        items.put(("shared",), "both", {"by": sys.argv[2], "n": n})
"""


@pytest.mark.slow
def test_two_processes_share_a_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with limpet.open(url) as store:
        items = LimpetStore(store)
        items.put(("shared",), "both", {"by": "me"})
        first: Any = items.get(("shared",), "both")
        command = [sys.executable, "-c", WRITER, url]
        workers = [subprocess.Popen([*command, name]) for name in ("x", "y")]
        assert [worker.wait(60) for worker in workers] == [0, 0]
        assert len(items.search(("shared",), limit=100)) == 81
        last: Any = items.get(("shared",), "both")
        assert (last.value["n"], last.created_at) == (39, first.created_at)


NAMESPACES = st.sampled_from([("a",), ("a", "b"), ("ab",), ("b", "a"), ("a", "b", "c")])
KEYS = st.sampled_from(["k", "l", "m"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0, "x"]))
VALUES = st.dictionaries(
    st.sampled_from("pqr"),
    st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.just("s"), SCALARS)),
)
ORDERS = st.sampled_from(["$eq", "$ne"])
FILTERS = st.dictionaries(
    st.sampled_from("pqr"),
    st.one_of(
        SCALARS,
        st.lists(SCALARS, max_size=2),
        st.dictionaries(st.just("s"), SCALARS),
        st.dictionaries(ORDERS, SCALARS, min_size=1),
    ),
    max_size=2,
)
PATHS = st.sampled_from([(), ("a",), ("*", "b"), ("a", "*"), ("b",)])
CONDITIONS: Any = st.lists(
    st.one_of(
        PATHS.map(lambda path: MatchCondition("prefix", path)),
        PATHS.map(lambda path: MatchCondition("suffix", path)),
    ),
    max_size=2,
)
DEPTHS = st.one_of(st.none(), st.integers(1, 2))
OPS = st.one_of(
    st.tuples(NAMESPACES, KEYS, st.one_of(st.none(), VALUES, VALUES)).map(lambda op: PutOp(*op)),
    st.tuples(NAMESPACES, KEYS).map(lambda op: GetOp(*op)),
    st.tuples(st.one_of(st.just(()), NAMESPACES), FILTERS).map(lambda op: SearchOp(*op, limit=99)),
    st.tuples(CONDITIONS.map(tuple), DEPTHS).map(lambda op: ListNamespacesOp(*op)),
)


class Oracle(InMemoryStore):
    """LangGraph's store in memory, but a namespace without items is not listed."""

    def batch(self, ops: Any) -> list[Any]:
        for empty in [each for each, held in self._data.items() if not held]:
            del self._data[empty]
        return super().batch(ops)


def plain(result: Any) -> Any:
    """Return a result without its times; searches in no order."""
    if isinstance(result, list) and result and not isinstance(result[0], tuple):
        return sorted((each.namespace, each.key, repr(each.value)) for each in result)
    if result is None or isinstance(result, list):
        return result or None
    return result.namespace, result.key, result.value


def check_alike(store: Store, batches: list[list[Any]]) -> None:
    ours, theirs = LimpetStore(store), Oracle()
    for ops in batches:
        # Apart, since in the other store a get makes an empty namespace.
        gets = [op for op in ops if not isinstance(op, ListNamespacesOp)]
        lists = [op for op in ops if isinstance(op, ListNamespacesOp)]
        for each in (lists, gets):
            assert [*map(plain, ours.batch(each))] == [*map(plain, theirs.batch(each))]
    everything = ours.search((), limit=100)
    assert keys(everything[1:3]) == keys(ours.search((), limit=2, offset=1))
    times = [each.updated_at for each in everything]
    assert times == sorted(times, reverse=True)


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.lists(OPS, max_size=6), max_size=5))
def test_it_does_what_the_store_in_memory_does(batches: list[list[Any]]) -> None:
    with limpet.open("memory:") as store:
        check_alike(store, batches)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(batches=st.lists(st.lists(OPS, max_size=6), max_size=8))
def test_on_sqlite_too(tmp_path_factory: pytest.TempPathFactory, batches: list[list[Any]]) -> None:
    folder = tmp_path_factory.mktemp("items")
    with limpet.open(f"sqlite:///{folder}/a.db", synchronous="off") as store:
        check_alike(store, batches)
