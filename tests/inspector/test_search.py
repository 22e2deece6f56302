"""Search: what is found, where the links lead, and that it ends in time."""

import asyncio
import re
import time
from contextlib import ExitStack
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

import limpet
from limpet.inspector.pages import search
from limpet.inspector.pages.search import timed_finder
from limpet.views.search import Position, compiled, finder
from tests.cli.test_grep import damage, spoil_scopes
from tests.inspector import kit
from tests.server.asgi import Response, ask


def asked(store: limpet.Store, query: dict[str, Any], rights: str = "") -> Response:
    return kit.got(store, "/ui/search", query, rights=rights)


def hits(answer: Response) -> list[tuple[dict[str, str], str, str]]:
    """Return the address of each hit, its fragment, and its line with the match in brackets."""
    found = re.findall(
        r'<a class="hit" href="([^"]*)"><code[^>]*>.*?</code><span dir="auto">(.*?)</span></a>',
        answer.body.decode(),
    )
    shown = []
    for href, line in found:
        url = urlsplit(unescape(href))
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        text = line.replace("<mark>", "[").replace("</mark>", "]")
        shown.append((query, url.fragment, unescape(text)))
    return shown


def lines(answer: Response) -> list[str]:
    return [line for _, _, line in hits(answer)]


@pytest.fixture
def store() -> limpet.Store:
    return limpet.open("memory:")


def chat(*texts: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts]}


def test_few_search_at_once(store: limpet.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.scope("a").save(chat("a red fox"))
    under_way = store.driver.opened.service(search._Searches)
    with ExitStack() as others:
        for _ in range(search._SEARCHES_MAX):
            others.enter_context(under_way.one())
        refused = asked(store, {"q": "fox"})
        assert lines(refused) == []
        assert "other searches are under way" in refused.body.decode()
    again = asked(store, {"q": "fox"})
    assert lines(again) == ["a red [fox]"]
    store.scope("b").save(chat("another fox"))
    monkeypatch.setattr(search, "_SHARED_S_MAX", 0)
    with ExitStack() as others:
        assert next_page(asked(store, {"q": "fox"})) is None
        for _ in range(search._SEARCHES_MAX - 1):
            others.enter_context(under_way.one())
        following = next_page(asked(store, {"q": "fox"}))  # it gave its place up
        assert following is not None
    assert lines(asked(store, following))[-1] == "another [fox]"
    assert '<code title="messages.0.content">message 0</code>' in again.body.decode()


def test_heads_of_all_sessions(store: limpet.Store) -> None:
    store.scope("a").save(chat("a red fox"))
    store.scope("a").save(chat("a red fox", "a blue Fox & hen"))
    store.scope("b", kind="graph").save({"queue": ["no", {"fox": "one fox"}]})
    answer = asked(store, {"q": "fox"})
    assert answer.status == 200
    assert lines(answer) == ["a red [fox]", "a blue [Fox] & hen", "one [fox]"]
    (first, m0, _), (_, m1, _), (third, no, _) = hits(answer)
    head = store.scope("a").info()
    assert head is not None
    here = {"session_id": "a", "scope_id": "main", "kind": "agent", "id": head.id}
    assert (first, m0, m1) == ({**here, "view": "chat", "turns": "0"}, "m0", "m1")
    assert third["view"] == "state"
    assert (third["path"], no) == ("/queue/1/fox", "")
    text = answer.body.decode()
    assert "Searched 2 of 2 sessions" in text
    assert "limpet grep -F -i fox --url memory:" in text
    assert lines(asked(store, {"q": "Fox", "case": "true"})) == ["a blue [Fox] & hen"]
    assert "[fox]" in lines(asked(store, {"q": "fox", "keys": "true"}))
    assert lines(asked(store, {"q": "r.d|b[l]ue", "regex": "true"})) == [
        "a [red] fox",
        "a [blue] Fox & hen",
    ]
    assert lines(asked(store, {"q": "r.d"})) == []


def test_notes_and_whole_histories(store: limpet.Store) -> None:
    scope = store.scope("a")
    first = scope.save(chat("a fox"))
    scope.save(chat("gone"), parent=first)
    scope.set_note("title", "Of a fox")
    scope.set_note("den", "a fox's", on=first)
    food = {"created_at": 1, "value": {"prey": "of a fox"}}
    store.scope("users/b", kind="items").set_note("food", food)
    assert lines(asked(store, {"q": "fox"})) == ["Of a [fox]", "of a [fox]"]
    everywhere = ["Of a [fox]", "a [fox]", "a [fox]'s", "of a [fox]"]
    found = asked(store, {"q": "fox", "history": "true"})
    assert lines(found) == everywhere
    assert "limpet grep -F -i --history fox" in found.body.decode()
    (query, anchor, _), *_, (items, _, _) = hits(found)
    assert (query["view"], anchor) == ("state", "notes")
    page = kit.got(store, "/ui/session", query).body.decode()
    assert "Of a fox" in page[page.index('id="notes"') :]
    assert "of a fox" in kit.got(store, "/ui/session", items).body.decode()
    pages = list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_PAGE_HITS_MAX", 1)
        after: dict[str, str] | None = {}
        while after is not None:
            part = asked(store, {"q": "fox", "history": "true", **after})
            pages += lines(part)
            more = re.search(r'id="more" href="[^"]*after=([^"&]*)', part.body.decode())
            after = None if more is None else {"after": unquote(more[1])}
    assert pages == everywhere


@pytest.mark.parametrize("asks", [{}, {"history": "true"}, {"session_id": "s"}])
def test_what_is_saved_meanwhile_hides_no_note(
    store: limpet.Store, monkeypatch: pytest.MonkeyPatch, asks: dict[str, str]
) -> None:
    monkeypatch.setattr(search, "_PAGE_HITS_MAX", 1)
    scope = store.scope("s")
    scope.save("fox 3", head=False)
    for number in range(3):
        scope.set_note(f"note {number}", f"fox {number}")
    following: dict[str, str] | None = {"q": "fox", **asks}
    found = []
    while following is not None:
        answer = asked(store, following)
        found += lines(answer)
        following = next_page(answer)
        if len(found) == 2:
            scope.save("a hen")
    assert found == [f"[fox] {number}" for number in range(3 + bool(asks))]


def test_a_line_of_a_session_is_found_where_it_is_new(store: limpet.Store) -> None:
    scope = store.scope("s")
    first = scope.save(chat("a fox"))
    second = scope.save(chat("a fox", "two foxes"))
    scope.save(chat("a fox", "two foxes", "nothing"))
    again = scope.restore(first.id)
    fork = scope.fork(second.id, scope_id="try")
    third = fork.append("messages", [{"role": "user", "content": "three foxes"}])
    draft = scope.save(chat("a fox", "a drafted fox"), keep=False)
    store.scope("other").save(chat("another fox"))
    found = hits(asked(store, {"q": "fox", "session_id": "s"}))
    assert [(query["id"], line) for query, _, line in found] == [
        (draft.id, "a drafted [fox]"),
        (second.id, "two [fox]es"),
        (first.id, "a [fox]"),
        (third.id, "three [fox]es"),
    ]
    assert again.id not in {query["id"] for query, _, _ in found}


def test_histories_without_parents_are_compared_with_what_was_saved_before(
    store: limpet.Store,
) -> None:
    scope = store.scope("s")
    first = scope.save("a fox", parent=None)
    scope.save("a fox\nand a hen", parent=None)
    (found,) = hits(asked(store, {"q": "fox", "session_id": "s"}))
    assert found[0]["id"] == first.id


def test_the_result_of_a_tool_is_in_the_turn_of_its_call(store: limpet.Store) -> None:
    messages = [
        {"role": "user", "content": [{"text": "look"}]},
        {
            "role": "assistant",
            "content": [{"toolUse": {"toolUseId": "1", "name": "t", "input": {}}}],
        },
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "1", "content": [{"text": "a fox"}]}}],
        },
    ]
    store.scope("s").save({"messages": messages})
    ((query, fragment, _),) = hits(asked(store, {"q": "fox"}))
    assert (query["view"], fragment) == ("chat", "m1")


def next_page(answer: Response) -> dict[str, str] | None:
    found = re.search(r'id="more" href="([^"]*)"', answer.body.decode())
    if found is None:
        return None
    query = parse_qs(urlsplit(unescape(found[1])).query)
    return {name: values[0] for name, values in query.items()}


@pytest.mark.parametrize("session_id", [None, "s-0"])
def test_it_goes_on_exactly_there(
    store: limpet.Store, monkeypatch: pytest.MonkeyPatch, session_id: str | None
) -> None:
    for number in range(4):
        for scope_id in ("main", "more"):
            scope = store.scope(f"s-{number}", scope_id)
            for count in (1, 4, 7, 7):
                scope.save([f"fox {number} {scope_id} {each}" for each in range(count)])
    query: dict[str, Any] = {"q": "fox"} | (
        {} if session_id is None else {"session_id": session_id}
    )
    whole = hits(asked(store, query))
    assert len(whole) == (14 if session_id else 50)
    for limit in (1, 2, 7, 9):
        monkeypatch.setattr(search, "_PAGE_HITS_MAX", limit)
        following: dict[str, str] | None = query
        found: list[Any] = []
        while following is not None and len(found) < 80:
            answer = asked(store, following)
            assert len(hits(answer)) <= limit
            found += hits(answer)
            following = next_page(answer)
        assert len(found) == (14 if session_id else 56)
        assert found[:50] == whole
    assert following is None


@pytest.mark.parametrize("page_s_max", [0.005, 0.0])  # 0: to count sessions takes all the time
def test_it_ends_in_time_and_goes_on(
    store: limpet.Store, monkeypatch: pytest.MonkeyPatch, page_s_max: float
) -> None:
    for number in range(20):
        store.scope(f"s-{number:02}").save(f"fox {number}")
    monkeypatch.setattr(search, "_PAGE_S_MAX", page_s_max)
    monkeypatch.setattr(search, "_PART_S_MAX", 0.001)
    found: list[str] = []
    following: dict[str, str] | None = {"q": "fox"}
    searched = []
    while following is not None:
        answer = asked(store, following)
        found += lines(answer)
        counts = re.findall(r"Searched ([\d,]+) of 20 sessions", answer.body.decode())
        searched += [int(each) for each in counts]
        following = next_page(answer)
    assert found == [f"[fox] {number}" for number in range(20)]
    assert searched[-1] == 20
    assert all(a <= b for a, b in pairwise(searched))


def test_an_expression_that_takes_forever_is_ended(
    store: limpet.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "TEXTS_S_MAX", 0.2)
    store.scope("a").save("aaa!")
    store.scope("s").save("a" * 60 + "!")
    answer = asked(store, {"q": "(?:a|aa)+$|aaa!$", "regex": "true"})
    assert answer.status == 200
    assert "takes too long" in answer.body.decode()
    assert lines(answer) == ["[aaa!]"]
    assert answer.body.endswith(b"</html>")


def test_an_expression_that_is_slow_everywhere_is_given_up(
    store: limpet.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "ALL_S_MAX", 0.2)
    store.scope("s").save({"text": [f"{'a' * 27}! {n}" for n in range(10_000)]})
    answer = asked(store, {"session_id": "s", "q": "^(?:a|aa)+$", "regex": "true"})
    assert "takes too long" in answer.body.decode()


def test_no_regular_expression(store: limpet.Store) -> None:
    for query in ("(", "a{2,1}", "(" * 490):
        answer = asked(store, {"q": query, "regex": "true"})
        assert answer.status == 400
        assert "not a regular expression" in answer.body.decode()
        assert 'type="search"' in answer.body.decode()
    assert asked(store, {"q": "x" * 501}).status == 400
    assert asked(store, {}).status == 200


def test_while_an_expression_takes_its_time_others_are_served(store: limpet.Store) -> None:
    slow = "[\x80-\uffff]" * 60  # about a second to compile, for `re` at least
    store.scope("s").save("a" * 60 + "!")

    async def served_meanwhile(query: str) -> int:
        app, given = kit.app_of(store), {"q": query, "regex": "true"}
        asking = asyncio.ensure_future(ask(app, "GET", "/ui/search", given))
        count = 0
        while not asking.done():
            await ask(app, "GET", "/healthz")
            count += 1
        return count

    for query in (slow, "(?:a|aa)+$"):
        assert asyncio.run(served_meanwhile(query)) > 20, query  # alone, it is hundreds


def test_an_expression_with_a_time_limit_finds_the_same() -> None:
    texts = ["", "a fox", "F\u00fcchse \u017f \ud800", "x" * 100_000 + "fox", "a {e} b {1,2} aaa"]
    for text in (
        "fox",
        "^$",
        r"\bf\w+",
        "\u017f|ü",
        "(?s).",
        "a{2}",
        "a {e}",
        r"\{e|x{,2}$",
        "[{e]",
    ):
        for ignore_case in (False, True):
            pattern = compiled(text, fixed=False, ignore_case=ignore_case)
            found = timed_finder(pattern, time.monotonic)(texts)
            assert found == finder(pattern)(texts), (text, ignore_case)


def test_repetitions_inside_repetitions_do_not_fill_the_memory(store: limpet.Store) -> None:
    """To compile 60 of them takes `regex` more than 3 GB."""
    for query in ("(?:" * 60 + "a" + "+)" * 60, "(" * 16 + "a" + "){2}" * 16):
        answer = asked(store, {"q": query, "regex": "true"})
        assert answer.status == 400
        assert "more than 15 groups" in answer.body.decode()
    deepest = "(?:" * 15 + "a" + "{1,50})" * 15
    assert asked(store, {"q": deepest, "regex": "true"}).status == 200


def test_a_bound_token_searches_its_sessions(store: limpet.Store) -> None:
    store.scope("a/1").save("a fox inside")
    store.scope("b/1").save("a fox outside")
    answer = asked(store, {"q": "fox"}, "read a/")
    assert lines(answer) == ["a [fox] inside"]
    assert "of 1 session" in answer.body.decode()
    assert "--prefix a/" in answer.body.decode()
    assert asked(store, {"q": "fox", "session_id": "b/1"}, "read a/").status == 403
    for session_id in ("b/0", "b/1"):
        place = search._cursor(Position(limpet.ScopeKey(session_id), "1.0.a", 0), 0)
        assert asked(store, {"q": "fox", "after": place}, "read a/").status == 403


def test_cursors_of_nothing(store: limpet.Store) -> None:
    for after in ("", "x", "é", "W10", "bnVsbA", "e30", "WzEsMiwzLDQsNSw2XQ", "A" * 9000):
        assert asked(store, {"q": "fox", "after": after}).status == 400, after


@pytest.mark.parametrize("asks", [{}, {"history": "true"}])
def test_a_damaged_scope_hides_no_other(tmp_path: Path, asks: dict[str, str]) -> None:
    with limpet.open(tmp_path.as_uri()) as store:
        for session in ("a", "b", "c"):
            store.scope(session).save(f"a fox in {session}")
    spoil_scopes(tmp_path, "b")
    with limpet.open(tmp_path.as_uri()) as store:
        answer = asked(store, {"q": "fox", **asks})
        assert lines(answer) == ["a [fox] in a", "a [fox] in c"]
        assert "1 snapshot could not be read" in answer.body.decode()


def test_what_is_damaged_is_counted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    with limpet.open(url) as store:
        for session in ("a", "b", "c"):
            store.scope(session).save(f"a fox in {session}")
        head = store.scope("b").info()
        store.scope("b").set_note("den", "a fox's", on=head)
    damage(url, "b")
    with limpet.open(url) as store:
        answer = asked(store, {"q": "fox"})
        assert lines(answer) == ["a [fox] in a", "a [fox] in c"]
        assert "1 snapshot could not be read" in answer.body.decode()
        answer = asked(store, {"q": "fox", "history": "true"})
        assert lines(answer) == ["a [fox] in a", "a [fox]'s", "a [fox] in c"]
        answer = asked(store, {"q": "fox", "session_id": "b"})
        assert lines(answer) == ["a [fox]'s"]
        assert "1 snapshot could not be read" in answer.body.decode()
