"""A session on every engine: what is saved comes back, in another process as it were."""

from limpet import Store
from limpet.compat.strands import SnapshotStorage, StoreStorage
from limpet.compat.strands.manager import SessionManager
from tests.compat.strands_manager.hands import (
    AGENT,
    PLACE,
    SESSION,
    Plain,
    in_a_loop,
    latest_of,
    turn_of,
)


@in_a_loop
async def test_full_lifecycle(store: Store) -> None:
    """Two turns, a new agent that goes on, back to a moment before, on from there, and gone."""
    manager = SessionManager(store, SESSION, snapshot_trigger=lambda data: True)
    first = Plain()
    turns = [await turn_of(manager, first, text) for text in ("a", "b")]
    ids = [turn.snapshot_id for turn in turns]
    assert all(turn.saved and turn.error is None for turn in turns)

    second, later = Plain(), SessionManager(store, SESSION)
    assert (await turn_of(later, second, "c")).restored is not None
    assert second.messages == ["a", "b", "c"]

    restored = await later.restore(second, ids[0])
    assert restored is not None
    assert (restored.snapshot_id, restored.fallen_back) == (ids[0], False)
    await turn_of(later, second, "another way")
    assert await later.list_snapshot_ids(second) == ids  # history stays
    third = Plain()
    await SessionManager(store, SESSION).restore(third)
    assert third.messages == ["a", "another way"]

    await manager.delete_session()
    assert await SessionManager(store, SESSION).restore(Plain()) is None
    assert await later.list_snapshot_ids(second) == []


@in_a_loop
async def test_save_gives_an_id_to_come_back_to(storage: SnapshotStorage) -> None:
    manager, agent = SessionManager(storage, SESSION), Plain()
    ids = []
    for text in ("a", "b", "c"):
        agent.hear(text)
        ids.append(await manager.save(agent, app_data={"heard": text}))

    assert ids == sorted(set(ids))
    assert await manager.list_snapshot_ids(agent) == ids  # and not the latest
    assert await manager.list_snapshot_ids(agent, limit=1, start_after=ids[0]) == [ids[1]]
    assert (await latest_of(storage)).app_data == {"heard": "c"}
    assert await manager.restore(agent, ids[1])
    assert agent.messages == ["a", "b"]


@in_a_loop
async def test_what_lies_there_is_a_snapshot_of_the_tools(store: Store) -> None:
    await turn_of(SessionManager(store, SESSION), Plain(), "a")

    found = (await latest_of(StoreStorage(store))).to_json()
    assert list(found) == ["scope", "schemaVersion", "createdAt", "data", "appData"]
    assert (found["scope"], found["schemaVersion"]) == ("agent", "1.0")
    assert str(found["createdAt"]).endswith("Z")
    assert found["data"] == {"messages": ["a"]}
    assert found["appData"] == {"status": "completed"}
    head = store.scope(SESSION, AGENT).load()  # the same to all others
    assert head is not None
    assert head.state == {"messages": ["a"]}
    assert PLACE["scope"] == head.scope.kind
