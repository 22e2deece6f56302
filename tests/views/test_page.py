"""A session as a page: what is in it, that it needs nothing else, and that nothing breaks out."""

import base64
import hashlib
import re
from typing import Any

import pytest

import limpet
from limpet.core.limits import KIB
from limpet.views.page import page, prose
from limpet.views.page.chat import image_uri
from limpet.views.page.page import session_page
from tests.views.document_kit import (
    HOSTILE,
    IMAGES,
    PNG,
    UNSEEN,
    Seen,
    block,
    chat,
    hostile_session,
    open_session,
)

TAGS = {
    "path",
    *("html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section"),
    *("article", "h1", "h2", "h3", "h4", "p", "ul", "li", "dl", "dt", "dd", "div", "a"),
    *("span", "b", "strong", "small", "time", "code", "pre", "details", "summary", "figure"),
    *("figcaption", "img", "table", "colgroup", "col", "thead", "tbody", "tr", "th", "td", "br"),
    *("svg", "g", "line", "circle"),
    *prose.TAGS,
}
ATTRIBUTES = {
    *("y", "d", "fill", "overflow", "transform"),
    *("stroke-width", "stroke-dasharray", "stroke-linecap"),
    *("lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "src", "alt"),
    *("dir", "datetime", "title", "width", "height", "aria-hidden", "aria-label"),
    *("x1", "y1", "x2", "y2", "cx", "cy", "r"),
    *("rel", "target", "start", "data-language"),
}


def page_of(state: Any, **options: Any) -> str:
    with limpet.open("memory:") as store:
        store.scope("s").save(state)
        contents, pages = open_session(store, "s")
    return "".join(session_page("s", pages, contents=contents, **options))


def test_nothing_breaks_out() -> None:
    for text in HOSTILE:
        name, contents, pages = hostile_session(text)
        whole = "".join(session_page(name, pages, contents=contents, images=True))
        whole.encode()
        assert not UNSEEN & {*whole}, text
        seen = Seen(whole)
        assert {*seen.tags} <= TAGS, text
        assert {name for name, _ in seen.attributes} <= ATTRIBUTES, text
        assert "img" not in seen.tags, text
        assert seen.tags.count("style") == 1, text
        assert seen.tags.count("section") == 2 + 1, text  # the last is the history
        assert seen.tags.count("article") == 2 * 5, text
        inside = {value for value in seen.values("href") if value != "http://example.com"}
        assert all(re.match("#scope-|#history", value) for value in inside), text
        targets = seen.values("id")
        assert len({*targets}) == len(targets), text
        assert {value[1:] for value in inside} <= {*targets}, text
        for word in re.findall(r"\w+", text):
            assert word in seen.text or word in seen.values("data-language"), text


def test_it_needs_nothing_else_and_says_so() -> None:
    whole = page_of(chat({"role": "user", "content": "see http://example.com/x.png"}))
    style = re.search(r"<style>(.*?)</style>", whole, re.S)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    (policy,) = [each for each in Seen(whole).values("content") if "default-src" in each]
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    assert not re.search(r"<script|<link|<iframe|\sstyle=|\son\w+=", whole)
    assert Seen(whole).values("href") == Seen(whole).values("src") == []
    assert whole.index("http-equiv") < whole.index("<title>")


def test_a_conversation_reads_well() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}
    lost = {"id": "d", "type": "function", "function": {"name": "wait", "arguments": "{}"}}
    whole = page_of(
        {
            "messages": [
                {"role": "system", "content": "Be kind."},
                {
                    "role": "user",
                    "content": "## Title\nsay `a<b` and **c**\n```py\nx < 1\n```\nend",
                },
                {"role": "assistant", "content": "", "tool_calls": [call, lost]},
                {"role": "tool", "tool_call_id": "c", "content": "\n".join(["out"] * 100)},
                {"role": "user", "content": "x" * 10_000},
            ],
            "mood": {"calm": True},
        }
    )
    seen = Seen(whole)
    assert [each for each in seen.values("class") if each.startswith("turn")] == [
        "turn system",
        "turn user",
        "turn assistant",
        "turn user",
    ]
    assert '<p class="heading" dir="auto">Title</p>' in whole
    assert "say <code>a&lt;b</code> and <strong>c</strong>" in whole
    assert '<pre data-language="py"><code>x &lt; 1</code></pre>' in whole
    assert '<span class="brief">(q=1)</span>' in whole
    assert '<span class="mark">no result</span>' in whole
    assert "<b>100 lines</b>" in whole
    assert "<b>10,000 characters</b>" in whole
    assert (
        "<h4><code>mood</code></h4><pre><code>{\n  &quot;calm&quot;: true\n}</code></pre>" in whole
    )
    assert "<nav" not in whole  # there is one scope


def test_several_scopes_have_contents_and_history_has_lines() -> None:
    with limpet.open("memory:") as store:
        scope = store.scope("s", "main")
        first = scope.save({"n": 1})
        second = scope.save({"n": 2}, status="failed", labels={"run_id": "7"})
        scope.save({"n": 3}, parent=first.id, head=False)
        gone = scope.save({"n": 4}, parent="gone", head=False)
        fork = scope.fork(first.id)
        fork.save({"n": 5}, keep=False)
        store.scope("s", "noted", "run").set_note("only", {"x": 1})
        contents, pages = open_session(store, "s")
    seen = Seen(whole := "".join(session_page("s", pages, contents=contents)))
    assert seen.tags.count("nav") == 1
    assert "noted (run)" in seen.text
    assert "no head" in seen.text
    assert "run_id=7" in seen.text
    assert "follows s:main@gone" in seen.text
    assert seen.tags.count("tr") == 1 + 4 + 2
    assert seen.tags.count("circle") == 6 + 2  # two are the rings of heads
    assert "forked from" not in seen.text.partition("Sizes are those")[2]  # a line leads there
    assert f'<code class="id">{gone.id}</code>' in whole
    heads = re.findall(r'<tr class="head">.*?</tr>', whole, re.S)
    assert [fork.scope_id in head for head in heads] == [True, False]
    assert second.id in heads[1]
    assert 'class="status bad"' in heads[1]


def test_a_title_stands_above_the_session() -> None:
    with limpet.open("memory:") as store:
        store.scope("s").save({"messages": [{"role": "user", "content": "hello"}]}, status="")
        contents, pages = open_session(store, "s")
    whole = "".join(session_page("s", pages, contents=contents, title="Trip <to> Lisbon"))
    assert "<title>Trip &lt;to&gt; Lisbon</title>" in whole
    assert "<h1>Trip &lt;to&gt; Lisbon</h1>" in whole
    assert "Session <code>s</code>" in whole
    assert '<dt>status</dt><dd><span class="quiet">\N{EN DASH}</span></dd>' in whole
    assert "<dt>state, as JSON</dt>" in whole


def test_only_the_newest_thousand_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_SNAPSHOTS_MAX", 3)
    with limpet.open("memory:") as store:
        for n in range(5):
            store.scope("s", f"{n % 2}").save(n, id=f"i{n}")
        contents, pages = open_session(store, "s")
    whole = "".join(session_page("s", pages, contents=contents))
    assert sorted(re.findall(r'<code class="id">(\w+)</code>', whole)) == ["i2", "i3", "i4"]
    assert "3 snapshots, and 2 older ones that are not shown." in whole


# Images


def test_images_are_drawn_if_asked_for() -> None:
    for kind in IMAGES:
        data = IMAGES[kind]
        state = chat({"role": "user", "content": [block(data, "image/png"), block(data)]})
        named = Seen(page_of(state))
        assert "img" not in named.tags, kind
        assert f"image (image/png, {len(data)} B)" in named.text, kind
        drawn = Seen(whole := page_of(state, images=True))
        uri = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        assert drawn.values("src") == [uri, uri], kind
        assert "form-action &#x27;none&#x27;; img-src data:" in whole, kind


def test_other_bytes_are_only_named() -> None:
    for data in [
        b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        b"<html><script>alert(1)</script>",
        PNG[:4] + b"x",
        PNG + bytes(256 * KIB),
    ]:
        state = chat({"role": "user", "content": [block(data)]})
        whole = page_of(state, images=True)
        assert "<img" not in whole, data
        assert "data:image" not in whole, data


def test_images_that_cannot_be_told_apart_are_named() -> None:
    other = PNG[:-1] + b"x"
    state = chat({"role": "user", "content": [block(PNG), block(other), block(PNG + b"y")]})
    assert page_of(state, images=True).count("<img") == 1


def test_an_image_is_what_its_bytes_say() -> None:
    text = base64.b64encode(PNG).decode()
    assert image_uri(f"data:image/svg+xml;base64,{text}") == f"data:image/png;base64,{text}"
    assert image_uri(f'data:image/png;base64,{text}"><script>') is None
    assert image_uri("iVBORw0KGgo!") is None
    assert image_uri("/9j/") == "data:image/jpeg;base64,/9j/"
    largest = PNG + bytes(256 * KIB - len(PNG) - 1)
    assert image_uri(base64.b64encode(largest).decode()) is not None
    assert image_uri(base64.b64encode(largest + b"\0").decode()) is None
