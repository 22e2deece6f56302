"""Downloads: what `limpet export` writes, under names and types that are safe."""

import json
import re
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import limpet
from limpet import portable
from limpet.cli._app import run
from tests.inspector import kit
from tests.server.asgi import Response

ODD = '../a"b\r\nset-cookie: x=1;\u202e<script>'
STATE = {"messages": [{"role": "user", "content": "<script>alert(1)</script>"}], "n": 2**70}


def got(store: limpet.Store, query: dict[str, Any], rights: str = "") -> Response:
    return kit.got(store, "/ui/export", query, rights=rights)


def test_the_same_as_the_command_line(tmp_path: Any, capsysbinary: Any) -> None:
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    with limpet.open(url) as store:
        scope = store.scope("s")
        first = scope.save(STATE)
        scope.save({**STATE, "more": ["x" * 1000] * 600})
        scope.set_note("title", "About <b>")
        scope.fork(first.id, scope_id="try")
        for form, name in (("html", "html"), ("md", "markdown"), ("jsonl", "jsonl")):
            assert run(["export", "s", "--format", name, "--url", url]) == 0
            expected = capsysbinary.readouterr().out
            answer = got(store, {"session_id": "s", "format": form})
            assert answer.status == 200
            assert answer.body == expected
        with limpet.open("memory:") as other:
            portable.import_lines(other, answer.body.splitlines(keepends=True))
            assert other.scope("s", "try").load().state == STATE  # type: ignore[union-attr]
        state = got(store, {"session_id": "s", "id": first.id, "format": "json"})
        assert json.loads(state.body) == STATE


def test_nothing_runs_in_our_origin() -> None:
    for form in ["html", "md", "jsonl", "json"]:
        store = limpet.open("memory:")
        store.scope(ODD).save(STATE)
        answer = got(store, {"session_id": ODD, "format": form})
        assert answer.status == 200, form
        name = answer.headers["content-disposition"]
        assert re.fullmatch(r'attachment; filename="[A-Za-z0-9_-][A-Za-z0-9._-]*"', name), name
        assert name.endswith(f'.{form}"'), form
        assert answer.headers["content-security-policy"] == "sandbox", form
        assert answer.headers["x-content-type-options"] == "nosniff", form
        assert "set-cookie" not in answer.headers, form
        assert ("html" in answer.headers["content-type"]) == (form == "html"), form


def test_names_of_files() -> None:
    for session_id in ["...", "\u202e", "a/b\\c", "x" * 512, "CON", ".htaccess"]:
        store = limpet.open("memory:")
        store.scope(session_id).save(1)
        name = got(store, {"session_id": session_id, "format": "md"}).headers["content-disposition"]
        assert re.fullmatch(r'attachment; filename="[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}"', name), name


def test_the_choice() -> None:
    store = limpet.open("memory:")
    store.scope(ODD).save(STATE)
    answer = got(store, {"session_id": ODD})
    assert answer.status == 200
    assert "content-disposition" not in answer.headers
    assert len(re.findall(r"format=(html|md|jsonl|json)&", answer.body.decode())) == 4
    for query in ({}, {"format": "html"}, {"format": "jsonl"}, {"format": "json"}):
        missing = got(store, {"session_id": "none", **query})
        assert missing.status == 404
        assert b"<h1>Not found</h1>" in missing.body
    assert got(store, {"session_id": ODD, "format": "exe"}).status == 400


def test_an_origin_outside_the_prefix_is_left_out() -> None:
    store = limpet.open("memory:")
    outside = store.scope("b/OUTSIDE").save(STATE)
    store.scope("b/OUTSIDE").fork(outside.id, to="a/1")
    for form in ("html", "md", "jsonl"):
        assert b"b/OUTSIDE" in got(store, {"session_id": "a/1", "format": form}).body
        answer = got(store, {"session_id": "a/1", "format": form}, "read a/")
        assert answer.status == 200
        assert b"OUTSIDE" not in answer.body
        assert got(store, {"session_id": "b/OUTSIDE", "format": form}, "read a/").status == 403


def test_every_link_leads_to_a_file_whatever_the_scopes_of_the_session() -> None:
    store = limpet.open("memory:")
    store.scope("t", "main", "thread").save({"n": 1})
    store.scope("t", "late", "graph").save({"n": 2})
    store.scope("memories", kind="items").set_note("food", "trout")
    for session_id, count in (("t", 4), ("memories", 3)):
        page = got(store, {"session_id": session_id}).body.decode()
        links = re.findall(r'class="choice" download href="/ui/export\?([^"]*)"', page)
        assert len(links) == count
        for link in links:
            query = dict(parse_qsl(unescape(link)))
            assert got(store, query).status == 200, query
