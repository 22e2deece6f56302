"""Defects that a hostile review of the pages found."""

import asyncio
import re
from html import unescape
from urllib.parse import parse_qsl, urlsplit

import pytest

import limpet
from limpet.inspector.pages import search
from limpet.inspector.site import PAGES
from limpet.server.access import Access, Tokens
from limpet.server.app import App
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


@pytest.mark.parametrize("path", ["session", "fork", "restore"])
def test_a_session_that_looks_like_an_option_is_none_in_a_command(path: str) -> None:
    with limpet.open("memory:") as store:
        first = store.scope("--version").save({"n": 1})
        store.scope("--version").save({"n": 2})
        found = get(store, f"/ui/{path}", session_id="--version", id=first.id)
    commands = re.findall(r'data-copy="(limpet [^"]*)"', found.body.decode())
    assert commands
    assert [each for each in commands if " -- --version" not in each] == []


def test_long_names_and_titles_are_cut() -> None:
    long = 300_000 * "x"
    with limpet.open("memory:") as store:
        store.scope("title").save({"n": 1})
        store.scope("title").set_note("title", long)
        store.scope("role").save({"messages": [{"role": long, "content": "hello"}]})
        store.scope("keys").save(dict.fromkeys((f"{n}{long[:9]}" for n in range(20_000)), 1))
        for path, session_id in [
            ("/ui", ""),
            ("/ui/fork", "title"),
            ("/ui/export", "title"),
            ("/ui/said", "role"),
        ]:
            found = get(store, path, **({"session_id": session_id} if session_id else {}))
            assert found.status == 200
            assert len(found.body) < _FEW, path


def test_a_deleted_session_is_not_shown_from_memory() -> None:
    with limpet.open("memory:") as store:
        store.scope("s").save({"messages": [{"role": "user", "content": "private"}]})
        found = get(store, "/ui/said", session_id="s")
        version = re.findall(r'data-version="(\w+)"', found.body.decode())[0]
        store.delete_session("s")
        for path in ("/ui/rows", "/ui/said"):
            assert get(store, path, session_id="s", version=version).status == 404


def test_a_search_gets_further_also_if_counting_takes_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "_PAGE_S_MAX", 0.0)
    with limpet.open("memory:") as store:
        for number in range(3):
            store.scope(f"s-{number}").save({"text": "needle"})
        query, hits, pages = {"q": "needle"}, 0, 0
        while query and pages < 9:
            text = get(store, "/ui/search", **query).body.decode()
            hits, pages = hits + text.count('class="hit"'), pages + 1
            more = re.search(r'id="more" href="(.*?)"', text)
            query = {} if more is None else dict(parse_qsl(urlsplit(unescape(more[1])).query))
    assert (hits, query) == (3, {})


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
