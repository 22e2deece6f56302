"""Nothing crosses tenants, whatever they are called, and whoever else has the same ids."""

import secrets
from typing import Any

import pytest

from limpet import InvalidInput
from limpet.compat.genkit import SessionStore
from limpet.compat.genkit.records import Tenant, tenant_of
from tests.compat.genkit.kit import ENGINES, Desk, Heard, Stores, always, row

NAMES = ["a", "a/b", "a%2Fb", "a%252Fb", "/", "%", "%25", "//", "%2F", "A", "é", " a"]


def test_no_two_addresses_are_one() -> None:
    tenants = [Tenant(), *(tenant_of(name, None) for name in NAMES)]
    places = {
        tenant.scope(session_id).session_id: (tenant, session_id)
        for tenant in tenants
        for session_id in NAMES
    }
    assert len(places) == len(tenants) * len(NAMES)
    for stored, (owner, session_id) in places.items():
        for tenant in tenants:
            assert tenant.session_of(stored) == (session_id if tenant == owner else None)


def test_a_name_that_others_gave_is_in_no_tenant_twice() -> None:
    for stored in ("50%", "%2f", "a/b/c", "a//b", "%41", "a/"):
        for tenant in (Tenant(), Tenant("a/")):
            assert tenant.session_of(stored) is None, stored


def test_a_context_names_a_tenant() -> None:
    contexts: list[tuple[Any, str]] = [
        (None, ""),
        ({}, ""),
        ("alice", "alice/"),
        ({"auth": {"uid": "alice"}, "headers": {}}, "alice/"),
        ({"auth": {"uid": "a/b%"}}, "a%2Fb%25/"),
    ]
    for context, prefix in contexts:
        assert tenant_of(context, None) == Tenant(prefix), context


BAD: list[Any] = ["", " ", 3, [], {"auth": None}, {"auth": {}}, {"auth": {"uid": ""}}, {"uid": "a"}]


async def test_a_context_that_names_none_is_refused(memory: Desk) -> None:
    sessions = SessionStore[Any](memory.store)
    for context in BAD:
        with pytest.raises(InvalidInput):
            await sessions.get_snapshot(snapshot_id="a", context=context)
        with pytest.raises(InvalidInput):
            await sessions.save_snapshot("a", always(row()), context=context)
        with pytest.raises(InvalidInput):
            sessions.on_snapshot_state_change("a", print, context=context)


@pytest.fixture(params=ENGINES)
def sessions(request: pytest.FixtureRequest, stores: Stores) -> SessionStore[Any]:
    """Sessions of everybody in a store, so ids must be one's own."""
    return SessionStore(stores.desk(request.param).store)


async def test_equal_ids_of_others_hide_nothing_and_show_nothing(sessions: Any) -> None:
    """Also without a context, and whoever has saved last."""
    id = secrets.token_hex(6)
    people = [None, "alice", "bob", "alice/bob", None]
    for turn, who in enumerate(people):
        given = {"sessionId": id, "state": {"who": who, "turn": turn}}
        assert await sessions.save_snapshot(id, always(given), context=who) == id
        for reader in {*people[: turn + 1]}:
            for ids in ({"snapshot_id": id}, {"session_id": id}):
                found = await sessions.get_snapshot(**ids, context=reader)
                assert found.state["who"] == reader
    assert await sessions.get_snapshot(snapshot_id=id, context="carol") is None


async def test_equal_ids_of_others_are_not_noticed(sessions: Any) -> None:
    """Neither before one's own is there, when any of that id could be meant, nor after."""
    id = secrets.token_hex(6)
    all_heard = {who: Heard() for who in (None, "alice", "bob")}
    ends = [
        sessions.on_snapshot_state_change(id, heard, context=who)
        for who, heard in all_heard.items()
    ]
    for turn in range(2):
        for who, heard in all_heard.items():
            given = {"sessionId": id, "state": [who, turn]}
            await sessions.save_snapshot(id, always(given), context=who)
            await heard.until_last([who, turn])
    for who, heard in all_heard.items():
        assert heard.states == [[who, 0], [who, 1]]
    for end in ends:
        end()
