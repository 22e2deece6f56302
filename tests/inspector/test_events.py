"""Live changes for pages, and whose they are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import limpet
from limpet.inspector.site import PAGES
from limpet.server.access import Access, Tokens
from limpet.server.app import App
from tests.server.asgi import ask

TOKEN = "bound-token-0123456789"


@asynccontextmanager
async def served(access: Access) -> AsyncIterator[tuple[limpet.AsyncStore, App]]:
    async with limpet.open_async("memory:") as store:
        for each in ("a/1", "b/1"):
            await store.scope(each).save({"n": 0})
        await store.scope("a/1", "notes").save({"n": 0})
        yield store, App(store, access, PAGES)


async def told(app: App, query: dict[str, str], store: limpet.AsyncStore, **headers: str) -> str:
    async def write() -> None:
        await asyncio.sleep(0.05)
        for scope in (store.scope("a/1"), store.scope("a/1", "notes"), store.scope("b/1")):
            await scope.save({"n": 1})

    writing = asyncio.ensure_future(write())
    response = await ask(app, "GET", "/ui/events", query, **headers)
    await writing
    assert response.status == 200, response.body
    assert response.headers["content-type"] == "text/event-stream"
    return response.body.decode()


def sessions(text: str) -> set[str]:
    return {each for each in ("a/1", "b/1") if f'"session_id":"{each}"' in text}


def test_events_are_of_the_store_of_a_session_or_of_a_scope() -> None:
    async def run() -> None:
        async with served(Access()) as (store, app):
            assert sessions(await told(app, {}, store)) >= {"b/1"}
            assert sessions(await told(app, {"prefix": "b/"}, store)) == {"b/1"}
            found = await told(app, {"session_id": "a/1"}, store)
            assert sessions(found) == {"a/1"}
            assert '"scope_id":"notes"' in found
            one = await told(app, {"session_id": "a/1", "scope_id": "main"}, store)
            assert '"scope_id":"main"' in one
            assert '"scope_id":"notes"' not in one
            refused = await ask(app, "GET", "/ui/events", {"scope_id": "main"})
            assert refused.status == 400

    asyncio.run(run())


def test_a_bound_token_is_told_of_its_own_sessions_only() -> None:
    async def run() -> None:
        async with served(Access(Tokens(None, f"{TOKEN} read a/"))) as (store, app):
            bearer = f"Bearer {TOKEN}"
            assert sessions(await told(app, {}, store, authorization=bearer)) == {"a/1"}
            for query in ({"session_id": "b/1"}, {"prefix": "b/"}):
                found = await ask(app, "GET", "/ui/events", query, authorization=bearer)
                assert found.status == 403

    asyncio.run(run())


def test_of_many_sessions_only_the_newest_head_is_sent_at_once() -> None:
    """The first batch would be all heads of the store, which the page has just shown."""

    async def run() -> None:
        async with limpet.open_async("memory:") as store:
            for n in range(20):
                await store.scope(f"chat-{n}").save({"n": n})
            found = await ask(App(store, Access(), PAGES), "GET", "/ui/events")
            assert found.body.count(b"event: change") == 1
            assert b'"session_id":"chat-19"' in found.body

    asyncio.run(run())
