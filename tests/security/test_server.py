"""What the reviews of the server and its pages found missing; the rest is in tests/server."""

import asyncio
import html
import json
import re
from typing import Any

import pytest

import limpet
from limpet.core.operations import OPERATIONS, Operation
from limpet.inspector.pages import PAGES
from limpet.server.access import Access, Tokens
from limpet.server.app import App, Pages
from tests.cases import for_each
from tests.server import asgi
from tests.server.asgi import Response, ask

TOKEN = "a-token-0123456789"


def answers(*requests: tuple[str, str, dict[str, str]], open: bool = False) -> list[Response]:
    access = Access() if open else Access(Tokens(None, TOKEN))
    token = {"token": TOKEN}
    asked = ((method, path, token if "login" in path else None, h) for method, path, h in requests)
    return asgi.answers(access, *asked, pages=PAGES)


def test_what_needs_no_token_is_known() -> None:
    """A page that is public must be added here, with a reason."""
    assert [each.path for each in OPERATIONS if each.public] == []
    public = {each.path for each in PAGES.operations if each.public}
    assert {each for each in public if not each.startswith("/ui/static/")} == {
        "/",  # leads to /ui
        "/ui/",
        "/ui/login",  # takes a token
        "/ui/logout",  # forgets it
    }
    asked = ("/openapi.json", "/metrics", "/ui", "/v1", "/nothing", "/ui/nothing", "/ui/events")
    found = answers(*(("GET", path, {}) for path in asked))
    assert [each.status for each in found] == [401] * len(asked)
    assert [each.body for each in answers(("GET", "/healthz", {}), ("GET", "/readyz", {}))] == [
        b"{}",
        b"{}",
    ]


@for_each(
    ("site", "status"),
    [("cross-site", 403), ("same-site", 403), ("same-origin", 303), ("none", 303), (None, 303)],
)
def test_another_site_cannot_put_its_token_into_a_browser(site: Any, status: int) -> None:
    given = {} if site is None else {"sec_fetch_site": site}
    (answer,) = answers(("GET", "/ui/login", given))
    assert answer.status == status
    assert ("set-cookie" in answer.headers) == (status == 303)


def test_no_answer_is_kept_or_taken_for_another_type() -> None:
    paths = [each.path for each in OPERATIONS if each.method == "GET"]
    paths += ["/healthz", "/readyz", "/metrics", "/openapi.json", "/nothing"]
    for answer in answers(*(("GET", path, {}) for path in paths), open=True):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers


def test_a_defect_of_the_server_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    async def defect(call: Any) -> Any:
        raise RuntimeError("S3CRET")

    async def run() -> Response:
        async with limpet.open_async("memory:") as store:
            broken = Operation("broken", "GET", "/ui/broken", "A page.", handler=defect)
            app = App(store, Access(), Pages([broken], PAGES.error))
            return await ask(app, "GET", "/ui/broken")

    answer = asyncio.run(run())
    assert answer.status == 500
    assert b"server failed: its log says why" in answer.body
    assert b"S3CRET" not in answer.body
    assert "S3CRET" in caplog.text


def test_a_command_to_copy_holds_no_control_characters() -> None:
    """Pasted into a terminal, ^C would end the quotes of a name, and the rest would be run."""
    name = "a\x03touch x\r\x1b[201~"

    async def run() -> Response:
        async with limpet.open_async("memory:") as store:
            await store.scope(name).save({})
            return await ask(App(store, Access(), PAGES), "GET", "/ui/fork", {"session_id": name})

    page = html.unescape(asyncio.run(run()).body.decode())
    (words,) = re.findall(r"data-words='?\"?(\[.*?\])[\"']", page)
    shown = r"a\x03touch x\r\x1b[201~"
    assert any(each and shown in each for each in json.loads(words))
    assert all(each is None or each.isprintable() for each in json.loads(words))
    (copied,) = re.findall(r'data-copy="(.*?)"', page)
    assert copied.isprintable()
