"""Every page on every engine: two saves, a fork and a restore, through the pages themselves."""

import asyncio
from pathlib import Path
from urllib.parse import urlencode

import pytest

import limpet
from limpet.inspector.pages import PAGES
from limpet.server.access import Access
from limpet.server.app import App
from tests.security.conftest import place_of
from tests.server.asgi import Response, ask

pytestmark = pytest.mark.slow

SESSION = {"session_id": "chat/1"}
FORM = {"content_type": "application/x-www-form-urlencoded", "origin": "http://localhost:7420"}


async def walk(store: limpet.AsyncStore) -> None:
    app = App(store, Access(), PAGES)

    async def got(path: str, query: dict[str, str]) -> Response:
        answer = await ask(app, "GET", path, query)
        assert answer.status == 200, (path, query, answer.body)
        return answer

    async def posted(path: str, body: dict[str, str]) -> None:
        answer = await ask(app, "POST", path, {}, urlencode(body).encode(), **FORM)
        assert answer.status == 303, (path, answer.body)

    scope = store.scope("chat/1")
    first = await scope.save({"messages": [{"role": "user", "content": "a red fox"}]})
    second = await scope.save({"messages": [{"role": "user", "content": "a blue hen"}]})
    here = {**SESSION, "scope_id": "main", "kind": "agent", "id": first.id}
    for query in ({}, {"sort": "name"}, {"sort": "age"}, {"attention": "true"}):
        listed = await got("/ui", query)
        assert ("chat/1" in listed.body.decode()) == ("attention" not in query)
    for view in ("chat", "state", "changes"):
        await got("/ui/session", {**SESSION, "view": view})
        await got("/ui/snapshot", {**here, "view": view})
    assert b"fox" in (await got("/ui/tree", {**here, "path": "/messages/0"})).body
    await got("/ui/rows", SESSION)
    assert b"<mark>hen</mark>" in (await got("/ui/search", {"q": "hen"})).body
    assert b"<mark>fox</mark>" in (await got("/ui/search", {"q": "fox", **SESSION})).body
    await got("/ui/prune", {**SESSION, "keep_last": "1"})
    for format in ("html", "md", "jsonl"):
        assert b"hen" in (await got("/ui/export", {**SESSION, "format": format})).body
    assert b"fox" in (await got("/ui/export", {**here, "format": "json"})).body
    await got("/ui/fork", here)
    await posted("/ui/fork", {**here, "name": "other"})
    forked = await store.scope("chat/1", "other").load()
    assert forked is not None
    assert forked.forked_from == limpet.SnapshotRef(first.scope, first.id)
    await got("/ui/restore", here)
    await posted("/ui/restore", {**here, "revision": second.revision})
    head = await scope.load()
    assert head is not None
    assert head.state == {"messages": [{"role": "user", "content": "a red fox"}]}


@pytest.mark.parametrize("engine", ["memory", "sqlite", "directory", "postgres", "s3", "http"])
def test_every_page(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url, options = place_of(engine, request, tmp_path)

    async def opened() -> None:
        async with limpet.open_async(url, **options) as store:
            await walk(store)

    asyncio.run(opened())
