"""One snapshot in the inspector: as a chat, as a tree, as what changed, and to whom."""

import re
import sqlite3
from contextlib import closing
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import limpet
from limpet import Store
from limpet.core.limits import KIB
from limpet.inspector.pages.snapshot import read_detail
from limpet.server.access import Grant
from limpet.views.page.prose import TAGS
from tests.inspector.kit import Fill, filled, got
from tests.views.document_kit import (
    HOSTILE,
    IMAGES,
    UNSEEN,
    Seen,
    block,
    chat,
    hostile_messages,
    stored,
)

VIEWS = ("chat", "state", "changes")


def shown(fill: Fill, page: str = "/ui/snapshot", **params: object) -> "Shown":
    """Return the part of a page with one snapshot of the session `s`, or what was refused."""
    (found,) = shown_all(fill, params, page=page)
    return found


def shown_all(
    fill: Fill | Store, *all_params: dict[str, Any], page: str = "/ui/snapshot", rights: str = ""
) -> "list[Shown]":
    store = fill if isinstance(fill, Store) else filled(fill)
    asked = [got(store, page, {"session_id": "s", **each}, rights=rights) for each in all_params]
    return [Shown(found.status, found.body.decode()) for found in asked]


class Shown(Seen):
    def __init__(self, status: int, html: str) -> None:
        self.status = status
        self.html = html
        super().__init__(html)
        self.exact = self.text
        self.text = " ".join(self.text.split())

    def links(self, text: str) -> list[dict[str, str]]:
        """Return the parameters of the links that have a text."""
        found = re.findall(r'<a [^>]*href="([^"]*)"[^>]*>(.*?)</a>', self.html, re.S)
        return [
            dict(parse_qsl(urlsplit(unescape(href)).query))
            for href, inner in found
            if text in unescape(re.sub("<[^>]*>", "", inner))
        ]


def saved(state: Any) -> Fill:
    return lambda store: store.scope("s").save(state)


def said(n: int, text: str = "") -> dict[str, Any]:
    return {"role": ("user", "assistant")[n % 2], "content": text or f"message {n}"}


# The head of it


def test_the_head_says_what_it_is_and_what_can_be_done() -> None:
    def fill(store: Store) -> None:
        scope = store.scope("s")
        first = scope.save(chat(said(0)), id="first")
        scope.fork(first.id, scope_id="other")
        fork = store.scope("s", "other")
        fork.save(chat(said(0), said(1)), id="x" * 40, status="failed", labels={"run": "7"})
        fork.save(chat(said(0)), id="draft", keep=False)

    first = shown(fill, id="first")
    assert "Snapshot first" in first.text
    assert "Follows" not in first.text
    forked = shown(fill, scope_id="other", id="x" * 40)
    assert "xxxxxxxx…xxxx" in forked.text
    assert "x" * 40 in forked.values("data-copy")
    assert '<span class="status bad">failed</span>' in forked.html
    assert "run=7" in forked.text
    assert "limpet show s:other@" in forked.text
    here = {"session_id": "s", "scope_id": "other", "kind": "agent", "id": "x" * 40}
    assert forked.links("Fork") == forked.links("Restore") == [here]
    assert forked.links("Export JSON") == [{"format": "json", **here}]
    assert [forked.links(view)[0]["view"] for view in ("Chat", "State", "Changes")] == [*VIEWS]
    assert forked.html.count('aria-current="page"') == 1
    assert "draft" in shown(fill, scope_id="other").text


def test_a_fork_names_its_source() -> None:
    def fill(store: Store) -> None:
        store.scope("s").save(chat(said(0)), id="first")
        store.scope("s").fork("first", scope_id="other")

    seen = shown(fill, scope_id="other", view="state")
    (source,) = seen.links("main first")
    assert (source["scope_id"], source["id"]) == ("main", "first")


def test_what_only_a_writer_may_do_is_not_offered_to_a_reader() -> None:
    (seen,) = shown_all(saved(1), {}, rights="read")
    assert "Export JSON" in seen.html
    assert "/ui/fork" not in seen.html
    assert "/ui/restore" not in seen.html


# As a chat


def test_new_messages_are_marked_and_each_has_an_anchor() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    late = {"id": "d", "type": "function", "function": {"name": "wait", "arguments": "{}"}}
    asked = {"role": "assistant", "content": "", "tool_calls": [call, late]}
    answers = [{"role": "tool", "tool_call_id": each, "content": f"<{each}>"} for each in "cd"]

    def fill(store: Store) -> None:
        store.scope("s").save(chat(said(0), asked, answers[0]))
        store.scope("s").save(chat(said(0), asked, *answers, said(5)), id="last")

    seen = shown(fill, id="last")
    turns = re.findall(r'<article class="turn (\w+)" id="(\w+)">(.*?)</article>', seen.html, re.S)
    assert [(role, id) for role, id, _ in turns] == [
        ("user", "m0"),
        ("assistant", "m1"),
        ("assistant", "m4"),
    ]
    assert [re.findall(r'class="new">(.*?)<', inner) for *_, inner in turns] == [
        [],
        ["new result"],
        ["new"],
    ]
    assert re.findall(r'class="anchor" id="(\w+)"', turns[1][2]) == ["m2", "m3"]
    assert "<d>" in seen.text


def test_what_is_no_chat_is_a_tree() -> None:
    states: list[Any] = [None, [], {}, "text", 7, {"messages": "x"}, {"": {"": ""}}]
    for state in states:
        seen = shown(saved(state))
        assert seen.status == 200, state
        assert re.search(r'aria-current="page">State', seen.html), state


def test_a_long_chat_is_shown_in_parts() -> None:
    def fill(store: Store) -> None:
        store.scope("s").save(chat(*(said(n, f"**{n}** `x`\n\n- a") for n in range(5_000))))

    last, middle, end = shown_all(fill, {}, {"turns": 12}, {"turns": 10**9})
    ids = [value for value in last.values("id") if re.fullmatch(r"m\d+", value)]
    assert ids == [f"m{n}" for n in range(4_800, 5_000)]
    assert len(last.html) < 100 * KIB
    assert last.links("Earlier messages")[0]["turns"] == "4799"
    assert 'id="m12"' in middle.html
    assert 'id="m0"' in middle.html
    assert "Earlier messages" not in middle.html
    assert middle.links("Later messages")[0]["turns"] == "113"
    assert end.links("Earlier messages")


def test_a_huge_message_is_cut() -> None:
    for message in [
        said(0, "x" * 5_000_000),
        {"role": "user", "content": [{"type": "text", "text": "y" * 2_000}] * 3_000},
        {"role": "user", "content": [{"type": "strange", "data": ["z"] * 20_000}] * 3},
        {"role": "user", "content": [block(IMAGES["image/png"] + bytes(9_000))] * 500},
    ]:
        seen = shown(saved(chat(*[message] * 3, said(1, "the end"))))
        assert len(seen.html) < 4_000 * KIB, str(message)[:40]
        assert "the end" in seen.text, str(message)[:40]
        assert "more" in seen.text, str(message)[:40]


def test_long_names_are_cut() -> None:
    long = "n" * 300_000
    call = {"type": "tool_use", "id": "c", "name": long, "input": {long: {long: 1}}}
    image = {"type": "image", "source": {"type": "url", "url": f"http://{long}"}}
    message = {"role": long, "name": long, "content": [call, image]}

    def fill(store: Store) -> None:
        store.scope("s").save({"messages": [said(0)], long: {long: 1}}, id="a")
        store.scope("s").save({"messages": [message] * 3, long: {long: 2}}, id="b")

    for seen in shown_all(fill, *({"id": "b", "view": view} for view in VIEWS)):
        assert seen.status == 200
        assert len(seen.html) < 700 * KIB


# As a tree


TREE = {
    "messages": [said(n) for n in range(250)],
    "a/b~c": {"": [True, None, 1.5], "text": "long\n" * 300},
    "huge": "h" * 120_000,
    "many": {f"k{n}": n for n in range(20_000)},
}


def tree(page: str = "/ui/tree", **params: object) -> Shown:
    return shown(lambda store: store.scope("s").save(TREE, id="i"), page, id="i", **params)


def test_the_tree_opens_level_by_level() -> None:
    seen = tree("/ui/snapshot", view="state")
    parts = [dict(parse_qsl(urlsplit(each).query)) for each in seen.values("data-part")]
    assert [each["path"] for each in parts] == ["/messages", "/a~1b~0c", "/huge", "/many"]
    assert "list, 250 items" in seen.text
    assert len(seen.html) < 20 * KIB
    ranges = [
        dict(parse_qsl(urlsplit(e).query)) for e in tree(path="/messages").values("data-part")
    ]
    assert [(each["start"], each["stop"]) for each in ranges] == [
        ("0", "100"),
        ("100", "200"),
        ("200", "250"),
    ]
    last = tree(path="/messages", start=200, stop=250)
    assert len(last.values("data-part")) == 50
    assert "user: message 248" in last.text
    assert {"/messages/249", "messages.249"} <= {*last.values("data-copy")}
    strange = tree(path="/a~1b~0c")
    assert '""' in strange.text
    assert "long" in strange.text
    assert "/a~1b~0c/" in strange.values("data-copy")
    assert "true" in tree(path="/a~1b~0c/").text
    assert len(tree(path="/many").values("data-part")) == 2  # up to 9,999, and the rest


def test_a_long_text_comes_in_parts_and_a_path_has_a_way_back() -> None:
    seen = tree("/ui/snapshot", view="state", path="/huge")
    assert "text, 120,000 characters" in seen.text
    assert seen.links("More of this text")[0]["start"] == "50000"
    assert "More" not in tree(path="/huge", start=100_000).text
    deep = tree("/ui/snapshot", view="state", path="/messages/3/content")
    assert "message 3" in deep.text
    assert deep.links("messages")[0]["path"] == "/messages"
    assert "limpet show --path /messages/3/content s:main@i" in deep.text


def test_there_is_no_such_value() -> None:
    for path in ["/none", "/messages/250", "/messages/-1", "/huge/0", "/many/x/y"]:
        assert tree(path=path).status == 404, path
        assert "no value at this path" in tree("/ui/snapshot", view="state", path=path).text, path


def test_what_is_stored_with_a_state_is_shown_with_it() -> None:
    def fill(store: Store) -> None:
        scope = store.scope("s")
        scope.save(1, id="i", metadata={"model": "<m>"})
        scope.set_note("rating", {"stars": 5}, on="i")

    seen = shown(fill, view="state")
    assert '"model": "<m>"' in seen.text
    assert "rating" in seen.text
    assert '"stars": 5' in seen.text


# As what changed


def two(store: Store) -> None:
    scope = store.scope("s")
    scope.save({"messages": [said(0)], "n": 1, "text": "one\ntwo words\nthree"}, id="one")
    after = {"messages": [said(0), said(1, "<hello>")], "n": 2, "text": "one\ntwo things\nthree"}
    scope.save({**after, "new": {"deep": [1]}}, id="two")
    store.scope("s", "other").save({"messages": [], "n": 7}, id="o")
    store.scope("t").save({"n": 8}, id="o")
    scope.fork("one", scope_id="fork")


def test_what_changed_since_the_one_before() -> None:
    seen = shown(two, id="two", view="changes")
    assert "Compared with the snapshot before, one" in seen.text
    assert "+ 2 added ~ 2 changed" in seen.text
    assert "1 new message" in seen.text
    assert "<hello>" in seen.text
    assert "<del>1</del> <b>→</b> <ins>2</ins>" in seen.html
    assert "two <del>words</del>" in seen.html
    assert "two <ins>things</ins>" in seen.html
    assert "<ins>{&quot;deep&quot;: [1]}</ins>" in seen.html
    assert "limpet diff s:main@two --url memory:" in seen.text
    assert len(seen.links("Head of")) == 2


def test_the_first_says_so() -> None:
    seen = shown(two, id="one", view="changes")
    assert "This is the first snapshot" in seen.text
    assert "Compare with another" in seen.text


def test_any_other_can_be_compared() -> None:
    for base, text in [
        ({"base_scope_id": "other", "base_id": "o"}, "other · o"),
        ({"base_scope_id": "other"}, "other · o"),
        ({"base_session_id": "t"}, "t · main · o"),
        ({"base_id": "one"}, "Compared with one"),
        ({"base": "@~1"}, "Compared with one"),
        ({"base": " o "}, "other · o"),
        ({"base": "t@"}, "t · main · o"),
        ({"base": "s:other@"}, "other · o"),
    ]:
        seen = shown(two, id="two", view="changes", **base)
        assert text in seen.text, (base, text)
        assert "limpet diff " in seen.text, (base, text)
        assert "changed" in seen.text, (base, text)


def test_one_that_is_not_there_is_a_message() -> None:
    for base in [{"base": "nothing"}, {"base_id": "nothing"}, {"base": "@~9"}]:
        seen = shown(two, id="two", view="changes", **base)
        assert seen.status == 200, base
        assert "This cannot be shown." in seen.text, base
        assert "Compare with another" in seen.text, base


def test_a_result_is_shown_with_its_call() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}
    answer = {"role": "tool", "tool_call_id": "c", "content": "found"}

    def fill(store: Store) -> None:
        store.scope("s").save(chat(said(0)), id="a")
        store.scope("s").save(chat(said(0), asked), id="b")
        store.scope("s").save(chat(said(0), asked, answer), id="c")
        store.scope("s").save(chat(asked), id="d")

    assert shown(fill, id="c", view="changes", base_id="a").html.count("<article") == 1
    late = shown(fill, id="c", view="changes")
    assert "result of find" in late.text
    fewer = shown(fill, id="d", view="changes")
    assert "2 removed messages" in fewer.text
    assert "message 0" in fewer.text


def test_moved_keys_and_whole_states() -> None:
    def fill(store: Store) -> None:
        store.scope("s").save({"a": [1, 2, 3, 4], "b": 1}, id="a")
        store.scope("s").save({"b": 1, "a": [4, 1, 2, 3]}, id="b")
        store.scope("s").save("text", id="c")

    moved = shown(fill, id="b", view="changes")
    assert "came from a.3" in moved.text
    assert "> " in moved.text
    assert "The state" in shown(fill, id="c", view="changes").text


def test_many_changes_are_counted_and_some_are_shown() -> None:
    def fill(store: Store) -> None:
        for n in range(2):
            wide = {f"{k}": {"v": k + n} for k in range(20_000)}
            keys = {f"key-{k}": k + n for k in range(200)}
            store.scope("s").save({"wide": wide, **keys}, id=f"{n}")

    seen = shown(fill, id="1", view="changes")
    assert "~ 20,200 changed" in seen.text
    assert "… 19,900 more changes not shown." in seen.text
    assert "… 151 more top-level keys changed." in seen.text
    assert len(seen.html) < 150 * KIB


# Strangers and damage


def hostile(text: str) -> Fill:
    """Return what fills a store with a text in every place."""
    name = stored(text)
    messages = hostile_messages(text.replace("\ud800", ""))
    values = {name: {name: [name, {name: name}]}}

    def fill(store: Store) -> None:
        scope, labels = store.scope("s", name), {name[:64]: name}
        state: Any = {"messages": messages, **values}
        scope.save({"messages": messages[:1], name: 1}, id="first")
        scope.save(state, id=name, status=name, labels=labels, metadata={name: name})
        scope.set_note(name, {name: name}, on=name)
        store.scope("s").save({"messages": [], name: name}, id="other")

    return fill


def test_nothing_breaks_out() -> None:
    allowed = {
        *("section", "header", "h2", "h3", "div", "dl", "dt", "dd", "time", "nav", "button", "b"),
        *("article", "details", "summary", "svg", "rect", "form", "input", "label", "small"),
        *("ins", "del", *TAGS),
    }
    for text in HOSTILE:
        name = stored(text)
        places = [
            {"view": "chat"},
            {"view": "state"},
            {"view": "changes"},
            {"view": "changes", "base_scope_id": "main"},
            {"view": "changes", "base": name},
        ]
        params = [{"scope_id": name, "id": name, **each} for each in places]
        for seen in shown_all(hostile(text), *params):
            assert seen.status == 200, text
            assert {*seen.tags} <= allowed, text
            assert not UNSEEN & {*seen.exact, *"".join(seen.values("data-copy"))}, text
            names = {each for each, _ in seen.attributes}
            assert not [each for each in names if each.startswith("on") or each == "style"], text
            outside = {each for each in seen.values("href") if not each.startswith(("/ui/", "#m"))}
            assert outside <= {"http://example.com"}, text


def bound(path: str = "/ui/snapshot", **params: object) -> tuple[int, str]:
    """Ask with a token that is bound to the sessions that begin with `s`."""

    def fill(store: Store) -> None:
        two(store)
        store.scope("t").save({"n": 9}, id="origin-1")
        store.scope("t").save({"n": 10}, id="origin-2")
        store.scope("t").fork("origin-1", to="s2", scope_id="main")

    (seen,) = shown_all(fill, params, page=path, rights="read s")
    return seen.status, seen.html


def test_a_bound_token_sees_and_compares_only_its_own() -> None:
    assert bound(id="two")[0] == 200
    assert bound("/ui/tree", session_id="t", id="o")[0] == 403
    assert bound(session_id="t")[0] == 403
    assert bound(id="two", view="changes", base_session_id="t")[0] == 403
    assert bound(id="two", view="changes", base_session_id="s2")[0] == 200
    for name in ("t@", "t:main@", "t@origin", "t@origin-1", "origin-1", "origin"):
        status, html = bound(id="two", view="changes", base=name)
        assert status == 200
        assert "There is no such snapshot" in html or "there is no such snapshot" in html
        assert "origin-2" not in html
    for view in VIEWS:
        status, html = bound(session_id="s2", view=view)
        assert status == 200
        assert "origin" not in html
        assert "session_id=t&" not in html


def test_a_damaged_state_is_a_message(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    with limpet.open(url) as store:
        store.scope("s").save(chat(said(0)), id="good")
        store.scope("s").save(chat(said(0, "x" * 5_000), said(1)), id="bad")
    with closing(sqlite3.connect(tmp_path / "x.db")) as file, file:
        file.execute("UPDATE tails SET body = x'00' WHERE seq = (SELECT max(seq) FROM tails)")

    bad: list[dict[str, Any]] = [{"id": "bad", "view": view} for view in VIEWS]
    with limpet.open(url) as store:
        for seen in shown_all(store, *bad):
            assert seen.status == 200
            assert "This cannot be shown." in seen.text
            assert "limpet show s:main@bad" in seen.text
        (seen,) = shown_all(store, {"id": "good", "view": "changes", "base_id": "bad"})
        assert "cannot be shown" in seen.text
        (seen,) = shown_all(store, {"id": "bad", "path": "/messages"}, page="/ui/tree")
        assert (seen.status, "cannot be shown" in seen.text) == (200, True)


def test_one_that_was_deleted_just_now_is_a_message() -> None:
    with limpet.open("memory:") as store:
        scope = store.scope("s")
        first, second = scope.save({"n": 1}), scope.save({"n": 2})
        scope.delete_snapshot(first.id)
        for view in VIEWS:
            gone = read_detail(store, first, {"view": view}, Grant())["detail"]
            assert gone.problem == "there is no such snapshot: it may have been deleted"
        detail = read_detail(store, second, {"view": "changes"}, Grant())["detail"]
        assert "was deleted" in detail.problem


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
                got(store, "/ui/snapshot", {**place, "base": f"@~{back}"}, rights="write a-")
                for back in (1, 2, 7)
            ]
        said = [re.findall(r"cannot be shown.*", each.body.decode())[0] for each in steps]
        assert len({re.sub(r"~\d", "", each) for each in said}) == 1, is_deleted
        assert "outside-" not in said[0], is_deleted


def test_a_beginning_of_several_ids_of_another_scope_names_them() -> None:
    with limpet.open("memory:") as store:
        main = store.scope("s")
        for name in ("abc-1", "abc-2"):
            main.save({"name": name}, id=name)
        main.fork("abc-2", scope_id="other")
        query = {"session_id": "s", "scope_id": "other", "view": "changes", "base": "abc"}
        text = got(store, "/ui/snapshot", query).body.decode()
    assert "several snapshots match" in text
    assert "<code>s:main@abc-1</code>" in text


def test_floods_of_markup_are_text_after_a_while() -> None:
    """A page has a budget for Markdown, however many messages are long."""
    said = [{"role": "user", "content": "[*a" * 1_500} for _ in range(100)]
    page = shown(saved({"messages": said})).html
    assert page.count('class="prose"') < 20
    assert page.count('class="text"') > 50
