"""What the tests of pages share: to ask for one, with or without a token."""

import asyncio
from typing import Any

import limpet
from limpet.inspector.site import PAGES
from limpet.server.access import Access, Tokens
from limpet.server.app import App
from tests.server.asgi import Response, ask

TOKEN = "bound-token-0123456789"


def got(
    store: limpet.Store, path: str, query: dict[str, Any] | None = None, *, rights: str = ""
) -> Response:
    """Return a page; `rights` are those of the token to ask with, such as `read a/`."""
    access = Access(Tokens(None, f"{TOKEN} {rights}")) if rights else Access()
    headers = {"authorization": f"Bearer {TOKEN}"} if rights else {}
    return asyncio.run(ask(App(store.aio, access, PAGES), "GET", path, query, **headers))
