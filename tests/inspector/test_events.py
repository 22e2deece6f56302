"""Live changes for pages, and whose they are."""

import asyncio

import limpet
from limpet.server.access import Access, Tokens
from tests.inspector.kit import TOKEN, app_of
from tests.server.asgi import ask


def told(query: dict[str, str], rights: str = "", *, status: int = 200) -> str:
    """Return the events while three heads are saved."""
    access = Access(Tokens(None, f"{TOKEN} {rights}")) if rights else Access()
    headers = {"authorization": f"Bearer {TOKEN}"} if rights else {}

    async def run(store: limpet.AsyncStore) -> str:
        scopes = store.scope("a/1"), store.scope("a/1", "notes"), store.scope("b/1")
        for scope in scopes:
            await scope.save({"n": 0})

        async def write() -> None:
            await asyncio.sleep(0.05)
            for scope in scopes:
                await scope.save({"n": 1})

        writing = asyncio.ensure_future(write())
        response = await ask(app_of(store.sync, access), "GET", "/ui/events", query, **headers)
        await writing
        assert response.status == status, response.body
        return response.body.decode()

    with limpet.open("memory:") as store:
        return asyncio.run(run(store.aio))


def sessions(text: str) -> set[str]:
    return {each for each in ("a/1", "b/1") if f'"session_id":"{each}"' in text}


def test_events_are_of_the_store_of_a_session_or_of_a_scope() -> None:
    assert sessions(told({})) >= {"b/1"}
    assert sessions(told({"prefix": "b/"})) == {"b/1"}
    found = told({"session_id": "a/1"})
    assert sessions(found) == {"a/1"}
    assert '"scope_id":"notes"' in found
    one = told({"session_id": "a/1", "scope_id": "main"})
    assert '"scope_id":"main"' in one
    assert '"scope_id":"notes"' not in one
    told({"scope_id": "main"}, status=400)


def test_a_bound_token_is_told_of_its_own_sessions_only() -> None:
    assert sessions(told({}, "read a/")) == {"a/1"}
    for query in ({"session_id": "b/1"}, {"prefix": "b/"}):
        told(query, "read a/", status=403)


def test_of_many_sessions_only_the_newest_head_is_sent_at_once() -> None:
    """The first batch would be all heads of the store, which the page has just shown."""
    with limpet.open("memory:") as store:
        for n in range(20):
            store.scope(f"chat-{n}").save({"n": n})
        found = asyncio.run(ask(app_of(store), "GET", "/ui/events"))
    assert found.body.count(b"event: change") == 1
    assert b'"session_id":"chat-19"' in found.body
