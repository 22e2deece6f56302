"""A thread is a chat in the store itself, and what others do to it is seen by the graph."""

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.types import Command

from limpet import Store
from limpet.compat.langgraph import LimpetSaver
from limpet.views.chat import nodes_of, read_chat, turn_text, without_internals
from tests.compat.langgraph.graphs import approving
from tests.compat.langgraph.kit import checkpoint, config, got, id_of, ids, put

CALL = {"name": "search", "args": {"q": "rain"}, "id": "c1", "type": "tool_call"}


def chat(saver: LimpetSaver) -> list[Any]:
    messages = [
        HumanMessage("will it rain?", id="1"),
        AIMessage("let me look", id="2", tool_calls=[CALL]),
        ToolMessage("no", id="3", tool_call_id="c1", name="search", artifact=(1,)),
        AIMessage("It stays dry.", id="4"),
    ]
    put(saver, 1, messages=messages[:2])
    put(saver, 2, 1, messages=messages)
    return messages


def test_a_thread_is_a_chat(store: Store) -> None:
    chat(LimpetSaver(store))
    snapshot = store.scope("t", kind="thread").load()
    assert snapshot is not None
    found = read_chat(snapshot.state)
    assert found is not None
    assert found.path == "/channel_values/messages"
    assert [turn.role for turn in found.turns][:2] == ["user", "assistant"]
    assert turn_text(found.turns[0]).startswith("will it rain?")
    assert turn_text(found.turns[-1]).startswith("It stays dry.")
    labels = [info.labels for info in store.scope("t", kind="thread").history()]
    assert labels == [{}, {}]


def test_what_is_restored_or_forked_in_the_store_is_the_latest(store: Store) -> None:
    saver = LimpetSaver(store)
    messages = chat(saver)
    scope = store.scope("t", kind="thread")
    restored = scope.restore(id_of(1))
    found = got(saver)
    assert found.checkpoint["id"] == restored.id
    assert found.parent_config == config(number=1)
    assert found.checkpoint["channel_values"]["messages"] == messages[:2]
    put(saver, 3, 1, messages=messages[:1])
    assert ids([got(saver)]) == [3]
    scope.fork(id_of(2), to="u")
    other = saver.get_tuple(config("u"))
    assert other is not None
    assert other.checkpoint["channel_values"]["messages"] == messages
    assert list(saver.threads()) == ["t", "u"]


def test_what_others_saved_is_read_as_it_is(store: Store) -> None:
    saver = LimpetSaver(store)
    store.scope("t", kind="thread").save({"$odd": {"$tuple": 1}, "messages": ["hi"]}, id=id_of(1))
    found = got(saver)
    assert found.checkpoint["channel_values"] == {"$odd": {"$tuple": 1}, "messages": ["hi"]}
    assert found.checkpoint["channel_versions"].keys() == {"messages", "$odd"}
    assert (found.metadata, found.parent_config, found.pending_writes) == ({}, None, [])
    store.scope("t", "other", kind="thread").save([1], id="x")
    store.scope("t", ":inner", kind="thread").save(5, id=id_of(2))
    inner = saver.get_tuple(config("t", "inner"))
    assert inner is not None
    assert inner.checkpoint["channel_values"] == {"__root__": 5}
    assert ids(saver.list({"configurable": {"thread_id": "t"}})) == [2, 1]
    saver.put(config(number=1), checkpoint(3, a=1), {}, {})
    saver.prune(["t"])
    assert ids(saver.list(config())) == [3]
    assert store.scope("t", "other", kind="thread").load() is not None


def test_the_nodes_that_a_checkpoint_comes_from(store: Store) -> None:
    graph = approving(LimpetSaver(store))
    graph.invoke({"messages": [], "notes": []}, config())
    graph.invoke(Command(resume=True), config())
    scope = store.scope("t", kind="thread")
    states = [snapshot.state for snapshot in scope.load_many(scope.history())]
    nodes = [set(nodes_of(state)) for state in reversed(states)]
    assert nodes == [set(), set(), {"left", "right"}, {"ask"}, set(), {"last"}]
    shown = without_internals(states[0])
    assert shown.keys() == {"channel_values"}
    assert shown["channel_values"].keys() == {"messages", "approved", "notes"}
    assert nodes_of({"channel_values": {}, "versions_seen": 1}) == []
