"""`RunStore` in a store: its address, its neighbours, and whose store it is."""

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import Corrupt, InvalidInput, Store, runs
from limpet.compat.runs import AsyncRunStore, Checkpoint, RunStore
from tests.cases import for_each
from tests.present import present
from tests.runs.hands import desert

TIME = "2026-03-01T20:54:15.123456789-05:00"
WHOLE = Checkpoint("r", "task", 3, [{"a": 1.0}], "prompt", 12, 34, TIME, {"model": "x"})


@pytest.fixture
def store() -> Store:
    return limpet.open("memory:")


def test_a_checkpoint_is_stored_where_the_design_says(store: Store) -> None:
    RunStore(store).save(WHOLE)
    found = present(store.scope("r", "main", "run").load())
    assert found.state == {"messages": [{"a": 1.0}], "system_prompt": "prompt", "model": "x"}
    assert found.labels == {"task_name": "task"}
    assert found.metadata == {
        "iteration": 3,
        "input_tokens": 12,
        "output_tokens": 34,
        "created_at": TIME,
    }
    assert (found.status, found.kept) == ("running", False)
    RunStore(store).save(Checkpoint("adhoc"))
    info = present(store.scope("adhoc", "main", "run").info())
    assert info.labels == {}


def test_what_is_not_json_is_refused_with_its_path(store: Store) -> None:
    with pytest.raises(InvalidInput, match="path=`/messages/0/x`"):
        RunStore(store).save(Checkpoint("r", messages=[{"x": float("inf")}]))
    with pytest.raises(InvalidInput):
        RunStore(store).save(Checkpoint("r", task_name="x" * 257))
    for wrong in ("", "a\0b", "x" * 513):
        with pytest.raises(InvalidInput, match="run_id"):
            RunStore(store).save(Checkpoint(wrong))
    no_checkpoints: list[Any] = [None, [], "r", 1]
    for each in no_checkpoints:
        with pytest.raises(InvalidInput, match="object"):
            RunStore(store).save(each)
    assert [*store.sessions()] == []


# Neighbours at the same address.


def test_a_supervised_run_loads_with_defaults(store: Store) -> None:
    state = {"messages": [1], "system_prompt": "p", "pages": 2}
    desert(store, "r", state, task="report")
    head = present(store.scope("r", "main", "run").info())
    expected = Checkpoint("r", "report", 0, [1], "p", created_at=head.created_at)
    found = RunStore(store).load("r")
    assert found == Checkpoint.from_json({**expected.to_json(), "pages": 2})
    (listed,) = RunStore(store).list()
    assert listed == Checkpoint("r", "report", created_at=head.created_at)


@for_each(
    ("state", "extra"),
    [
        (None, {}),
        (5, {"state": 5}),
        ([1], {"state": [1]}),
        ({"messages": "m", "iteration": 3}, {"state": {"messages": "m", "iteration": 3}}),
        ({"Run_Id": 1, "state": 2, "x": 3}, {"state": {"Run_Id": 1, "state": 2}, "x": 3}),
        ({"state": 2}, {"state": 2}),
    ],
)
def test_odd_fields_are_kept_elsewhere(store: Store, state: Any, extra: dict[str, Any]) -> None:
    store.scope("r", "main", "run").save(state)
    found = RunStore(store).load("r")
    assert (found.messages, found.system_prompt, found.extra) == (None, "", extra)
    RunStore(store).save(found)
    assert RunStore(store).load("r") == found


def test_metadata_with_another_meaning_counts_as_missing(store: Store) -> None:
    strange = {"iteration": "3", "input_tokens": 2**64, "output_tokens": True, "created_at": "now"}
    saved = store.scope("r", "main", "run").save({}, metadata=strange)
    assert RunStore(store).load("r") == Checkpoint("r", created_at=saved.created_at)
    assert RunStore(store).list() == [Checkpoint("r", created_at=saved.created_at)]


def test_a_run_with_a_checkpoint_is_resumed_by_supervised_runs(store: Store) -> None:
    RunStore(store).save(WHOLE)
    assert [(each.status, each.task) for each in runs.list(store)] == [("expired", "task")]
    with runs.start(store, "r", on_success="delete") as run:
        assert run.resumed
        assert run.state == {"messages": [{"a": 1.0}], "system_prompt": "prompt", "model": "x"}
    assert not RunStore(store).has_checkpoint("r")


def test_other_scopes_of_the_session_are_left_alone(store: Store) -> None:
    store.scope("r", "main", "agent").save(1)
    store.scope("r", "other", "run").save(2)
    store.scope("lonely", "main", "run").set_note("n", 1)
    RunStore(store).save(WHOLE)
    assert [each.run_id for each in RunStore(store).list()] == ["r"]
    assert not RunStore(store).has_checkpoint("lonely")
    RunStore(store).delete("r")
    assert len([*store.scopes("r")]) == 2


def test_one_damaged_run_breaks_nothing(tmp_path: Path) -> None:
    with limpet.open(f"file://{tmp_path}", sync=False) as store:
        found = RunStore(store)
        for run_id in ("a", "b", "c"):
            found.save(Checkpoint(run_id))
        (head,) = (tmp_path / "sessions" / "b").rglob("head")
        head.write_bytes(head.read_bytes()[:-9])
        assert sorted(each.run_id for each in found.list()) == ["a", "b", "c"]  # ends are not read
        head.write_bytes(b"")
        assert sorted(each.run_id for each in found.list()) == ["a", "c"]
        assert found.has_checkpoint("b")
        with pytest.raises(Corrupt):
            found.load("b")


# Whose store it is.


@for_each("kind", ["sync", "aio"])
def test_a_store_that_was_given_stays_open(store: Store, kind: str) -> None:
    given = getattr(store, kind)
    with RunStore(given) as found:
        found.save(WHOLE)

    async def twin() -> Checkpoint:
        async with AsyncRunStore(given) as found:
            return await found.load("r")

    assert asyncio.run(twin()) == WHOLE
    assert RunStore(store).has_checkpoint("r")


def test_a_store_that_was_opened_here_is_closed(tmp_path: Path) -> None:
    with RunStore(f"sqlite:///{tmp_path}/runs.db") as found:
        found.save(WHOLE)
    with pytest.raises(InvalidInput, match="closed"):
        found.load("r")
    found.close()

    async def twin() -> Checkpoint:
        async with AsyncRunStore(f"sqlite:///{tmp_path}/runs.db") as found:
            loaded = await found.load("r")
        with pytest.raises(InvalidInput, match="closed"):
            await found.load("r")
        return loaded

    assert asyncio.run(twin()) == WHOLE


def test_an_async_store_touches_nothing_before_it_is_entered(tmp_path: Path) -> None:
    folder = tmp_path / "runs"

    async def use() -> None:
        found = AsyncRunStore(folder)
        assert not folder.exists()
        assert await found.list() == []
        await found.save(WHOLE)  # the first save creates it as well
        assert folder.is_dir()
        await found.close()

    asyncio.run(use())


@for_each("wrong", [None, 1, b"x", "", "a\0b", Path("x\0")])
def test_what_is_no_place_is_refused(wrong: Any) -> None:
    for kind in (RunStore, AsyncRunStore):
        with pytest.raises(InvalidInput):
            kind(wrong)


def test_the_twins_have_the_same_verbs() -> None:
    verbs = [name for name in vars(RunStore) if not name.startswith("_")]
    assert verbs == [name for name in vars(AsyncRunStore) if not name.startswith("_")]
    for name in verbs:
        sync, aio = getattr(RunStore, name), getattr(AsyncRunStore, name)
        assert inspect.iscoroutinefunction(aio)
        assert inspect.signature(sync) == inspect.signature(aio)
        assert f"Async twin of `RunStore.{name}`" in aio.__doc__
