"""What the tests of pages share: to ask for one and to send a form, with or without a token."""

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import limpet
from limpet.inspector.pages import PAGES
from limpet.server.access import Access, Tokens
from limpet.server.app import App
from tests.server.asgi import Response, ask, ask_slowly

TOKEN = "bound-token-0123456789"
FORM = "application/x-www-form-urlencoded"
Fill = Callable[[limpet.Store], object]


def app_of(store: limpet.Store, access: Access | None = None) -> App:
    return App(store.aio, access or Access(), PAGES)


def filled(fill: Fill) -> limpet.Store:
    store = limpet.open("memory:")
    fill(store)
    return store


def got(
    store: limpet.Store,
    path: str,
    query: dict[str, Any] | None = None,
    *,
    rights: str = "",
    access: Access | None = None,
    **headers: str,
) -> Response:
    """Return a page; `rights` are those of the token to ask with, such as `read a/`."""
    if rights:
        access = Access(Tokens(None, f"{TOKEN} {rights}"))
        headers["authorization"] = f"Bearer {TOKEN}"
    # However slow the machine is, wait for the end of a page that is sent in parts.
    app = app_of(store, access)
    return asyncio.run(ask_slowly(app, "GET", path, query, None, headers))


def posted(
    store: limpet.Store,
    path: str,
    fields: dict[str, Any],
    access: Access | None = None,
    **headers: str,
) -> Response:
    given = {"content_type": FORM, "origin": "http://localhost:7420", **headers}
    body = urlencode(fields).encode()
    return asyncio.run(ask(app_of(store, access), "POST", path, None, body, **given))
