"""What goes wrong with AgentOS's own store, and does not with ours."""

import asyncio
import copy
import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import InvalidInput, LimpetError
from limpet.compat.agentos import CheckpointStore
from tests.cases import for_each
from tests.compat.agentos.kit import fresh, make_checkpoint, save_some
from tests.present import present


async def test_a_repeated_save_is_not_the_latest(checkpoints: CheckpointStore) -> None:
    first, second = await save_some(checkpoints, {}, {})
    await checkpoints.save(first)
    assert await checkpoints.latest(first.run_id) == second
    await checkpoints.save(replace(first, state={"scratch": {}}))
    assert await checkpoints.latest(first.run_id) == second
    assert len(await checkpoints.list(first.graph_id)) == 2


async def test_what_is_saved_is_not_shared_with_the_caller(checkpoints: CheckpointStore) -> None:
    """There a later node's results appear in the checkpoints before it."""
    checkpoint = make_checkpoint()
    before = copy.deepcopy(checkpoint)
    saving = asyncio.create_task(checkpoints.save(checkpoint))
    await asyncio.sleep(0)  # it has begun, and the storage is perhaps still asked
    checkpoint.node_results["b"] = {"effectClass": "write"}
    checkpoint.state["scratch"]["late"] = True
    checkpoint.visited_nodes.append("b")
    await saving
    assert await checkpoints.get(checkpoint.id) == before


async def test_a_fork_says_where_it_came_from(checkpoints: CheckpointStore) -> None:
    """And so does a fork of a fork; the store itself knows it, too."""
    (source,) = await save_some(checkpoints, {"extra": {"more": 1}})
    patch = {"scratch": {"a": 2}, "memory": {"not": "looked at"}}
    run_id = await checkpoints.fork(source.id, patch)
    first = present(await checkpoints.latest(run_id))
    assert first.forked_from == {
        "checkpointId": source.id,
        "runId": source.run_id,
        "patchState": {"scratch": {"a": 2}},
    }
    assert first.extra == {"more": 1}
    second = present(await checkpoints.latest(await checkpoints.fork(first.id)))
    assert second.forked_from == {"checkpointId": first.id, "runId": run_id}
    info = present(await checkpoints._store.find(second.id))
    assert info.forked_from == ((run_id, source.graph_id, "graph"), first.id)
    assert info.parent_id is None


@for_each("bad", [math.nan, math.inf, object(), b"x", {1: 2}, "\ud800"])
async def test_what_is_not_json_is_refused(checkpoints: CheckpointStore, bad: object) -> None:
    """There it makes the list of its graph fail for good."""
    (saved,) = await save_some(checkpoints, {})
    for name in ("state", "node_results", "memory_snapshot", "extra"):
        changes: dict[str, Any] = {"id": fresh("c"), name: {"x": {"y": bad}}}
        with pytest.raises(InvalidInput, match="x/y"):
            await checkpoints.save(replace(saved, **changes))
    with pytest.raises(InvalidInput, match="scratch/y"):
        await checkpoints.fork(saved.id, {"scratch": {"y": bad}})
    assert [each.id for each in await checkpoints.list(saved.graph_id)] == [saved.id]


async def test_the_size_is_the_length_in_javascript(checkpoints: CheckpointStore) -> None:
    """As there, though it is called bytes there."""
    state = {"scratch": {"é\U0001f600\n": [1.0, -0.0, 1e21, 2**70]}}
    written = r'{"scratch":{"é??\n":[1,0,1e+21,1.1805916207174113e+21]}}'
    (saved,) = await save_some(checkpoints, {"state": state})
    (listed,) = await checkpoints.list(saved.graph_id)
    assert listed.state_size == len(written)
    await checkpoints.save(replace(saved, state={}))
    (listed,) = await checkpoints.list(saved.graph_id)
    assert listed.state_size == 2
    run_id = await checkpoints.fork(saved.id, {"scratch": {"é": 1}})
    (listed,) = await checkpoints.list(saved.graph_id, run_id=run_id)
    assert listed.state_size == len('{"scratch":{"é":1}}')


BAD: dict[str, dict[str, Any]] = {
    "an empty id": {"id": ""},
    "no id": {"id": None},
    "a long id": {"id": "x" * 513},
    "an empty run": {"run_id": ""},
    "a long run": {"run_id": "x" * 257},
    "a run with NUL": {"run_id": "a\0"},
    "an empty graph": {"graph_id": ""},
    "a graph that is a number": {"graph_id": 1},
    "an empty node": {"node_id": ""},
    "a time as text": {"timestamp": "2026-01-01"},
    "a time that is a bool": {"timestamp": True},
    "a time that is no number": {"timestamp": math.nan},
    "no state": {"state": None},
    "a list as state": {"state": []},
    "text as state": {"state": "{}"},
}


@for_each(("name", "changes"), BAD.items())
async def test_bad_checkpoints(
    checkpoints: CheckpointStore, name: str, changes: dict[str, Any]
) -> None:
    given = replace(make_checkpoint(), **changes)
    for each in (given, given.to_json()):
        with pytest.raises(InvalidInput):
            await checkpoints.save(each)
    if given.id:
        assert await checkpoints.latest(given.id[:99]) is None


@for_each("given", [None, [], "x", {}, {"id": "c"}])
async def test_what_is_not_even_a_record_is_refused(given: Any) -> None:
    with limpet.open("memory:") as store:
        with pytest.raises(InvalidInput, match="Checkpoint"):
            await CheckpointStore(store).save(given)
        assert list(store.sessions()) == []


Bad = Callable[[CheckpointStore, str], Any]
CALLS: dict[str, Bad] = {
    "get nothing": lambda it, known: it.get(""),
    "get no text": lambda it, known: it.get(None),  # type: ignore[arg-type]
    "load nothing": lambda it, known: it.load(""),
    "load an empty node": lambda it, known: it.load("r", ""),
    "list nothing": lambda it, known: it.list(""),
    "list an empty run": lambda it, known: it.list("g", run_id=""),
    "a limit as text": lambda it, known: it.list("g", limit="2"),  # type: ignore[arg-type]
    "a fraction as limit": lambda it, known: it.list("g", limit=1.5),  # type: ignore[arg-type]
    "delete nothing": lambda it, known: it.delete(""),
    "fork nothing": lambda it, known: it.fork(""),
    "a patch as text": lambda it, known: it.fork(known, "ab"),  # type: ignore[arg-type]
    "a list as patch": lambda it, known: it.fork(known, []),  # type: ignore[arg-type]
    "a partition as text": lambda it, known: it.fork(known, {"scratch": "ab"}),
    "a list as partition": lambda it, known: it.fork(known, {"input": []}),
    "to patch what is no object": lambda it, known: it.fork(known, {"artifacts": {"a": 1}}),
}


@for_each(("name", "call"), CALLS.items())
async def test_bad_arguments_are_reported(name: str, call: Bad) -> None:
    """There some are a TypeError, and a text is spread over the partition, letter by letter."""
    with limpet.open("memory:") as store:
        checkpoints = CheckpointStore(store)
        (saved,) = await save_some(checkpoints, {"state": {"artifacts": None}})
        with pytest.raises(InvalidInput):
            await call(checkpoints, saved.id)
        assert len(list(store.sessions())) == 1


async def test_a_partition_that_is_missing_can_be_patched(checkpoints: CheckpointStore) -> None:
    (source,) = await save_some(checkpoints, {"state": {"input": {}}})
    found = present(
        await checkpoints.latest(await checkpoints.fork(source.id, {"scratch": {"a": 1}}))
    )
    assert found.state == {"input": {}, "scratch": {"a": 1}}


async def test_saves_of_one_id_at_a_time_leave_one_checkpoint(checkpoints: CheckpointStore) -> None:
    """Wherever each of them moves it to."""
    (first,) = await save_some(checkpoints, {})
    given = [replace(first, run_id=fresh("r"), graph_id=fresh("g")) for _ in range(6)]
    await asyncio.gather(*map(checkpoints.save, given))
    found = await checkpoints.get(first.id)
    assert found in given
    for each in (first, *given):
        stays = found is not None and each.run_id == found.run_id
        assert await checkpoints.latest(each.run_id) == (found if stays else None)
        assert len(await checkpoints.list(each.graph_id)) == stays


async def test_a_damaged_checkpoint_leaves_the_others_alone(tmp_path: Path) -> None:
    """The list goes on without it, and the run from the one before it."""
    with limpet.open(f"sqlite:///{tmp_path}/a.db") as store:
        checkpoints = CheckpointStore(store)
        saved = await save_some(checkpoints, *({"timestamp": at} for at in (1, 2, 3)))
        with closing(sqlite3.connect(tmp_path / "a.db")) as conn, conn:
            conn.execute("UPDATE snapshots SET status = 'torn' WHERE id = ?", [saved[1].id])
        assert [each.id for each in await checkpoints.list(saved[0].graph_id)] == [
            saved[2].id,
            saved[0].id,
        ]
        assert await checkpoints.latest(saved[0].run_id) == saved[2]
        assert await checkpoints.get(saved[0].id) == saved[0]
        assert [each.severity for each in store.check()] != []
        with pytest.raises(LimpetError):
            await checkpoints.save(saved[1])  # never overwritten silently


async def test_moved_ones_are_ordered_by_timestamp_among_the_others(
    checkpoints: CheckpointStore,
) -> None:
    mine = await save_some(checkpoints, {"timestamp": 1}, {"timestamp": 3})
    (moved,) = await save_some(checkpoints, {"timestamp": 2})
    moved = replace(moved, run_id=mine[0].run_id, graph_id=mine[0].graph_id)
    await checkpoints.save(moved)
    found = await checkpoints.list(moved.graph_id, run_id=moved.run_id)
    assert [each.id for each in found] == [mine[1].id, moved.id, mine[0].id]
    await checkpoints.delete(mine[1].id)
    assert await checkpoints.latest(moved.run_id) == moved
    await checkpoints.delete(moved.id)
    assert await checkpoints.get(moved.id) is None


async def test_a_fork_of_a_moved_one_names_its_run(checkpoints: CheckpointStore) -> None:
    (before,) = await save_some(checkpoints, {})
    moved = replace(before, run_id=fresh("r"), graph_id=fresh("g"))
    await checkpoints.save(moved)
    run_id = await checkpoints.fork(moved.id)
    found = present(await checkpoints.latest(run_id))
    assert found.graph_id == moved.graph_id
    assert found.forked_from == {"checkpointId": moved.id, "runId": moved.run_id}
    info = present(await checkpoints._store.find(found.id))
    assert info.scope == (run_id, moved.graph_id, "graph")
