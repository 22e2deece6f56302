"""Items that expire: never returned once they have, extended by reads, and swept."""

from datetime import timedelta
from typing import Any

from langgraph.store.base import GetOp, TTLConfig

from limpet import Conflict, Store
from limpet.compat.langgraph import LimpetStore
from limpet.retention import Policy, Rule, Swept
from tests.compat.langgraph_store.kit import Through, Time, keys, run
from tests.waiting import until

PLACE = ("users", "ann")


def opened(store: Store, api: str, **ttl: Any) -> tuple[Through, Time]:
    config: TTLConfig = {**ttl}  # type: ignore[typeddict-item]
    items = LimpetStore(store, ttl=config or None)
    return Through(items, api), Time(items)


def test_what_has_expired_is_not_returned(store: Store, api: str) -> None:
    items, time = opened(store, api)
    items.put(PLACE, "short", {"n": 1}, ttl=5)
    items.put(("users", "bob"), "short", {"n": 1}, ttl=5)
    items.put(PLACE, "long", {"n": 1}, ttl=60)
    items.put(PLACE, "ever", {"n": 1})
    time.minutes = 4.9
    assert len(items.search(("users",), refresh_ttl=False)) == 4
    time.minutes = 5.1
    assert keys(items.search(("users",), refresh_ttl=False)) == ["ever", "long"]
    assert keys(items.search((), filter={"n": 1}, limit=1, refresh_ttl=False)) == ["ever"]
    assert items.get(PLACE, "short") is None
    assert items.list_namespaces() == [PLACE]

    assert items.sweep_ttl() == 2
    assert items.sweep_ttl() == 0
    assert list(store.sessions()) == ["users/ann"]
    time.minutes = 61
    assert items.list_namespaces() == [PLACE]
    assert keys(items.search(())) == ["ever"]


def test_the_policy_of_the_store_deletes_them_and_no_memory_else(store: Store, api: str) -> None:
    items, _ = opened(store, api)
    items.put(PLACE, "gone", {}, ttl=0)
    items.put(PLACE, "stays", {})
    policy = Policy(store)
    policy.set(Rule(delete_session_after=timedelta(0)))
    assert policy.apply(dry_run=True) == policy.apply() == Swept(0, 0, 0, 1, 0)
    assert [note.name for note in store.scope("users/ann", kind="items").notes()] == ["stays"]
    policy.set(Rule(kind="items", delete_session_after=timedelta(0)))
    assert policy.apply() == Swept(1, 0, 0, 0, 0)
    assert items.search(()) == []


def test_reads_extend_the_time_to_live_and_are_no_updates(store: Store, api: str) -> None:
    items, time = opened(store, api, default_ttl=10)
    items.put(PLACE, "a", {})
    items.put(PLACE, "b", {})
    items.put(PLACE, "kept", {}, ttl=None)
    before = items.get(PLACE, "a", refresh_ttl=False)
    for time.minutes in (8, 16, 24):
        assert items.get(PLACE, "a") == before
        assert keys(items.search(PLACE, limit=2)) == ["kept", "b"]
    assert run(items, GetOp(PLACE, "a", refresh_ttl=False)) == [before]
    time.minutes = 24 + 10.1
    assert keys(items.search(PLACE)) == ["kept"]
    items.put(PLACE, "a", {"new": 1})
    time.minutes = 40
    assert items.sweep_ttl() == 1
    found = items.get(PLACE, "a")
    assert found is not None
    assert found.value == {"new": 1}


def test_reads_do_not_extend_if_so_configured(store: Store, api: str) -> None:
    items, time = opened(store, api, default_ttl=10, refresh_on_read=False)
    items.put(PLACE, "a", {})
    items.put(PLACE, "b", {})
    time.minutes = 8
    assert items.get(PLACE, "a") is not None
    assert items.get(PLACE, "b", refresh_ttl=True) is not None
    time.minutes = 12
    assert keys(items.search(PLACE)) == ["b"]


def test_a_put_at_the_moment_of_a_sweep_wins(memory: Store) -> None:
    """An item that is put again before it is deleted stays; the others are deleted."""
    items, time = opened(memory, "sync", default_ttl=10)
    backend: Any = memory.driver.opened.backend
    write_notes = backend.write_notes
    conflicts: list[int] = []

    def put_before(changes: Any) -> None:
        if not conflicts:
            backend.write_notes = write_notes
            items.put(PLACE, "a", {"new": 1})
            backend.write_notes = put_before
        try:
            write_notes(changes)
        except Conflict:
            conflicts.append(len(changes))
            raise

    items.put(PLACE, "a", {"old": 1})
    items.put(PLACE, "b", {"old": 1})
    time.minutes = 11
    backend.write_notes = put_before
    assert items.sweep_ttl() == 1
    assert conflicts == [4, 2]  # changes: of the items and of their vectors
    backend.write_notes = write_notes
    found = items.get(PLACE, "a")
    assert found is not None
    assert found.value == {"new": 1}
    assert items.get(PLACE, "b") is None


def test_a_sweeper_sweeps_until_the_store_is_closed(memory: Store) -> None:
    items = LimpetStore(memory, ttl={"default_ttl": 0, "sweep_interval_minutes": 1})
    items.put(PLACE, "a", {})
    ended = items.start_ttl_sweeper(0.0001)
    until(lambda: not list(memory.sessions()))
    assert not ended.done()
    assert items.stop_ttl_sweeper(5)
    assert ended.done()
    assert items.stop_ttl_sweeper()
    again = items.start_ttl_sweeper()
    memory.close()
    again.result(300)
