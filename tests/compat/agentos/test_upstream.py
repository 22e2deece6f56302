"""AgentOS's own checklist for its store, by the names of its tests, and what else it does."""

from dataclasses import replace
from typing import Any

import pytest

from limpet import NotFound
from limpet.compat.agentos import CheckpointStore
from tests.compat.agentos.kit import fresh, make_checkpoint, on, save_some
from tests.compat.strands.kit import Grounds


@pytest.fixture(params=["memory", "sqlite"])
def checkpoints(request: pytest.FixtureRequest, grounds: Grounds) -> CheckpointStore:
    """The tests of the seed say the same on every engine."""
    return on(request.param, grounds)


# checkpoint-store.test.ts


async def test_save_then_load_returns_it(checkpoints: CheckpointStore) -> None:
    (saved,) = await save_some(checkpoints, {})
    found = await checkpoints.load(saved.run_id)
    assert found is not None
    assert (found.id, found.run_id) == (saved.id, saved.run_id)


async def test_get_by_exact_id(checkpoints: CheckpointStore) -> None:
    saved = await save_some(checkpoints, {}, {})
    assert await checkpoints.get(saved[0].id) == saved[0]


async def test_load_of_an_unknown_run_is_null(checkpoints: CheckpointStore) -> None:
    assert await checkpoints.load(fresh("r")) is None


async def test_load_of_a_node_even_if_another_node_is_newer(checkpoints: CheckpointStore) -> None:
    saved = await save_some(
        checkpoints, {"node_id": "a", "timestamp": 1}, {"node_id": "b", "timestamp": 2}
    )
    assert await checkpoints.load(saved[0].run_id, "a") == saved[0]


async def test_latest_is_the_greatest_timestamp_irrespective_of_insertion_order(
    checkpoints: CheckpointStore,
) -> None:
    saved = await save_some(checkpoints, *({"timestamp": at} for at in (300, 100, 200)))
    assert await checkpoints.latest(saved[0].run_id) == saved[0]


async def test_list_returns_only_that_graphs_across_runs(checkpoints: CheckpointStore) -> None:
    graph_id = fresh("g")
    mine = [make_checkpoint(graph_id=graph_id) for _ in range(2)]
    for each in (*mine, make_checkpoint()):
        await checkpoints.save(each)
    assert {each.id for each in await checkpoints.list(graph_id)} == {each.id for each in mine}


async def test_list_limit_three_of_five_is_the_newest_three_newest_first(
    checkpoints: CheckpointStore,
) -> None:
    saved = await save_some(checkpoints, *({"timestamp": at} for at in range(5)))
    found = await checkpoints.list(saved[0].graph_id, limit=3)
    assert [each.timestamp for each in found] == [4, 3, 2]


async def test_list_run_id_filter(checkpoints: CheckpointStore) -> None:
    saved = await save_some(checkpoints, {}, {"run_id": fresh("r")})
    found = await checkpoints.list(saved[0].graph_id, run_id=saved[0].run_id)
    assert [each.id for each in found] == [saved[0].id]


async def test_delete_then_load_is_null(checkpoints: CheckpointStore) -> None:
    (saved,) = await save_some(checkpoints, {})
    await checkpoints.delete(saved.id)
    assert await checkpoints.load(saved.run_id) is None


async def test_delete_of_a_missing_one_resolves(checkpoints: CheckpointStore) -> None:
    await checkpoints.delete(fresh("c"))


async def test_fork_gives_a_new_run_queryable_by_latest_in_the_same_graph(
    checkpoints: CheckpointStore,
) -> None:
    (source,) = await save_some(checkpoints, {})
    run_id = await checkpoints.fork(source.id)
    found = await checkpoints.latest(run_id)
    assert found is not None
    assert run_id != source.run_id
    assert found.graph_id == source.graph_id


async def test_fork_patch_changes_keys_keeps_siblings_and_partitions_and_the_source(
    checkpoints: CheckpointStore,
) -> None:
    (source,) = await save_some(checkpoints, {})
    run_id = await checkpoints.fork(source.id, {"scratch": {"a": 9}, "input": {"q": "bye"}})
    found = await checkpoints.latest(run_id)
    assert found is not None
    assert found.state["scratch"] == {"a": 9, "nested": {"x": 1, "y": 2}, "list": [1, 2]}
    assert found.state["input"] == {"q": "bye"}
    assert found.state["artifacts"] == source.state["artifacts"]
    assert await checkpoints.get(source.id) == source


async def test_fork_of_a_missing_one_throws_not_found(checkpoints: CheckpointStore) -> None:
    with pytest.raises(NotFound, match="not found"):
        await checkpoints.fork(fresh("c"))


# What else the real one does


async def test_an_upsert_that_changes_run_or_graph_removes_it_from_the_old_ones(
    checkpoints: CheckpointStore,
) -> None:
    (before,) = await save_some(checkpoints, {})
    await checkpoints.save(replace(before, run_id=fresh("r"), graph_id=fresh("g")))
    assert await checkpoints.latest(before.run_id) is None
    assert await checkpoints.list(before.graph_id) == []


@pytest.mark.parametrize("limit", [None, 0, -1])
async def test_no_limit(checkpoints: CheckpointStore, limit: int | None) -> None:
    saved = await save_some(checkpoints, {}, {}, {})
    assert len(await checkpoints.list(saved[0].graph_id, limit=limit)) == 3


async def test_what_is_missing_is_empty_or_none(checkpoints: CheckpointStore) -> None:
    assert await checkpoints.list(fresh("g")) == []
    assert await checkpoints.get(fresh("c")) is None
    assert await checkpoints.load(fresh("r"), "a") is None
    assert await checkpoints.latest(fresh("r")) is None


async def test_a_fork_merges_one_level_deep_in_four_partitions(
    checkpoints: CheckpointStore,
) -> None:
    (source,) = await save_some(checkpoints, {})
    patch: dict[str, Any] = {
        "scratch": {"nested": {"x": 9}, "list": []},
        "diagnostics": {"checkpointsSaved": 7},
        "memory": {"traces": [1]},
        "iteration": 3,
        "nodeResults": {},
    }
    found = await checkpoints.latest(await checkpoints.fork(source.id, patch))
    assert found is not None
    assert found.state["scratch"] == {"a": 1, "nested": {"x": 9}, "list": []}
    assert found.state["diagnostics"] == {**source.state["diagnostics"], "checkpointsSaved": 7}
    assert found.state.keys() == source.state.keys()
    assert found.node_results == source.node_results


async def test_a_fork_keeps_what_is_no_state_and_sets_the_timestamp_to_now(
    checkpoints: CheckpointStore,
) -> None:
    memory = {"reads": [], "pendingWrites": [{"type": "x", "content": "y", "scope": "z"}]}
    (source,) = await save_some(
        checkpoints, {"memory_snapshot": memory, "skipped_nodes": ["c"], "extra": {"more": 1}}
    )
    found = await checkpoints.latest(await checkpoints.fork(source.id))
    assert found is not None
    for name in ("node_id", "visited_nodes", "skipped_nodes", "pending_edges", "node_results"):
        assert getattr(found, name) == getattr(source, name)
    assert found.memory_snapshot == memory
    assert found.extra == {"more": 1}
    (listed,) = await checkpoints.list(source.graph_id, run_id=found.run_id)
    assert listed.timestamp == found.timestamp
    assert listed.has_memory_snapshot


async def test_a_checkpoint_without_skipped_nodes_or_memory_snapshot_loads(
    checkpoints: CheckpointStore,
) -> None:
    wire = make_checkpoint().to_json()
    del wire["skippedNodes"]
    await checkpoints.save(wire)
    found = await checkpoints.latest(wire["runId"])
    assert found is not None
    assert not found.skipped_nodes
    assert not found.memory_snapshot
    assert found.to_json() == wire
