"""Defects that a hostile review of the pages found."""

import asyncio
import re
import time
from html import unescape
from urllib.parse import parse_qsl, urlsplit

import pytest

import limpet
from limpet.inspector import expressions
from limpet.inspector.pages import search
from limpet.inspector.site import PAGES
from limpet.server.access import Access, Tokens
from limpet.server.app import App
from tests.server import asgi
from tests.server.asgi import Response, ask

_TOKEN = "t" * 20
_FEW = 50_000  # bytes of a page about little


def get(store: limpet.Store, path: str, token: str = "", **query: str) -> Response:
    """Return a page; the token is bound to sessions that begin with `a-`."""
    access = Access(Tokens(None, f"{token} write a-")) if token else Access()
    app = App(store.aio, access, PAGES)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return asyncio.run(ask(app, "GET", path, query, **headers))


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_typed_name_tells_nothing_of_a_history_outside(is_deleted: bool) -> None:
    with limpet.open("memory:") as store:
        outside = store.scope("b-1")
        for number in range(3):
            outside.save({"n": number}, id=f"outside-{number}")
        outside.fork("outside-2", to="a-1")
        if is_deleted:
            store.delete_session("b-1")
        steps = [
            get(store, "/ui/snapshot", _TOKEN, session_id="a-1", view="changes", base=f"@~{back}")
            for back in (1, 2, 7)
        ]
    said = [re.findall(r"cannot be shown.*", each.body.decode())[0] for each in steps]
    assert len({re.sub(r"~\d", "", each) for each in said}) == 1, "whether there is so much of it"
    assert "outside-" not in said[0]


def test_a_beginning_of_several_ids_of_another_scope_names_them() -> None:
    with limpet.open("memory:") as store:
        main = store.scope("s")
        for name in ("abc-1", "abc-2"):
            main.save({"name": name}, id=name)
        main.fork("abc-2", scope_id="other")
        query = {"session_id": "s", "scope_id": "other", "view": "changes", "base": "abc"}
        text = get(store, "/ui/snapshot", **query).body.decode()
    assert "several snapshots match" in text
    assert "<code>s:main@abc-1</code>" in text
