"""Where checkpoints stand in a store, what others see of them, and what is read for an answer."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from limpet import InvalidInput, Store
from limpet.compat.agentos import CheckpointStore
from limpet.compat.strands import StoreStorage
from limpet.opening import open_backend, store_over
from tests.cases import for_each
from tests.compat.agentos.kit import ENGINES, fresh, make_checkpoint, on, save_some
from tests.compat.strands.kit import Grounds, make_snapshot
from tests.present import present


@pytest.fixture(params=ENGINES)
def checkpoints(request: pytest.FixtureRequest, grounds: Grounds) -> CheckpointStore:
    """Over the sync store; on SQLite over the async one, which is the same to the adapter."""
    store = on(request.param, grounds)._store
    return CheckpointStore(store.aio if request.param == "sqlite" else store.sync)


@pytest.fixture
def store(checkpoints: CheckpointStore) -> Store:
    """The store itself, without the facade."""
    return checkpoints._store.sync


async def test_a_checkpoint_is_a_snapshot(checkpoints: CheckpointStore, store: Store) -> None:
    memory: dict[str, Any] = {"reads": [], "pendingWrites": []}
    first, second = await save_some(checkpoints, {}, {"memory_snapshot": memory, "extra": {"x": 1}})
    scope = store.scope(first.run_id, first.graph_id, "graph")
    found = present(scope.load())
    assert found.id == second.id
    assert found.kept
    assert found.parent_id == first.id  # a run is a line
    assert found.state == second.state
    assert found.labels == {
        "run_id": second.run_id,
        "graph_id": second.graph_id,
        "node_id": second.node_id,
    }
    rest = second.to_json()
    for name in ("id", "runId", "graphId", "nodeId", "state"):
        del rest[name]
    assert found.metadata["agentos"] == rest
    assert found.created_at == datetime.fromtimestamp(1_794_701_072, UTC)
    assert [info.id for info in scope.history()] == [second.id, first.id]


async def test_its_first_session_stays_its_home(checkpoints: CheckpointStore, store: Store) -> None:
    (before,) = await save_some(checkpoints, {})
    after = make_checkpoint(id=before.id, node_id="z")
    await checkpoints.save(after)
    info = present(store.find(before.id))
    assert info.scope == (before.run_id, before.graph_id, "graph")
    assert info.labels["run_id"] == after.run_id
    assert list(store.sessions(prefix=after.run_id)) == []
    store.delete_session(before.run_id)
    assert await checkpoints.get(after.id) is None


async def test_a_native_save_has_defaults(checkpoints: CheckpointStore, store: Store) -> None:
    run_id, graph_id = fresh("r"), fresh("g")
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    scope = store.scope(run_id, graph_id, "graph")
    bare = scope.save({"scratch": {"n": 1}}, id=fresh("c"), created_at=moment)
    found = present(await checkpoints.get(bare.id))
    assert found.to_json() == {
        "id": bare.id,
        "graphId": graph_id,
        "runId": run_id,
        "nodeId": "",
        "timestamp": 1_767_323_045_678,
        "state": {"scratch": {"n": 1}},
        "nodeResults": {},
        "visitedNodes": [],
        "pendingEdges": [],
    }
    assert await checkpoints.latest(run_id) is None  # it has no labels
    labels = {"run_id": run_id, "graph_id": graph_id, "node_id": "a"}
    labelled = scope.save({"n": 2}, id=fresh("c"), labels=labels, created_at=moment)
    found = present(await checkpoints.load(run_id, "a"))
    assert (found.id, found.state) == (labelled.id, {"n": 2})
    (listed,) = await checkpoints.list(graph_id)
    assert (listed.id, listed.state_size) == (labelled.id, labelled.size)


async def test_snapshots_of_others_are_not_changed(
    checkpoints: CheckpointStore, store: Store
) -> None:
    """A fork stays where those who saved its source can see it."""
    session_id, id = fresh("s"), fresh("c")
    place = {"sessionId": session_id, "scope": "agent", "scopeId": "main"}
    await StoreStorage(store).save_snapshot(place, id, False, make_snapshot(7))
    seen = present(await checkpoints.get(id))
    assert (seen.run_id, seen.graph_id, seen.state) == (session_id, "main", make_snapshot(7).data)

    run_id = await checkpoints.fork(id, {"scratch": {"tone": "bold"}})
    info = present(store.scope(run_id).info())
    assert info.forked_from == ((session_id, "main", "agent"), id)
    found = present(await checkpoints.latest(run_id))
    assert found.state == {**make_snapshot(7).data, "scratch": {"tone": "bold"}}
    assert found.forked_from["runId"] == session_id

    await checkpoints.delete(id)
    mine = make_checkpoint(id=id)
    await checkpoints.save(mine)
    assert await checkpoints.get(id) == mine
    await checkpoints.delete(id)
    theirs = await StoreStorage(store).load_snapshot(place, id)
    assert theirs == make_snapshot(7)
    await checkpoints.delete(found.id)
    assert await checkpoints.latest(run_id) is None


async def test_labels_alone_make_no_checkpoint(checkpoints: CheckpointStore, store: Store) -> None:
    run_id, graph_id = fresh("r"), fresh("g")
    labels = {"run_id": run_id, "graph_id": graph_id}
    store.scope(fresh("s")).save({}, labels=labels)
    assert await checkpoints.latest(run_id) is None
    assert await checkpoints.list(graph_id) == []


class Observed:
    """An engine, how often each of its methods was called, and what happens just before one."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.calls: Counter[str] = Counter()
        self.states = 0
        self.before: dict[str, Callable[[], object]] = {}

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._backend, name)
        if not callable(member):
            return member

        def called(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            self.before.pop(name, lambda: None)()
            answer = member(*args, **options)
            if name == "read_snapshots":
                self.states += len(answer)
            return answer

        return called


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[tuple[Observed, CheckpointStore]]:
    backend = Observed(open_backend(f"sqlite:///{tmp_path}/agents.db"))
    with store_over(backend) as store:
        yield backend, CheckpointStore(store)


async def test_a_load_reads_one_state(observed: tuple[Observed, CheckpointStore]) -> None:
    backend, checkpoints = observed
    saved = await save_some(
        checkpoints, *({"timestamp": at, "node_id": "ab"[at // 150]} for at in range(300))
    )
    backend.calls.clear()
    run_id, graph_id = saved[0].run_id, saved[0].graph_id
    for listed in (
        await checkpoints.list(graph_id),
        await checkpoints.list(graph_id, run_id=run_id),
    ):
        assert [each.timestamp for each in listed] == list(range(299, -1, -1))
    assert backend.calls == {"list_snapshots": 4}  # two pages each
    assert await checkpoints.latest(run_id) == saved[-1]
    assert await checkpoints.load(run_id, "a") == saved[149]
    assert backend.states == 2
    await checkpoints.save(make_checkpoint())
    assert await checkpoints.get(saved[7].id) == saved[7]
    assert backend.states == 3


async def test_a_latest_that_is_deleted_meanwhile(
    observed: tuple[Observed, CheckpointStore],
) -> None:
    backend, checkpoints = observed
    saved = await save_some(checkpoints, *({"timestamp": at} for at in range(3)))
    home = checkpoints._store.sync.scope(saved[0].run_id, saved[0].graph_id, "graph")
    elsewhere = {"run_id": "elsewhere", "graph_id": "g", "node_id": "a"}

    def move() -> None:
        home.update(saved[2].id, lambda found: found.with_(labels=elsewhere))

    backend.before["read_snapshots"] = move
    assert await checkpoints.latest(saved[0].run_id) == saved[1]
    backend.before["read_snapshots"] = lambda: home.delete_snapshot(saved[1].id)
    assert await checkpoints.latest(saved[0].run_id) == saved[0]
    backend.before["read_snapshots"] = lambda: home.delete()
    assert await checkpoints.latest(saved[0].run_id) is None


@for_each("given", [None, "memory:", object()])
def test_checkpoints_need_a_store(given: Any) -> None:
    with pytest.raises(InvalidInput, match="store"):
        CheckpointStore(given)
