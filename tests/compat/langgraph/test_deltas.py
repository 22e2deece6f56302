"""Channels that keep deltas: nothing that is removed or copied changes what they hold."""

import operator
from datetime import timedelta
from typing import Annotated, Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import START, StateGraph
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from limpet.compat.langgraph import LimpetSaver
from limpet.compat.langgraph.history import _ancestors
from limpet.compat.langgraph.records import scope_in
from tests.cases import for_each
from tests.compat.langgraph.kit import checkpoint, config, id_of

pytestmark = pytest.mark.filterwarnings("ignore")  # deltas are a beta of LangGraph's


def extend(state: list[Any], writes: Any) -> list[Any]:
    return [*state, *(each for write in writes for each in write)]


class State(TypedDict):
    log: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=7)]
    rare: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=1000)]
    count: Annotated[int, operator.add]


def node(state: State) -> Any:
    number = state["count"]
    update: dict[str, Any] = {"log": [HumanMessage(f"n{number}", id=f"n{number}")], "count": 1}
    if number % 3 == 0:
        update["rare"] = [(number,)]
    if number == 11:
        update["log"] = Overwrite([HumanMessage("anew", id="anew")])
    return update


def compiled(saver: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_node("other", lambda state: {"log": ["other"]})
    graph.add_edge(START, "node")
    graph.add_edge("node", "other")
    return graph.compile(checkpointer=saver)


def on(thread: str, run: int = 0) -> Any:
    return {"configurable": {"thread_id": thread}, "metadata": {"run_id": f"run-{run}"}}


def talk(saver: LimpetSaver, turns: int = 6) -> Any:
    graph = compiled(saver)
    for turn in range(turns):
        graph.invoke({"log": [("in", turn)], "rare": [], "count": 0}, on("t", turn))
    return graph


def states(graph: Any, thread: str = "t") -> dict[str, Any]:
    """Return what each checkpoint holds, by its id."""
    history = graph.get_state_history(on(thread))
    return {s.config["configurable"]["checkpoint_id"]: s.values for s in history}


def test_what_is_read_is_what_was_there(saver: LimpetSaver) -> None:
    graph = talk(saver)
    found = states(graph)
    assert states(compiled(LimpetSaver(saver._sync))) == found
    latest = graph.get_state(on("t")).values
    assert latest["log"][:2] == [("in", 0), HumanMessage("n0", id="n0")]
    assert len(latest["rare"]) == 2


@for_each("options", [{}, {"keep_last": 5}, {"older_than": timedelta(0)}])
def test_prune_changes_nothing_that_stays(saver: LimpetSaver, options: Any) -> None:
    saver.delete_thread("t")
    graph = talk(saver)
    before = states(graph)
    saver.prune(["t"], **options)
    after = states(graph)
    assert len(after) == options.get("keep_last", 1)
    assert after == {id: before[id] for id in sorted(before)[-len(after) :]}
    # It goes on as if nothing had happened, and can be pruned again.
    graph.invoke({"log": [("in", "more")], "rare": ["more"], "count": 0}, on("t", 9))
    latest = graph.get_state(on("t")).values
    assert latest["log"][: len(before[max(before)]["log"])] == before[max(before)]["log"]
    assert "more" in latest["rare"]
    saver.prune(["t"])
    assert states(compiled(LimpetSaver(saver._sync))).popitem()[1] == latest


def test_deleting_runs_changes_nothing_that_stays(saver: LimpetSaver) -> None:
    graph = talk(saver)
    before = states(graph)
    saver.delete_for_runs(["run-1", "run-3", "run-4"])
    after = states(graph)
    assert 0 < len(after) < len(before)
    assert after == {id: before[id] for id in after}
    saver.delete_for_runs(["run-0"])
    saver.prune(["t"])
    assert states(graph).popitem() == max(before.items())


def test_a_copy_is_the_same_and_independent(saver: LimpetSaver) -> None:
    graph = talk(saver)
    before = states(graph)
    saver.copy_thread("t", "copy")
    saver.copy_thread("t", "copy")
    assert states(graph, "copy") == before
    saver.delete_thread("t")
    assert states(graph, "copy") == before
    saver.prune(["copy"], keep_last=2)
    saver.copy_thread("copy", "third")
    saver.delete_thread("copy")
    assert graph.get_state(on("third")).values == before[max(before)]


def test_forks_and_changes_keep_to_their_line(saver: LimpetSaver) -> None:
    graph = talk(saver)
    history = list(graph.get_state_history(on("t")))
    past = history[len(history) // 2]
    fork = graph.update_state(past.config, {"log": ["changed"]}, as_node="other")
    graph.invoke({"log": ["after"], "rare": [], "count": 0}, fork)
    before = states(graph)
    latest = before[max(before)]["log"]
    assert latest[: len(past.values["log"])] == past.values["log"]
    assert "changed" in latest
    saver.prune(["t"], keep_last=3)
    after = states(graph)
    assert after == {id: before[id] for id in sorted(before)[-3:]}


# The eight promises of `get_delta_channel_history`.


def chain(saver: LimpetSaver) -> None:
    """Seven checkpoints: the second has a snapshot of `a`, the third a plain value of `b`."""
    values: dict[int, Any] = {2: {"a": _DeltaSnapshot(["seed"])}, 3: {"b": ["plain"]}}
    for number in range(1, 8):
        made = checkpoint(number, **values.get(number, {}))
        made["channel_versions"] = {"a": str(number), "b": str(number)}
        parent = config(number=number - 1) if number > 1 else config()
        saver.put(parent, made, {"step": number}, {})
        for task, path in (("x", "2"), ("y", "1")):
            writes = [("a", f"a{number}{task}"), ("b", f"b{number}{task}")]
            saver.put_writes(config(number=number), writes, task, path)


def test_delta_history(saver: LimpetSaver) -> None:
    chain(saver)
    found = saver.get_delta_channel_history(config=config(), channels=["a", "b", "none"])
    order = [("y", n) for n in range(2, 7)] + [("x", n) for n in range(2, 7)]
    order.sort(key=lambda each: (each[1], each[0] == "x"))
    assert found["a"] == {
        "seed": _DeltaSnapshot(["seed"]),
        "writes": [(task, "a", f"a{n}{task}") for task, n in order],
    }
    assert found["b"]["seed"] == ["plain"]
    assert found["b"]["writes"] == [(task, "b", f"b{n}{task}") for task, n in order if n > 2]
    assert found["none"] == {"writes": []}
    to_the_root = saver.get_delta_channel_history(config=config(number=2), channels=["b", "a"])
    assert to_the_root["a"] == {"writes": [("y", "a", "a1y"), ("x", "a", "a1x")]}
    assert saver.get_delta_channel_history(config=config(number=1), channels=["a"]) == {
        "a": {"writes": []}
    }
    assert saver.get_delta_channel_history(config=config(), channels=[]) == {}
    assert saver.get_delta_channel_history(config=config("nobody"), channels=["a"]) == {
        "a": {"writes": []}
    }
    expected = BaseCheckpointSaver.get_delta_channel_history(
        saver, config=config(), channels=["a", "b", "none"]
    )
    assert found == expected


def test_what_is_behind_the_seed_is_not_parsed(memory: LimpetSaver) -> None:
    chain(memory)
    malformed = {"channel_values": {}, "delta_history": 1}
    scope = memory._sync.scope(*scope_in(config()))
    scope.save(malformed, id=id_of(1), overwrite=True, metadata={"langgraph": {}})
    found = memory.get_delta_channel_history(config=config(), channels=["a"])
    assert found["a"]["seed"] == _DeltaSnapshot(["seed"])


def test_delta_history_ends_where_parents_go_round(memory: LimpetSaver) -> None:
    for number, parent in ((1, 2), (2, 1)):
        memory.put(config(number=parent), checkpoint(number), {}, {})
    found = memory.get_delta_channel_history(config=config(), channels=["a"])
    assert found == {"a": {"writes": []}}
    assert id_of(1) < id_of(2)


def test_a_checkpoint_that_is_deleted_meanwhile_has_its_ancestors(memory: LimpetSaver) -> None:
    for number in (1, 2, 3):
        memory.put(config(number=number - 1 or None), checkpoint(number), {}, {})
    scope = memory._sync.scope(*scope_in(config()))
    target = scope.info(id_of(3))
    assert target is not None
    scope.delete_snapshot(target.id)
    assert [each.id for each in _ancestors(scope, target)] == [id_of(2), id_of(1)]
    scope.delete_snapshot(id_of(2))
    assert [*_ancestors(scope, target)] == []


class Log(TypedDict):
    log: Annotated[list[Any], DeltaChannel(extend, snapshot_frequency=7)]


def logging_graph(saver: LimpetSaver, turns: int = 10) -> Any:
    builder = StateGraph(Log)
    builder.add_node("node", lambda state: {"log": [HumanMessage("n", id=f"{len(state['log'])}")]})
    builder.add_edge(START, "node")
    graph = builder.compile(checkpointer=saver)
    for turn in range(turns):
        graph.invoke({"log": [("in", turn)]}, on("t", turn))
    return graph


@for_each("keep_last", [0, 1, 5])
def test_a_prune_of_the_scope_keeps_what_is_needed(saver: LimpetSaver, keep_last: int) -> None:
    """The checkpoints that a kept one is computed from stay, with their writes; older ones go."""
    saver.delete_thread("t")
    graph = logging_graph(saver)
    before, scope = states(graph), saver._sync.scope("t", kind="thread")
    planned = scope.prune(keep_last=keep_last, dry_run=True)
    assert scope.prune(keep_last=keep_last) == planned
    after = states(graph)
    assert max(keep_last, 1) < len(after) == len(before) - planned.count < len(before)
    for id in sorted(before)[-max(keep_last, 1) :]:
        assert after[id] == before[id]
    graph.invoke({"log": [("in", "more")]}, on("t"))
    assert graph.get_state(on("t")).values["log"][:-2] == before[max(before)]["log"]


def test_a_prune_of_the_scope_sees_a_new_head(
    saver: LimpetSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody goes on from an old checkpoint, right before that would be deleted."""
    graph = logging_graph(saver)
    past = list(graph.get_state_history(on("t")))[-5]
    backend, scope = saver._sync.driver.opened.backend, saver._sync.scope("t", kind="thread")
    delete = backend.delete_snapshots
    tried: list[Any] = []

    def interfering(*args: Any, **options: Any) -> Any:
        tried.append(args)
        if len(tried) == 1:
            other = logging_graph(LimpetSaver(saver._sync), turns=0)
            other.update_state(past.config, {"log": ["changed"]})
        return delete(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "delete_snapshots", interfering)
        assert scope.prune(keep_last=0).count
    assert len(tried) == 2
    assert graph.get_state(on("t")).values["log"] == [*past.values["log"], "changed"]
