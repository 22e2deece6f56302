"""What our service promises beyond the contracts of ADK: no lost update, no half a change."""

import asyncio
import traceback
from datetime import UTC, datetime
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions import Session

import limpet
from limpet.compat.adk import LimpetSessionService, open_session_service
from tests.frameworks.adk.services import USER, Sessions, event

# A session that has changed


async def test_a_stale_session_is_refused_whatever_the_times(ours: Sessions) -> None:
    first = await ours.new("s", state={"app:a": 0, "user:u": 0})
    second = await ours.get("s")
    await ours.append(first, event({"n": 1}, timestamp=5.0))
    second.last_update_time = 10.0  # later than what is stored

    with pytest.raises(StaleSessionError, match="modified in storage"):
        await ours.append(second, event({"n": 2, "app:a": 2, "user:u": 2}, timestamp=5.0))

    found = await ours.get("s")
    assert found.state == {"n": 1, "app:a": 0, "user:u": 0}
    assert [each.id for each in found.events] == [first.events[0].id]
    assert second.events == []


async def test_times_alone_order_no_events_and_make_no_session_stale(ours: Sessions) -> None:
    """(append_event_allows_timestamp_drift_for_current_session)"""
    session = await ours.new("s")
    await ours.append(session, event(id="z", timestamp=session.last_update_time + 10))
    session.last_update_time -= 100
    for id, time in (("m", 100.0), ("a", 100.0), ("early", 50.0)):
        await ours.append(session, event(id=id, timestamp=time))
    assert [each.id for each in (await ours.get("s")).events] == ["z", "m", "a", "early"]


async def test_a_session_from_json_is_current_by_its_last_event(ours: Sessions) -> None:
    """(append_event_allows_markerless_current_session)"""
    session = await ours.new("s")
    copies = [Session.model_validate_json(session.model_dump_json()) for _ in range(2)]
    await ours.append(copies[0], event(text="one"))
    await ours.append(Session.model_validate_json(copies[0].model_dump_json()), event(text="two"))
    with pytest.raises(StaleSessionError):
        await ours.append(copies[1], event(text="three"))
    assert len((await ours.get("s")).events) == 2


async def test_a_deleted_session_takes_no_event(ours: Sessions) -> None:
    """(append_event_to_deleted_session_raises_session_not_found)"""
    session = await ours.new("s")
    copy = Session.model_validate_json(session.model_dump_json())
    await ours.delete("s")
    for each in (session, copy):
        with pytest.raises(SessionNotFoundError):
            await ours.append(each, event({"user:u": 1}))
    assert await ours.find("s") is None
    assert await ours.user_state() == {}
    await ours.new("s")
    with pytest.raises(StaleSessionError):  # another session of the same name
        await ours.append(session, event())


async def test_one_of_two_stale_writers_wins(ours: Sessions) -> None:
    """(append_event_concurrent_stale_sessions_reject_stale_writer)"""
    await ours.new("s")
    for number in range(4):
        both = [await ours.get("s") for _ in range(2)]
        done = await asyncio.gather(
            *(ours.change(each, **{f"k{number}": i}) for i, each in enumerate(both)),
            return_exceptions=True,
        )
        assert sorted(isinstance(each, StaleSessionError) for each in done) == [False, True]
    found = await ours.get("s")
    assert len(found.events) == len(found.state) == 4


async def test_branches_of_a_run_share_a_session_object(ours: Sessions) -> None:
    session = await ours.new("s")
    await asyncio.gather(*(ours.append(session, event(text=str(n))) for n in range(8)))
    stored = [each.id for each in (await ours.get("s")).events]
    assert stored == [each.id for each in session.events]
    assert len(stored) == 8


async def test_loops_of_several_threads_do_not_wait_for_each_other(memory: limpet.Store) -> None:
    """Each of them may lose, as any two writers."""

    class Slow(LimpetSessionService):
        async def _share(self, *given: Any) -> None:
            await asyncio.sleep(0.01)
            await super()._share(*given)

    ours = Sessions(Slow(memory), "app")
    session = await ours.new("s")

    def work() -> list[BaseException | Event]:
        async def together() -> list[BaseException | Event]:
            appends = (ours.append(session, event()) for _ in range(5))
            return await asyncio.gather(*appends, return_exceptions=True)

        return asyncio.run(together())

    threads = [asyncio.to_thread(work) for _ in range(3)]
    done = [each for part in await asyncio.gather(*threads) for each in part]
    stored = [each for each in done if isinstance(each, Event)]
    assert all(isinstance(each, Event | StaleSessionError) for each in done)
    assert len((await ours.get("s")).events) == len(stored) > 0


async def test_a_cancelled_append_goes_on(ours: Sessions) -> None:
    """The runner then appends to the same session object that the run was aborted."""
    session = await ours.new("s")
    appending = asyncio.ensure_future(ours.append(session, event(text="cut off")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    appending.cancel()
    await asyncio.wait([appending])
    await ours.append(session, event(text="aborted"))
    said = [each.content.parts[0].text for each in (await ours.get("s")).events]
    assert said == ["cut off", "aborted"]


# Repetition


async def test_the_same_event_is_appended_once(ours: Sessions) -> None:
    """(append_event_is_idempotent_for_same_event_id)"""
    session = await ours.new("s")
    given = event({"n": 1}, text="hello")
    await ours.append(session, given)
    await ours.append(session, given)
    await ours.append(session, given.model_copy(deep=True))
    await ours.append(await ours.get("s"), given.model_copy(deep=True))
    assert len((await ours.get("s")).events) == len(session.events) == 1


async def test_an_event_that_is_other_values_as_json_is_appended_once(ours: Sessions) -> None:
    session = await ours.new("s")
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    given = event({"when": moment, "pair": (1, 2)}, custom_metadata={"days": {3}})
    await ours.append(session, given)
    for each in (session, await ours.get("s")):
        await ours.append(each, given.model_copy(deep=True))
    assert len((await ours.get("s")).events) == 1


async def test_events_that_only_share_an_id_are_both_stored(ours: Sessions) -> None:
    """(append_different_events_not_deduplicated)"""
    session = await ours.new("s")
    await ours.append(session, event(id="same", author="user"))
    await ours.append(session, event(id="same", author="agent"))
    assert [each.author for each in (await ours.get("s")).events] == ["user", "agent"]


# Values


async def test_what_json_cannot_express_becomes_text_or_null(ours: Sessions) -> None:
    """(append_event_with_non_serializable_state_delta)"""
    session = await ours.new("s", state={"call": print, "n": float("inf")})
    await ours.append(session, event({"later": print}, avg_logprobs=float("-inf")))
    found = await ours.get("s")
    assert "built-in function print" in found.state["call"]
    assert "built-in function print" in found.state["later"]
    assert found.state["n"] is None
    assert found.events[0].avg_logprobs is None


# Names


async def test_names_do_not_meet(ours: Sessions) -> None:
    names = [("a", "b/c"), ("a/b", "c"), ("a%2Fb", "c"), ("", "a"), ("%", "a"), ("a", "..")]
    for user, id in names:
        await ours.new(id, user=user, state={"user:me": user, "id": id})
    for user, id in names:
        assert (await ours.get(id, user=user)).state == {"user:me": user, "id": id}
    assert sorted((each.user_id, each.id) for each in await ours.listed(None)) == sorted(names)
    assert [each.id for each in await ours.listed("")] == ["a"]
    await ours.delete("b/c", user="a")
    assert len(await ours.listed(None)) == len(names) - 1


async def test_apps_do_not_meet(ours: Sessions) -> None:
    nested = Sessions(ours.service, f"{ours.app_name}/{USER}")
    await ours.new("s", state={"app:a": 1})
    await nested.new("s", state={"app:a": 2})
    assert [each.state for each in await ours.listed(None)] == [{"app:a": 1}]
    assert [each.state for each in await nested.listed(None)] == [{"app:a": 2}]


async def test_what_other_programs_saved_is_left_alone(memory: limpet.Store) -> None:
    ours = Sessions(LimpetSessionService(memory), "app")
    await ours.new("s")
    memory.scope("app/alice/log", kind="conversation").save({"items": []})
    memory.scope("app/alice/s", "other", "conversation").save({"state": {}, "events": []})
    memory.scope("app/alice/%41", kind="conversation").save({"state": {}, "events": []})
    memory.scope("app/alice", kind="conversation").save({"state": {}, "events": []})
    assert [each.id for each in await ours.listed()] == ["s"]
    with pytest.raises(limpet.Corrupt, match="no conversation of Google ADK"):
        await ours.find("log")


@pytest.mark.parametrize(
    "odd",
    [
        "text",
        {},
        {"id": "e", "timestamp": "now", "actions": {}},
        {"id": "e", "timestamp": 1.0, "actions": None},
        {"id": "e", "timestamp": 1.0, "actions": {"state_delta": ["secret"]}},
        {"id": "e", "timestamp": 1.0, "actions": {"of_a_newer_version": "secret"}},
    ],
)
async def test_events_that_are_none(memory: limpet.Store, odd: Any) -> None:
    ours = Sessions(LimpetSessionService(memory), "app")
    await ours.new("s")
    memory.scope("app/alice/odd", kind="conversation").save({"state": {}, "events": [odd]})
    with pytest.raises(limpet.Corrupt, match="session=`app/alice/odd`") as raised:
        await ours.find("odd")
    assert "secret" not in "".join(traceback.format_exception(raised.value))
    assert "s" in [each.id for each in await ours.listed()]


def test_a_service_needs_a_store() -> None:
    no_store: Any = "sqlite:///agents.db"
    with pytest.raises(limpet.InvalidInput, match="expected a store"):
        LimpetSessionService(no_store)


async def test_only_a_store_that_the_service_opened_is_closed(memory: limpet.Store) -> None:
    ours = Sessions(LimpetSessionService(memory), "app")
    await ours.service.close()
    await ours.new()
    opened = Sessions(open_session_service("limpet+memory:", agents_dir="."), "app")
    await opened.new()
    await opened.service.close()
    with pytest.raises(limpet.LimpetError):
        await opened.new()


# State that sessions share, and a process that dies


class Died(Exception):
    """The process died here."""


class Dying(LimpetSessionService):
    """Dies after the commit of the event, before the state of the app (1) or of the user (2)."""

    dies_at = 0
    merges = 0

    async def _merge(self, *given: Any) -> None:
        self.merges += 1
        if self.merges == self.dies_at:
            raise Died
        await super()._merge(*given)


def dying(ours: Sessions, dies_at: int) -> Sessions:
    service = Dying(ours.service._store)
    service.dies_at = dies_at
    return Sessions(service, ours.app_name)


@pytest.mark.parametrize("dies_at", [1, 2])
async def test_shared_state_is_completed_by_the_next_reader(ours: Sessions, dies_at: int) -> None:
    session = await ours.new("s", state={"app:a": 1, "user:u": 1})
    with pytest.raises(Died):
        await dying(ours, dies_at).change(session, own=2, app__a=2, user__u=2)
    with pytest.raises(StaleSessionError):  # it must be loaded first
        await ours.append(session, event())
    for _ in range(2):
        assert (await ours.get("s")).state == {"own": 2, "app:a": 2, "user:u": 2}
    assert (await ours.new("t")).state == {"app:a": 2, "user:u": 2}


async def test_shared_state_is_completed_by_a_fork(ours: Sessions) -> None:
    session = await ours.new("s")
    with pytest.raises(Died):
        await dying(ours, 1).change(session, app__a=1, user__u=1)
    assert (await ours.fork("s")).state == {"app:a": 1, "user:u": 1}


@pytest.mark.parametrize("dies_at", [1, 2])
async def test_shared_state_of_a_new_session_too(ours: Sessions, dies_at: int) -> None:
    with pytest.raises(Died):
        await dying(ours, dies_at).new("s", state={"own": 1, "app:a": 1, "user:u": 1})
    assert (await ours.get("s")).state == {"own": 1, "app:a": 1, "user:u": 1}


async def test_a_change_of_shared_state_is_not_repeated(ours: Sessions) -> None:
    """Neither by readers, nor in a fork, nor after the history was pruned."""
    session = await ours.new("s")
    await ours.change(session, app__a=1, user__u=1)
    await ours.change(await ours.new("t"), app__a=2, user__u=2)
    service = ours.service
    await service.fork_session(app_name=ours.app_name, user_id=USER, session_id="s")
    for each in (ours.app_name, f"{ours.app_name}/{USER}"):
        (scope,) = [info.key async for info in service._store.scopes(each)]
        await service._store.scope(*scope).prune(keep_last=1)
    assert (await ours.get("s")).state == {"app:a": 2, "user:u": 2}
    assert await ours.user_state() == {"u": 2}


async def test_a_late_writer_does_not_undo_newer_state(ours: Sessions) -> None:
    """A reader completed its change, and others changed the same state, before it went on."""
    session = await ours.new("s")
    resumed = asyncio.Event()

    class Late(LimpetSessionService):
        async def _merge(self, *given: Any) -> None:
            await resumed.wait()
            await super()._merge(*given)

    late = Sessions(Late(ours.service._store), ours.app_name)
    appending = asyncio.ensure_future(late.change(session, app__a=1))
    while not (await ours.get("s")).events:
        await asyncio.sleep(0.001)
    await ours.change(await ours.new("t"), app__a=2)
    resumed.set()
    await appending
    assert (await ours.get("s")).state == {"app:a": 2}


# Several services on one store


async def test_services_on_one_store_lose_nothing(url: str) -> None:
    with limpet.open(url) as one, limpet.open(url) as two:
        both = [Sessions(LimpetSessionService(store), "app") for store in (one, two)]
        await both[0].new("s", state={"app:first": 1})
        await asyncio.gather(*(work(ours, str(n), 6) for n, ours in enumerate(both)))
        await everything_is_there(both[0], ["0", "1"], 6)
        assert [each.state for each in await both[1].listed()] == [(await both[0].get("s")).state]


async def work(ours: Sessions, name: str, count: int) -> None:
    """Append events to the one session; load it again whenever another was faster."""
    for number in range(count):
        given = event({f"{name}.{number}": number, f"user:{name}.{number}": 1, "app:last": name})
        while True:
            try:
                await ours.append(await ours.get("s"), given)
            except StaleSessionError:
                await asyncio.sleep(0.001)
            else:
                break
        await ours.listed()


async def everything_is_there(ours: Sessions, names: list[str], count: int) -> None:
    found = await ours.get("s")
    keys = {f"{name}.{number}" for name in names for number in range(count)}
    assert len(found.events) == len({each.id for each in found.events}) == len(keys)
    assert keys == {key for key in found.state if ":" not in key}
    assert set(await ours.user_state()) == keys
    assert {"app:first", "app:last"} < set(found.state)
