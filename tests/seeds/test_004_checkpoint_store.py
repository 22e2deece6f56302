"""`ICheckpointStore`, sentence by sentence: each test bears the words of one."""

import inspect
from dataclasses import replace
from typing import Any

import pytest

from limpet import NotFound
from limpet.compat.agentos import CheckpointMetadata, CheckpointStore
from tests.compat.agentos.kit import fresh, make_checkpoint, on, save_some
from tests.compat.strands.kit import SLOW, Ground, Grounds, close, store_of
from tests.present import present

ENGINES = ["memory", "sqlite", *SLOW]


@pytest.fixture(params=ENGINES)
def ground(request: pytest.FixtureRequest, grounds: Grounds) -> Ground:
    return grounds[request.param]


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, grounds: Grounds) -> CheckpointStore:
    """Checkpoints on each engine."""
    return on(request.param, grounds)


def state_of(**partitions: Any) -> dict[str, Any]:
    return {"input": {}, "scratch": {}, "artifacts": {}, "diagnostics": {}, **partitions}


# The interface


async def test_persistence_contract_for_checkpoint_snapshots(store: CheckpointStore) -> None:
    """What is saved comes back exactly, with fields that nobody knows."""
    odd = make_checkpoint(
        timestamp=1.5,
        state={"z": 1.0, "a": [None, True, 2**70, "\0\U0001f980", {}, []]},
        memory_snapshot={"reads": [{"traceId": "t", "content": "c", "strength": 0.5}]},
        node_results={"a": {"effectClass": "write", "durationMs": 1}},
        extra={"stash": {"é": 1}},
    )
    await store.save(odd)
    found = await store.get(odd.id)
    assert found == odd
    assert found is not None
    assert repr(found.to_json()) == repr(odd.to_json())  # 1.0 is not 1, and order counts


async def test_implementations_may_back_this_with_maps_rows_blobs_or_any_other_durable_medium(
    ground: Ground,
) -> None:
    """What one store has saved, another that is opened later finds."""
    (saved,) = await save_some(CheckpointStore(store_of(ground.storage)), {})
    other = ground.open()
    again = CheckpointStore(store_of(other))
    assert await again.get(saved.id) == saved
    assert await again.latest(saved.run_id) == saved
    assert [each.id for each in await again.list(saved.graph_id)] == [saved.id]
    if store_of(other) is not store_of(ground.storage):
        close(other)


def test_all_methods_are_async_to_accommodate_io_bound_backends() -> None:
    for name in ("save", "get", "load", "latest", "list", "delete", "fork"):
        assert inspect.iscoroutinefunction(getattr(CheckpointStore, name))


# delete


async def test_permanently_remove_a_checkpoint_from_the_store(store: CheckpointStore) -> None:
    first, second = await save_some(store, {"timestamp": 1}, {"timestamp": 2})
    await store.delete(second.id)
    assert await store.get(second.id) is None
    assert await store.latest(first.run_id) == first
    assert [each.id for each in await store.list(first.graph_id)] == [first.id]


async def test_delete_silently_succeeds_when_it_does_not_exist(store: CheckpointStore) -> None:
    (saved,) = await save_some(store, {})
    for id in (saved.id, saved.id, fresh("c")):
        await store.delete(id)


async def test_delete_checkpoint_id_the_checkpoint_to_remove(store: CheckpointStore) -> None:
    """Its own id, and not that of its run or graph; nothing else goes with it."""
    saved = await save_some(store, {"id": fresh("x")}, {}, {})
    for other in (saved[0].run_id, saved[0].graph_id, f"{saved[0].id}1"):
        await store.delete(other)
    await store.delete(saved[0].id)
    assert [await store.get(each.id) for each in saved] == [None, *saved[1:]]


# fork


async def test_create_a_new_run_branching_from_a_checkpoint(store: CheckpointStore) -> None:
    """Also from the middle of a run; each goes on by itself."""
    early, late = await save_some(store, {"timestamp": 1}, {"timestamp": 2})
    run_id = await store.fork(early.id)
    (step,) = await save_some(store, {"timestamp": 2**50}, run_id=run_id, graph_id=early.graph_id)
    assert await store.latest(run_id) == step
    assert await store.latest(early.run_id) == late
    assert len(await store.list(early.graph_id)) == 4


async def test_fork_deep_clones_assigns_fresh_ids_applies_overrides_persists_and_returns_the_run(
    store: CheckpointStore,
) -> None:
    (source,) = await save_some(store, {"memory_snapshot": {"reads": []}})
    run_id = await store.fork(source.id, {"scratch": {"a": 2}})
    found = present(await store.latest(run_id))
    assert found.run_id == run_id != source.run_id
    assert found.id != source.id
    assert source.timestamp != found.timestamp > 1_700_000_000_000
    assert found.state == {**source.state, "scratch": {**source.state["scratch"], "a": 2}}
    kept: dict[str, Any] = {
        "id": "",
        "run_id": "",
        "timestamp": 0,
        "state": {},
        "forked_from": None,
    }
    assert replace(found, **kept) == replace(source, **kept)
    assert await store.get(found.id) == found
    assert await store.get(source.id) == source


async def test_patch_state_optional_partial_graph_state_overrides_applied_after_cloning(
    store: CheckpointStore,
) -> None:
    """By partition, and in it by key; what is none of the four partitions is not looked at."""
    (source,) = await save_some(store, {})
    patch: dict[str, Any] = {
        "scratch": {"nested": {"x": 9}, "list": [3], "new": None},
        "artifacts": None,
        "input": {},
        "visitedNodes": [],
        "memory": {"traces": []},
        "currentNodeId": "z",
    }
    found = present(await store.latest(await store.fork(source.id, patch)))
    scratch = {"a": 1, "nested": {"x": 9}, "list": [3], "new": None}
    assert found.state == {**source.state, "scratch": scratch}
    assert found.visited_nodes == source.visited_nodes
    plain = present(await store.latest(await store.fork(source.id, None)))
    assert plain.state == source.state


async def test_fork_throws_when_checkpoint_id_does_not_exist(store: CheckpointStore) -> None:
    """Also for the id of a run, which is none of a checkpoint."""
    (saved,) = await save_some(store, {})
    for id in (fresh("c"), saved.run_id):
        with pytest.raises(NotFound, match="not found"):
            await store.fork(id, {"scratch": {}})


# get


async def test_load_a_checkpoint_by_its_unique_identifier(store: CheckpointStore) -> None:
    saved = await save_some(store, {}, {}, {"run_id": fresh("r")})
    for each in saved:
        assert await store.get(each.id) == each


async def test_get_the_exact_id_assigned_at_save_time(store: CheckpointStore) -> None:
    """Any text that is an id, and nothing that only begins with it or differs by case."""
    for id in (fresh("Ü/ ~%+.."), fresh("c"), f"{fresh('long')}{'x' * 400}"):
        (saved,) = await save_some(store, {"id": id})
        assert await store.get(id) == saved
        for other in (f"{id}1", id[:-1], id.upper()):
            assert await store.get(other) is None


# latest


async def test_return_the_most_recently_persisted_checkpoint_or_null_when_the_run_has_none(
    store: CheckpointStore,
) -> None:
    """The greatest timestamp, whatever the order of saving; of equal ones the last saved."""
    assert await store.latest(fresh("r")) is None
    saved = await save_some(store, *({"timestamp": at} for at in (2, 3, 1)))
    assert await store.latest(saved[0].run_id) == saved[1]
    tied = await save_some(store, {}, {}, {}, {})
    assert await store.latest(tied[0].run_id) == tied[-1]


async def test_latest_run_id_the_graph_run_identifier(store: CheckpointStore) -> None:
    (saved,) = await save_some(store, {"run_id": fresh("Run/é")})
    (other,) = await save_some(store, {"run_id": f"{saved.run_id}1", "timestamp": 2**50})
    assert await store.latest(saved.run_id) == saved
    assert await store.latest(other.run_id) == other
    for no_run in (saved.id, saved.graph_id, saved.run_id[:-1]):
        assert await store.latest(no_run) is None


# list


async def test_list_lightweight_metadata_descriptors_for_all_checkpoints_belonging_to_a_graph(
    store: CheckpointStore,
) -> None:
    """Of all its runs, and of no other graph."""
    graph_id = fresh("g")
    saved = await save_some(
        store,
        {"timestamp": 3, "run_id": fresh("r")},
        {"timestamp": 1, "memory_snapshot": None},
        {"timestamp": 2, "graph_id": fresh("g")},
        graph_id=graph_id,
    )
    size = len('{"input":{},"scratch":{},"artifacts":{},"diagnostics":{}}')
    bare = make_checkpoint(graph_id=graph_id, timestamp=2, state=state_of())
    await store.save(bare)
    found = await store.list(graph_id)
    assert [each.id for each in found] == [saved[0].id, bare.id, saved[1].id]
    shown = {
        "id": bare.id,
        "runId": bare.run_id,
        "graphId": graph_id,
        "nodeId": "a",
        "timestamp": 2,
        "stateSize": size,
        "hasMemorySnapshot": False,
    }
    assert list(found[1].to_json().items()) == list(shown.items())
    assert found[2].has_memory_snapshot  # null is something


async def test_list_graph_id_the_compiled_graph_identifier(store: CheckpointStore) -> None:
    (saved,) = await save_some(store, {"graph_id": fresh("graph-Report/é-1794701072000")})
    assert len(await store.list(saved.graph_id)) == 1
    for other in (f"{saved.graph_id}1", saved.graph_id[:-1], saved.run_id, fresh("g")):
        assert await store.list(other) == []


async def test_limit_maximum_number_most_recent_first(store: CheckpointStore) -> None:
    saved = await save_some(store, *({"timestamp": at} for at in (3, 1, 5, 2, 4)))
    graph_id = saved[0].graph_id
    for limit in (1, 3, 5, 6):
        found = await store.list(graph_id, limit=limit)
        assert [each.timestamp for each in found] == [5, 4, 3, 2, 1][:limit]
    for no_limit in (None, 0, -1):
        assert len(await store.list(graph_id, limit=no_limit)) == 5


async def test_run_id_filter_to_a_single_run_of_the_graph(store: CheckpointStore) -> None:
    saved = await save_some(store, {"timestamp": 1}, {"timestamp": 2}, {"run_id": fresh("r")})
    run_id, graph_id = saved[0].run_id, saved[0].graph_id
    found = await store.list(graph_id, run_id=run_id)
    assert [each.id for each in found] == [saved[1].id, saved[0].id]
    assert len(await store.list(graph_id, run_id=run_id, limit=1)) == 1
    assert await store.list(fresh("g"), run_id=run_id) == []
    assert await store.list(graph_id, run_id=fresh("r")) == []


async def test_list_returns_array_of_checkpoint_metadata_sorted_by_timestamp_descending(
    store: CheckpointStore,
) -> None:
    """Of equal ones the last saved comes first, as it is the latest."""
    saved = await save_some(store, *({"timestamp": at} for at in (2, 1, 3, 2, 1.5)))
    found = await store.list(saved[0].graph_id)
    assert {type(each) for each in found} == {CheckpointMetadata}
    assert [each.id for each in found] == [saved[at].id for at in (2, 3, 0, 4, 1)]


# load


async def test_when_node_id_is_supplied_returns_the_most_recent_for_that_node_within_the_run(
    store: CheckpointStore,
) -> None:
    saved = await save_some(
        store,
        {"node_id": "a", "timestamp": 1},
        {"node_id": "a", "timestamp": 2},
        {"node_id": "b", "timestamp": 3},
        {"node_id": "a", "timestamp": 4, "run_id": fresh("r")},
    )
    assert await store.load(saved[0].run_id, "a") == saved[1]
    assert await store.load(saved[0].run_id, "b") == saved[2]


async def test_when_node_id_is_omitted_returns_the_most_recent_equivalent_to_latest(
    store: CheckpointStore,
) -> None:
    saved = await save_some(store, *({"node_id": each} for each in "aba"))
    run_id = saved[0].run_id
    for found in (await store.load(run_id), await store.load(run_id, None)):
        assert found == saved[-1] == await store.latest(run_id)


async def test_load_node_id_optional_node_filter(store: CheckpointStore) -> None:
    (saved,) = await save_some(store, {"node_id": "review/é"})
    assert await store.load(saved.run_id, node_id="review/é") == saved
    assert await store.load(saved.run_id, node_id="review") is None


# save


async def test_if_a_checkpoint_with_the_same_id_already_exists_it_is_overwritten(
    store: CheckpointStore,
) -> None:
    """Also by one of another run and graph: the old ones then have it no more."""
    (before,) = await save_some(store, {})
    steps: list[dict[str, Any]] = [
        {"state": state_of(scratch={"n": 1})},
        {"run_id": fresh("r")},
        {"graph_id": fresh("g"), "node_id": "b"},
        {"run_id": before.run_id, "graph_id": before.graph_id, "timestamp": 1},
    ]
    for changes in steps:
        after = replace(before, **changes)
        await store.save(after)
        assert await store.get(after.id) == after
        assert await store.load(after.run_id, after.node_id) == after
        assert [each.id for each in await store.list(after.graph_id)] == [after.id]
        if after.run_id != before.run_id:
            assert await store.latest(before.run_id) is None
        if after.graph_id != before.graph_id:
            assert await store.list(before.graph_id) == []
        before = after


async def test_save_checkpoint_the_snapshot_to_persist(store: CheckpointStore) -> None:
    """Its wire dict is as good; two fields need not be there."""
    wire = make_checkpoint().to_json()
    del wire["skippedNodes"]
    await store.save(wire)
    found = present(await store.get(wire["id"]))
    assert found.to_json() == wire
