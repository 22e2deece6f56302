"""What ADK asks of every session service, in `tests/unittests/sessions` of google/adk-python.

Those with `sessions` hold for ADK's own services in memory and on SQLite too, which shows that
they are read correctly. The name of each is that of the contract there, in parentheses.
"""

import asyncio
import os
import time
from collections.abc import Iterator

import pytest
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

from tests.frameworks.adk.services import USER, Sessions, event

# Sessions


async def test_a_session_is_created_read_and_deleted(sessions: Sessions) -> None:
    """(create_get_session)"""
    made = await sessions.new(state={"mood": "calm"})
    assert (made.app_name, made.user_id) == (sessions.app_name, USER)
    assert made.id
    assert made.state == {"mood": "calm"}
    assert made.last_update_time <= time.time()
    assert await sessions.get(made) == made
    await sessions.delete(made.id)
    assert await sessions.find(made.id) is None


async def test_an_id_is_taken_once(sessions: Sessions) -> None:
    """(create_session_with_existing_id_raises_error)"""
    await sessions.new("s", state={"n": 1})
    with pytest.raises(AlreadyExistsError):
        await sessions.new("s", state={"n": 2})
    assert (await sessions.get("s")).state == {"n": 1}


async def test_blanks_around_an_id_are_ignored(sessions: Sessions) -> None:
    """(padded_session_id_reads_and_deletes, create_session_with_padded_duplicate_id_raises_error,
    create_session_with_blank_id_generates_one)
    """
    made = await sessions.new("order-42\n", state={"cart": "book"})
    assert made.id == "order-42"
    with pytest.raises(AlreadyExistsError):
        await sessions.new("  order-42  ", state={"n": 2})
    assert (await sessions.get("order-42\n")).state == {"cart": "book"}
    await sessions.delete(" order-42")
    assert await sessions.find("order-42") is None
    assert (await sessions.new("   ")).id.strip()


async def test_only_the_session_named_is_deleted(sessions: Sessions) -> None:
    """(delete_session_sync_removes_only_the_targeted_users_session, …_unknown_session_is_a_noop)"""
    await sessions.new("s")
    await sessions.new("s", user="bob")
    await sessions.delete("other")
    await sessions.delete("s", user="nobody")
    await Sessions(sessions.service, "no-app").delete("s")
    assert await sessions.find("s") is not None
    await sessions.delete("s")
    assert await sessions.find("s") is None
    assert (await sessions.get("s", user="bob")).id == "s"


# Lists


async def test_a_list_is_of_one_user_or_of_all(sessions: Sessions) -> None:
    """(create_and_list_sessions, list_sessions_all_users,
    list_sessions_sync_unknown_app_or_user_returns_empty_response)
    """
    await sessions.new("a", state={"n": 1})
    await sessions.new("b", state={"n": 2})
    await sessions.new("c", user="bob", state={"n": 3})
    states = [(each.id, each.user_id, each.state) for each in await sessions.listed(None)]
    assert sorted(states) == [
        ("a", USER, {"n": 1}),
        ("b", USER, {"n": 2}),
        ("c", "bob", {"n": 3}),
    ]
    assert sorted(each.id for each in await sessions.listed()) == ["a", "b"]
    assert [each.id for each in await sessions.listed("bob")] == ["c"]
    assert await sessions.listed("nobody") == []
    assert await Sessions(sessions.service, "no-app").listed(None) == []


async def test_the_session_changed_last_is_listed_last(sessions: Sessions) -> None:
    """(list_sessions_ordered_by_last_update_time)"""
    for id in ("a", "b", "c"):
        await sessions.new(id)
        await asyncio.sleep(0.001)
    await sessions.append(await sessions.get("a"), event())
    assert [each.id for each in await sessions.listed()] == ["b", "c", "a"]


async def test_a_list_has_no_events_and_all_tiers(sessions: Sessions) -> None:
    """(list_sessions_sync_strips_events_and_merges_scoped_state)"""
    first = {"app:a": 1, "user:u": 2, "own": 3, "temp:t": 4}
    session = await sessions.new("s", state=first)
    await sessions.change(session, later=5)
    (listed,) = await sessions.listed()
    assert listed.events == []
    assert listed.state == {"app:a": 1, "user:u": 2, "own": 3, "later": 5}


# State


async def test_who_shares_a_state(sessions: Sessions) -> None:
    """(app_state_is_shared_by_all_users_of_app, user_state_is_shared_only_by_user_sessions,
    session_state_is_not_shared)
    """
    session = await sessions.new("s", state={"app:a": 1, "user:a": 1, "a": 1})
    await sessions.change(session, app__b=2, user__b=2, b=2)
    app, user = {"app:a": 1, "app:b": 2}, {"user:a": 1, "user:b": 2}
    assert (await sessions.new("o", user="bob")).state == app
    assert (await sessions.new("t")).state == app | user
    assert (await sessions.get("s")).state == {**app, **user, "a": 1, "b": 2}


@pytest.mark.parametrize("key", ["cart", "user__cart", "app__cart"])
async def test_a_change_replaces_an_object(sessions: Sessions, key: str) -> None:
    """(dict_valued_state_delta_replaces_stored_value, app_state_dict_valued_…)"""
    name = key.replace("__", ":")
    session = await sessions.new("s", state={name: {"a": 1, "b": 2}})
    await sessions.change(session, **{key: {"a": 3}})
    assert session.state == (await sessions.get("s")).state == {name: {"a": 3}}


@pytest.mark.parametrize("key", ["flag", "user__flag", "app__flag"])
async def test_none_is_a_value(sessions: Sessions, key: str) -> None:
    """(none_valued_state_delta_is_stored_not_dropped, user_state_none_valued_…)"""
    name = key.replace("__", ":")
    session = await sessions.new("s", state={name: True})
    await sessions.change(session, **{key: None})
    assert session.state == (await sessions.get("s")).state == {name: None}


async def test_temporary_state_is_not_stored(sessions: Sessions) -> None:
    """(temp_state_is_not_persisted_in_state_or_events)"""
    session = await sessions.new("s")
    appended = await sessions.change(session, temp__t=1, own=2)
    assert session.state == {"temp:t": 1, "own": 2}
    assert appended.actions.state_delta == {"own": 2}
    found = await sessions.get("s")
    assert found.state == {"own": 2}
    assert found.events[0].actions.state_delta == {"own": 2}


async def test_the_state_of_a_user_needs_no_session(sessions: Sessions) -> None:
    """(get_user_state_returns_empty_dict_when_no_state_exists, …_is_not_visible_across_users,
    …_across_apps, …_returns_state_written_via_append_event, …_reflects_latest_write)
    """
    assert await sessions.user_state() == {}
    session = await sessions.new()
    for count in (1, 2):
        await sessions.change(session, user__count=count, own=1)
    assert await sessions.user_state() == {"count": 2}
    assert await sessions.user_state("bob") == {}
    assert await Sessions(sessions.service, f"{sessions.app_name}-2").user_state() == {}


# Events


async def test_everything_in_an_event_comes_back(sessions: Sessions) -> None:
    """(append_event_complete, append_event_bytes, …_with_requested_tool_confirmations)"""
    session = await sessions.new()
    picture = types.Part.from_bytes(data=b"\x00\xff picture", mime_type="image/png")
    found_by = types.GroundingMetadata(
        web_search_queries=["limpets"],
        search_entry_point=types.SearchEntryPoint(sdk_blob=b"\x01"),
    )
    whole = event(
        content=types.Content(role="user", parts=[picture, types.Part(text="hello")]),
        turn_complete=True,
        partial=False,
        long_running_tool_ids={"call-1"},
        error_code="500",
        error_message="out of tokens",
        interrupted=True,
        usage_metadata=types.GenerateContentResponseUsageMetadata(total_token_count=7),
        grounding_metadata=found_by,
        citation_metadata=types.CitationMetadata(),
        custom_metadata={"rated": 5},
        timestamp=1700000000.123,
        input_transcription=types.Transcription(text="in", finished=True),
        output_transcription=types.Transcription(text="out", finished=True),
    )
    asked = ToolConfirmation(hint="really?", confirmed=False, payload={"album": "photos"})
    whole.actions = EventActions(
        artifact_delta={"plan": 0},
        state_delta={"big": 2**70, "one": 1.0, "user:big": -(2**65), "app:e": 1e300},
        transfer_to_agent="b",
        escalate=True,
        requested_tool_confirmations={"call-1": asked},
    )
    await sessions.append(session, whole)
    assert await sessions.get(session) == session


async def test_a_session_is_as_new_as_its_last_event(sessions: Sessions) -> None:
    """(session_last_update_time_updates_on_event)"""
    session = await sessions.new()
    later = session.last_update_time + 10
    await sessions.append(session, event(timestamp=later))
    assert session.last_update_time == (await sessions.get(session)).last_update_time == later
    (listed,) = await sessions.listed()
    assert listed.last_update_time == later


async def test_a_config_chooses_events(sessions: Sessions) -> None:
    """(get_session_with_config)"""
    session = await sessions.new()
    now = int(time.time())
    for number in range(1, 6):
        await sessions.append(session, event({"n": number}, timestamp=now + number))

    async def chosen(**config: float) -> list[float]:
        found = await sessions.get(session, config=GetSessionConfig(**config))
        assert found.state == {"n": 5}
        return [each.timestamp - now for each in found.events]

    assert await chosen() == [1, 2, 3, 4, 5]
    assert await chosen(num_recent_events=0) == []
    assert await chosen(num_recent_events=3) == [3, 4, 5]
    assert await chosen(num_recent_events=9) == [1, 2, 3, 4, 5]
    assert await chosen(after_timestamp=now + 4) == [4, 5]
    assert await chosen(after_timestamp=now + 50) == []
    assert await chosen(after_timestamp=now + 4, num_recent_events=3) == [4, 5]


async def test_a_partial_event_is_not_stored(sessions: Sessions) -> None:
    """(partial_events_are_not_persisted)"""
    session = await sessions.new()
    await sessions.append(session, event({"n": 1}, partial=True))
    assert session.events == (await sessions.get(session)).events == []
    assert session.state == {}


@pytest.fixture
def new_york() -> Iterator[None]:
    """A time zone in which an hour is repeated."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "America/New_York"
    time.tzset()
    yield
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


async def test_times_are_exact_in_a_repeated_hour(sessions: Sessions, new_york: None) -> None:
    """(get_session_keeps_exact_epoch_across_a_repeated_local_hour)"""
    session = await sessions.new()
    for second in (1730613600.0, 1730615400.0):
        await sessions.append(session, event(timestamp=second))
    times = [each.timestamp for each in (await sessions.get(session)).events]
    assert times == [1730613600.0, 1730615400.0]
