"""Defects that a hostile review of the pages found."""

import re
from html import unescape
from urllib.parse import parse_qsl, urlsplit

import pytest

import limpet
from limpet.inspector.pages import search
from tests.inspector import kit
from tests.server.asgi import Response
from tests.views.document_kit import HOSTILE, UNSEEN, stored

_BOUND = "write a-"  # the rights of a token
_FEW = 50_000  # bytes of a page about little


def get(store: limpet.Store, path: str, rights: str = "", **query: str) -> Response:
    return kit.got(store, path, query, rights=rights)


def test_a_typed_name_tells_nothing_of_a_history_outside() -> None:
    for is_deleted in [True, False]:
        with limpet.open("memory:") as store:
            outside = store.scope("b-1")
            for number in range(3):
                outside.save({"n": number}, id=f"outside-{number}")
            outside.fork("outside-2", to="a-1")
            if is_deleted:
                store.delete_session("b-1")
            place = {"session_id": "a-1", "view": "changes"}
            steps = [
                get(store, "/ui/snapshot", _BOUND, **place, base=f"@~{back}") for back in (1, 2, 7)
            ]
        said = [re.findall(r"cannot be shown.*", each.body.decode())[0] for each in steps]
        assert len({re.sub(r"~\d", "", each) for each in said}) == 1, is_deleted
        assert "outside-" not in said[0], is_deleted


def test_a_session_that_looks_like_an_option_is_none_in_a_command() -> None:
    for path in ["session", "fork", "restore"]:
        with limpet.open("memory:") as store:
            first = store.scope("--version").save({"n": 1})
            store.scope("--version").save({"n": 2})
            found = get(store, f"/ui/{path}", session_id="--version", id=first.id)
        commands = re.findall(r'data-copy="(limpet [^"]*)"', found.body.decode())
        assert commands, path
        assert [each for each in commands if " -- --version" not in each] == [], path


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


def test_long_names_and_titles_are_cut() -> None:
    long = 300_000 * "x"
    with limpet.open("memory:") as store:
        store.scope("title").save({"n": 1})
        store.scope("title").set_note("title", long)
        store.scope("role").save({"messages": [{"role": long, "content": "hello"}]})
        store.scope("keys").save(dict.fromkeys((f"{n}{long[:9]}" for n in range(20_000)), 1))
        pages = [get(store, "/ui")]
        for path, session_id in (("fork", "title"), ("export", "title"), ("said", "role")):
            pages.append(get(store, f"/ui/{path}", session_id=session_id))
        assert [(each.status, len(each.body) < _FEW) for each in pages] == [(200, True)] * 4


def test_floods_of_markup_are_text_after_a_while() -> None:
    """A page has a budget for Markdown, however many messages are long."""
    said = [{"role": "user", "content": "[*a" * 1_500} for _ in range(100)]
    with limpet.open("memory:") as store:
        store.scope("s").save({"messages": said})
        page = get(store, "/ui/snapshot", session_id="s").body
    assert page.count(b'class="prose"') < 20
    assert page.count(b'class="text"') > 50


def test_what_is_stored_or_asked_is_text() -> None:
    """No page has tags that it has not with a harmless text."""
    harmless: dict[int, set[str]] = {}
    for text in ("plain", *(" ".join(stored(each).split()) for each in HOSTILE)):
        with limpet.open("memory:") as store:
            scope = store.scope(text, text)
            state = {"messages": [{"role": text, "content": text}], text: text}
            scope.save(state, id=text, status=text, labels={text[:64]: text})
            scope.set_note("title", text)
            here = {"session_id": text}
            pages = [
                ("/session", {**here, "view": "state"}),
                *(("", each) for each in ({}, {"text": text}, {"prefix": text})),
                *(("/search", {"keys": "true", **each}) for each in ({"q": "a"}, {"q": text})),
                ("/search", {"keys": "true", "q": "a", **here}),
                ("/rows", here),
                ("/said", here),
            ]
            for number, (path, query) in enumerate(pages):
                found = get(store, f"/ui{path}", **query)
                page = found.body.decode()
                tags = {*re.findall(r"<[^\s>]*", page)}
                assert found.status == 200, (path, text)
                assert tags <= harmless.setdefault(number, tags), (path, text)
                assert not UNSEEN & {*re.sub(r' value="[^"]*"', "", page)}, (path, text)
                assert not re.search(r"""="[^"]*"'""", page), (path, text)  # out of an attribute
