"""The documentation of Genkit's interface `SessionStore<S>`, line by line, on every engine.

A test has the name of the line that it shows.
"""

import inspect
from dataclasses import replace
from typing import Any

import pytest

from limpet import Conflict, InvalidInput
from limpet.compat.genkit import SessionSnapshot, SessionStore
from tests.compat.genkit.kit import ENGINES, Desk, Heard, Row, Stores, all_of, always, row
from tests.present import present

ROUNDS = 8


@pytest.fixture(scope="session")
def stores(request: pytest.FixtureRequest) -> Stores:
    """Stores of each engine, by its name."""
    return Stores(request)


@pytest.fixture(params=ENGINES)
def desk(request: pytest.FixtureRequest, stores: Stores) -> Desk:
    """A desk on each engine."""
    return stores.desk(request.param)


async def test_interface_for_persistent_session_snapshot_storage(desk: Desk) -> None:
    await desk.put("a", state={"messages": ["hello"]})
    if desk.place.scheme == "memory":  # which lasts as long as its store
        assert (await desk.get("a")).state == {"messages": ["hello"]}
        return
    with desk.place.open() as store:
        found = await desk.open(store).get_snapshot(snapshot_id="a")
        assert found == await desk.get("a")


def test_type_parameters_s_is_unknown() -> None:
    store, record = SessionStore[dict[str, int]], SessionSnapshot[dict[str, int]]
    assert (store.__origin__, record.__origin__) == (SessionStore, SessionSnapshot)  # type: ignore[attr-defined]
    snapshot = record(state={"n": 1})
    assert snapshot.state["n"] == 1


async def test_s_is_unknown(desk: Desk) -> None:
    states: list[Any] = [None, True, 2**70, "text", [1], {"custom": {}}]
    for number, state in enumerate(states):
        await desk.put(str(number), state=state)
        assert (await desk.get(str(number))).state == state


def test_the_methods_take_what_theirs_take() -> None:
    taken = {
        name: [*inspect.signature(getattr(SessionStore, name)).parameters][1:]
        for name in ("get_snapshot", "on_snapshot_state_change", "save_snapshot")
    }
    assert taken == {
        "get_snapshot": ["snapshot_id", "session_id", "context"],
        "on_snapshot_state_change": ["snapshot_id", "callback", "context"],
        "save_snapshot": ["snapshot_id", "mutator", "context"],
    }


async def test_loads_a_snapshot_either_by_its_snapshot_id_or_by_session_id(desk: Desk) -> None:
    await desk.put("a", state={"n": 1})
    by_id = await desk.sessions.get_snapshot(snapshot_id="a")
    by_session = await desk.sessions.get_snapshot(session_id="s")
    assert isinstance(by_id, SessionSnapshot)
    assert by_id == by_session


async def test_exactly_one_of_snapshot_id_and_session_id(desk: Desk) -> None:
    ids: list[dict[str, Any]] = [
        {},
        {"snapshot_id": "a", "session_id": "s"},
        {"snapshot_id": "", "session_id": ""},
    ]
    for each in ids:
        with pytest.raises(InvalidInput, match="either a snapshot_id or a session_id"):
            await desk.sessions.get_snapshot(**each)
    assert await desk.sessions.get_snapshot(snapshot_id="a", session_id="") is None


async def test_session_id_resolves_to_the_latest_leaf_snapshot(desk: Desk) -> None:
    await desk.put("root", second=1)
    await desk.put("x", second=9, parent_id="root")
    await desk.put("y", second=5, parent_id="root")
    await desk.put("y2", second=2, parent_id="y")
    assert await desk.latest() == "x"
    await desk.put("y3", second=10, parent_id="y2")
    assert await desk.latest() == "y3"


async def test_optionally_rejecting_branching_histories(desk: Desk) -> None:
    await desk.put("root", second=1)
    await desk.put("x", second=2, parent_id="root")
    assert await desk.latest(reject_branching_sessions=True) == "x"
    await desk.put("y", second=3, parent_id="root")
    assert await desk.latest() == "y"
    with pytest.raises(Conflict, match=r"several branches.* session_id=`'s'` leaves=`2`"):
        await desk.latest(reject_branching_sessions=True)
    present(await desk.open(reject_branching_sessions=True).get_snapshot(snapshot_id="x"))


async def test_on_snapshot_state_change_calls_back_until_it_is_ended(desk: Desk) -> None:
    heard = Heard()
    end = desk.sessions.on_snapshot_state_change("a", heard)
    await desk.put("a", status="pending")
    await heard.until(lambda it: it.statuses == ["pending"])
    await desk.sessions.save_snapshot("a", always({"status": "completed", "state": 1}))
    await heard.until(lambda it: it.statuses == ["pending", "completed"])
    assert heard.rows[-1] == await desk.get("a")
    end()


async def test_atomically_reads_passes_and_persists(desk: Desk) -> None:
    def increment(current: Row | None) -> Row:
        return row(state={"n": 1 if current is None else current.state["n"] + 1})

    await all_of(*(desk.sessions.save_snapshot("a", increment) for _ in range(ROUNDS)))
    assert (await desk.get("a")).state == {"n": ROUNDS}


async def test_when_snapshot_id_is_provided_the_existing_snapshot_is_passed(desk: Desk) -> None:
    await desk.put("a", state={"n": 1}, finish_reason="stop")
    before = await desk.get("a")

    async def mutator(current: Row | None) -> Row:
        assert current == before
        return replace(before, state={"n": 2})

    assert await desk.sessions.save_snapshot("a", mutator) == "a"
    assert await desk.get("a") == replace(before, state={"n": 2})


async def test_when_snapshot_id_is_undefined_undefined_is_passed_and_an_id_assigned(
    desk: Desk,
) -> None:
    seen: list[Row | None] = []

    def mutator(current: Row | None) -> Row:
        seen.append(current)
        return row(state=len(seen))

    ids = [await desk.sessions.save_snapshot(None, mutator) for _ in range(2)]
    assert seen == [None, None]
    assert ids[0] != ids[1]
    assert [(await desk.get(id or "")).state for id in ids] == [1, 2]


async def test_a_done_write_does_not_overwrite_a_concurrent_aborted_status(desk: Desk) -> None:
    """Neither if the mutator looks, nor if it does not: then it is refused."""

    def flip(status: str) -> Any:
        def mutator(current: Row | None) -> Row | None:
            assert current is not None
            return replace(current, status=status) if current.status == "pending" else None

        return mutator

    for number in range(ROUNDS):
        id = str(number)
        await desk.put(id, status="pending")
        answers = await all_of(
            desk.sessions.save_snapshot(id, flip("aborted")),
            desk.sessions.save_snapshot(id, flip("completed")),
        )
        assert answers.count(None) == 1
        assert (await desk.get(id)).status == ("completed" if answers[1] else "aborted")
    await desk.put("a", status="aborted")
    with pytest.raises(Conflict, match="the snapshot is aborted and stays so"):
        await desk.sessions.save_snapshot("a", always({"status": "completed"}))


async def test_the_mutator_can_return_a_snapshot_to_save_it(desk: Desk) -> None:
    given: Row = SessionSnapshot(session_id="s", created_at="2026-01-01T00:00:00.000Z", state={})
    for id, answer in (("a", given), ("b", given.to_json())):
        assert await desk.sessions.save_snapshot(id, always(answer)) == id
        assert await desk.get(id) == replace(given, snapshot_id=id, status="completed")


async def test_the_mutator_can_return_null_to_skip_the_write(desk: Desk) -> None:
    heard = Heard()
    end = desk.sessions.on_snapshot_state_change("a", heard)
    assert await desk.sessions.save_snapshot("a", always(None)) is None
    assert await desk.sessions.save_snapshot(None, always(None)) is None
    assert await desk.sessions.get_snapshot(snapshot_id="a") is None
    assert heard.rows == []
    end()


async def test_the_mutator_can_throw_to_abort_with_an_error(desk: Desk) -> None:
    async def mutator(current: Row | None) -> Row:
        raise LookupError("enough")

    await desk.put("a", state=1)
    for id in ("a", "b", None):
        with pytest.raises(LookupError, match="enough"):
            await desk.sessions.save_snapshot(id, mutator)
    assert (await desk.get("a")).state == 1
    assert await desk.latest() == "a"


async def test_returns_the_snapshot_id_that_was_used(desk: Desk) -> None:
    assert await desk.sessions.save_snapshot("a", always(row(snapshot_id="b"))) == "a"
    assert await desk.sessions.save_snapshot(None, always(row(snapshot_id="c"))) == "c"
    assert await desk.sessions.save_snapshot("a", always(None)) is None
