"""Every page on every engine: two saves, a fork and a restore, through the pages themselves."""

import asyncio
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import limpet
from limpet.inspector.pages import PAGES
from limpet.server.access import Access
from limpet.server.app import App
from tests.server.asgi import Response, ask
from tests.servers.http import Served
from tests.servers.service import Service

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


def test_on_memory() -> None:
    run("memory:")


def test_on_sqlite(tmp_path: Path) -> None:
    run(f"sqlite:///{tmp_path}/agents.db")


def test_on_a_directory(tmp_path: Path) -> None:
    run(f"file://{tmp_path}/agents")


def test_on_postgres(postgres_url: str) -> None:
    run(postgres_url)


def test_on_s3(seaweedfs: Service) -> None:
    run(f"s3://{seaweedfs.name}/pages-{os.getpid()}", **seaweedfs.options)


def test_over_http(tmp_path: Path) -> None:
    with Served(f"sqlite:///{tmp_path}/agents.db", folder=tmp_path) as served:
        run(served.url)


def run(url: str, **options: Any) -> None:
    async def opened() -> None:
        async with limpet.open_async(url, **options) as store:
            await walk(store)

    asyncio.run(opened())
