"""What an agent is restored from, and what is never written over."""

from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest

import limpet
from limpet import (
    JSON,
    AlreadyExists,
    Conflict,
    Corrupt,
    InvalidInput,
    Unavailable,
    Unsupported,
)
from limpet.compat.strands import (
    FileStorage,
    SessionError,
    Snapshot,
    SnapshotStorage,
)
from limpet.compat.strands.manager import SessionManager
from tests.compat.strands_manager.hands import (
    PLACE,
    SESSION,
    Observed,
    Plain,
    latest_of,
    turn_of,
)
from tests.present import present


async def test_defaults(tmp_path: Path) -> None:
    """A path is a folder in the layout of the tools."""
    async with SessionManager(tmp_path) as manager:
        assert (manager.session_id, manager.save_latest_on) == ("default-session", "invocation")
        await turn_of(manager, Plain(), "a")
    latest = "default-session/scopes/agent/planner/snapshots/snapshot_latest.json"
    assert (tmp_path / latest).exists()


@pytest.mark.parametrize("id", ["", ".", "..", " ", "a/b", "Chat", "a.b", "a\n", 7, None])
async def test_bad_ids_are_refused_before_anything_is_done(observed: Observed, id: str) -> None:
    with pytest.raises(InvalidInput):
        SessionManager(observed, id)
    manager = SessionManager(observed)
    with pytest.raises(InvalidInput):
        manager.invocation(Plain(id))
    with pytest.raises(InvalidInput):
        await manager.save(Plain(id))
    if id is not None:
        with pytest.raises(InvalidInput):
            await manager.restore(Plain(), id)
    assert observed.taken() == []


def test_bad_settings_are_refused_at_construction(observed: Observed) -> None:
    bad: list[dict[str, object]] = [
        {"save_latest_on": "sometimes"},
        {"save_latest_on": None},
        {"scope": "tool"},
        {"snapshot_trigger": True},
        {"on_error": "log"},
    ]
    for each in bad:
        with pytest.raises(InvalidInput):
            SessionManager(observed, **each)  # type: ignore[arg-type]
    for storage in (None, 7, Plain(), "sqlite:///agents.db", "s3://bucket"):
        with pytest.raises(InvalidInput):
            SessionManager(storage)  # type: ignore[arg-type]


def test_what_is_no_agent_is_refused(observed: Observed) -> None:
    class Nameless:
        take_snapshot = load_snapshot = print

    for agent in (None, object(), Nameless()):
        with pytest.raises(InvalidInput):
            SessionManager(observed).invocation(agent)  # type: ignore[arg-type]


# Restoring


async def test_the_first_turn_restores_and_later_ones_do_not(observed: Observed) -> None:
    await turn_of(SessionManager(observed), Plain(), "a")
    manager, agent = SessionManager(observed), Plain()
    first = await turn_of(manager, agent, "b")
    second = await turn_of(manager, agent, "c")

    assert first.restored is not None
    assert (first.restored.snapshot_id, first.restored.status) == (None, "completed")
    assert second.restored is None
    assert agent.messages == ["a", "b", "c"]


async def test_a_turn_goes_on_from_the_snapshot_that_was_chosen(observed: Observed) -> None:
    manager, agent = SessionManager(observed, SESSION), Plain()
    agent.hear("a")
    id = await manager.save(agent)
    await turn_of(manager, agent, "b")

    manager, agent = SessionManager(observed, SESSION), Plain()
    await manager.restore(agent, id)
    assert (await turn_of(manager, agent, "c")).restored is None
    assert (await latest_of(observed)).data == {"messages": ["a", "c"]}


async def test_a_missing_id_does_not_pass_for_a_restore(observed: Observed) -> None:
    await turn_of(SessionManager(observed), Plain(), "a")
    manager, agent = SessionManager(observed), Plain()
    assert await manager.restore(agent, "no-such-id") is None
    await turn_of(manager, agent, "b")
    assert agent.messages == ["a", "b"]


async def test_a_transient_failure_overwrites_nothing(observed: Observed) -> None:
    await turn_of(SessionManager(observed, SESSION), Plain(), "a")
    manager, agent = SessionManager(observed, SESSION), Plain()
    observed.taken()
    observed.fails_to = frozenset({"load"})
    with pytest.raises(SessionError) as raised:
        async with manager.invocation(agent):
            pytest.fail("the turn must not begin")
    assert isinstance(raised.value.__cause__, Unavailable)
    for save in (manager.save, manager.save_latest):
        with pytest.raises(SessionError, match="not overwritten"):
            await save(agent)
    assert observed.taken() == []

    observed.fails_to = frozenset()
    assert (await turn_of(manager, agent, "b")).restored is not None
    assert (await latest_of(observed)).data == {"messages": ["a", "b"]}


async def test_an_agent_that_cannot_be_loaded_is_not_saved(observed: Observed) -> None:
    class Newer(Plain):
        def load_snapshot(self, data: dict[str, JSON]) -> None:
            raise KeyError("plan")

    await turn_of(SessionManager(observed), Plain(), "a")
    observed.taken()
    manager, agent = SessionManager(observed), Newer()
    with pytest.raises(KeyError, match="plan"):
        await turn_of(manager, agent, "b")
    with pytest.raises(SessionError, match="not overwritten"):
        await manager.save(agent)
    assert observed.taken() == []


async def test_another_schema_is_no_damage(observed: Observed) -> None:
    """A newer program wrote it: nobody goes back behind that, or writes over it."""
    manager, agent = SessionManager(observed, SESSION), Plain()
    await manager.save(agent)
    newer = Snapshot("agent", "2.0", "2030-01-01T00:00:00.000Z", {"messages": []})
    await observed.save_snapshot(PLACE, "latest", True, newer)
    with pytest.raises(SessionError) as raised:
        await turn_of(SessionManager(observed, SESSION), Plain(), "a")
    assert isinstance(raised.value.__cause__, Unsupported)
    assert await latest_of(observed) == newer


class Other:
    """A storage of one's own: only what a manager calls does something."""

    def __init__(self, storage: SnapshotStorage) -> None:
        self.broken: Exception | None = None
        self._storage = storage
        self.save_snapshot = storage.save_snapshot
        self.list_snapshot_ids = storage.list_snapshot_ids
        self.list_snapshots = self.load_manifest = self.save_manifest = print
        self.delete_session = print

    async def load_snapshot(self, *given: Any) -> Snapshot | None:
        if self.broken is not None:
            raise self.broken
        return await self._storage.load_snapshot(*given)


async def test_any_storage_will_do(observed: Observed) -> None:
    await turn_of(SessionManager(observed, SESSION), Plain(), "a")
    other: Any = Other(observed)
    manager, agent = SessionManager(other, SESSION), Plain()
    for error in (OSError("gone"), Corrupt("bad")):  # a storage may raise what it likes
        other.broken = error
        with pytest.raises(type(error)):
            await turn_of(manager, agent, "b")
    other.broken = None
    assert (await turn_of(manager, agent, "b")).saved
    assert agent.messages == ["a", "b"]


async def test_a_turn_under_a_claim(observed: Observed) -> None:
    """What keeps two processes apart that continue the same session."""
    scope = observed._store.scope(SESSION, "planner")
    async with scope.claim(owner="worker-1"):
        assert (await turn_of(SessionManager(observed, SESSION), Plain(), "a")).saved
        with pytest.raises(Conflict):
            await scope.claim(owner="worker-2").__aenter__()


# Several agents


async def test_sessions_and_scopes_are_apart(tmp_path: Path) -> None:
    """One storage for all of them; deleting a session leaves its neighbours."""
    scopes: tuple[Literal["agent", "multiAgent"], ...] = ("agent", "multiAgent")
    async with FileStorage(tmp_path) as storage:
        for session, scope in product(("s", "s1"), scopes):
            manager = SessionManager(storage, session, scope=scope)
            await turn_of(manager, Plain(), f"{session} {scope}")
        await SessionManager(storage, "s").delete_session()
        for session, scope in product(("s", "s1"), scopes):
            await SessionManager(storage, session, scope=scope).restore(agent := Plain())
            assert agent.messages == ([] if session == "s" else [f"{session} {scope}"])


async def test_two_agents_of_one_id_are_refused(observed: Observed) -> None:
    manager, agent = SessionManager(observed), Plain()
    await turn_of(manager, agent, "a")
    with pytest.raises(AlreadyExists):
        manager.invocation(Plain())
    with pytest.raises(AlreadyExists):
        await manager.save(Plain())
    await turn_of(manager, Plain("writer"), "b")

    manager.release(agent)
    another = Plain()
    await turn_of(manager, another, "c")
    assert another.messages == ["a", "c"]


async def test_an_agent_that_is_gone_makes_room(observed: Observed) -> None:
    """As in a server that makes a new agent for every request, also after failures."""
    manager = SessionManager(observed, SESSION)

    async def request(text: str) -> None:
        async with manager.invocation(agent := Plain()):
            agent.hear(text)
            agent.messages_of = agent.hear  # type: ignore[attr-defined]  # a cycle
            if text == "b":
                raise TimeoutError

    for text in "abx":
        observed.fails_to = frozenset({"latest"} if text == "x" else ())
        with suppress(TimeoutError):
            await request(text)
    observed.fails_to = frozenset()
    await request("c")
    assert (await latest_of(observed)).data == {"messages": ["a", "b", "c"]}


async def test_one_turn_of_an_agent_at_a_time(observed: Observed) -> None:
    manager, agent = SessionManager(observed), Plain()
    async with manager.invocation(agent):
        with pytest.raises(Conflict):
            await turn_of(manager, agent, "b")
        with pytest.raises(Conflict):
            await manager.restore(agent)
        with pytest.raises(Conflict):
            await manager.delete_session()
        with pytest.raises(Conflict):
            manager.release(agent)
        await manager.save(agent)
    await turn_of(manager, agent, "c")


async def test_save_gives_an_id_to_come_back_to(observed: Observed) -> None:
    manager, agent = SessionManager(observed, SESSION), Plain()
    ids = []
    for text in ("a", "b", "c"):
        agent.hear(text)
        ids.append(await manager.save(agent, app_data={"heard": text}))

    assert await manager.list_snapshot_ids(agent) == ids  # and not the latest
    assert await manager.list_snapshot_ids(agent, limit=1, start_after=ids[0]) == [ids[1]]
    assert (await latest_of(observed)).app_data == {"heard": "c"}
    assert await manager.restore(agent, ids[1])
    assert agent.messages == ["a", "b"]


async def test_full_lifecycle(tmp_path: Path) -> None:
    """Two turns, a new agent that goes on, back to a moment before, on from there, and gone."""
    with limpet.open(f"sqlite:///{tmp_path}/agents.db") as store:
        manager = SessionManager(store, SESSION, snapshot_trigger=lambda data: True)
        first = Plain()
        turns = [await turn_of(manager, first, text) for text in ("a", "b")]
        ids = [turn.snapshot_id for turn in turns]
        assert all(turn.saved and turn.error is None for turn in turns)

        second, later = Plain(), SessionManager(store, SESSION)
        assert (await turn_of(later, second, "c")).restored is not None
        assert second.messages == ["a", "b", "c"]
        restored = present(await later.restore(second, ids[0]))
        assert (restored.snapshot_id, restored.fallen_back) == (ids[0], False)
        await turn_of(later, second, "another way")
        assert await later.list_snapshot_ids(second) == ids  # history stays
        third = Plain()
        await SessionManager(store, SESSION).restore(third)
        assert third.messages == ["a", "another way"]

        await manager.delete_session()
        assert await SessionManager(store, SESSION).restore(Plain()) is None
        assert await later.list_snapshot_ids(second) == []
