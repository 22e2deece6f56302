"""Markdown of strangers as HTML: nothing runs, nothing loads, nothing is hidden."""

import re
import runpy
import sys
from time import process_time
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import limpet
from limpet.views.page import prose
from limpet.views.page.prose import TAGS, prose_html
from tests.inspector.browser.injections import (
    BREAKS,
    HANDLERS,
    LINKS,
    LOADS,
    SCRIPTS,
    TEMPLATES,
)
from tests.views.document_kit import HOSTILE as BREAKING_OUT
from tests.views.document_kit import UNSEEN, Seen

BLOCKS = {"p", "li", "blockquote", "th", "td"}
HOSTILE = [
    *(*SCRIPTS, *HANDLERS, *BREAKS, *LOADS, *LINKS, *TEMPLATES, *BREAKING_OUT),
    "<form action=javascript:alert(1)><button>go</button></form>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<![CDATA[<script>alert(1)</script>]]>",
    "[x](&#x6A;&#x61;vascript&colon;alert(1))",
    "[x](java&Tab;script:alert(1))",
    "[x](javascript\\:alert(1))",
    "[x](file:///etc/passwd)",
    "[x](//e.example)",
    "[x](/ui/fork?session_id=a)",
    "[x](#main)",
    "[x](http:javascript:alert(1))",
    "[x](https://)",
    "[x](http://[::1)",
    '[x](http://e.example/"onmouseover="alert(1))',
    "[x](http://e.example/'><script>alert(1)</script>)",
    "[![x](javascript:alert(1))](javascript:alert(2))",
    "![<img src=x>](http://e.example/'onerror=alert(1))",
    "```js onload=alert(1)\n</code></pre><script>alert(1)</script>\n```",
    "|<script>|x|\n|-|-|\n|`|<img onerror=alert(1) src=x>`|y|",
    '|a|\n|:-"onclick=alert(1)|\n|x|',
    "1) # <b onclick=alert(1)>\n   - ```\n     </pre>",
]


class SeenProse(Seen):
    """Checks that each tag and attribute is on the list, and remembers the links."""

    def __init__(self, html: str) -> None:
        self.links: list[str] = []
        super().__init__(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if not self.open:
            assert (tag, given.get("class")) in (("div", "prose"), ("div", "text"))
        else:
            assert tag in TAGS
        self._check(tag, given)
        super().handle_starttag(tag, attrs)

    def _check(self, tag: str, given: dict[str, str]) -> None:
        allowed = {"dir"} if tag in BLOCKS | {"div"} else set()
        allowed |= {
            "a": {"href", "rel", "target"},
            "ol": {"start"},
            "pre": {"data-language"},
            "p": {"class"},
            "span": {"class"},
            "div": {"class"},
        }.get(tag, set())
        assert given.keys() <= allowed
        assert given.get("class", "prose") in ("prose", "text", "heading", "media", "host")
        assert given.get("dir", "auto") == "auto"
        if tag == "a":
            assert given["rel"] == "noopener noreferrer nofollow"
            assert given["target"] == "_blank"
            assert urlsplit(given["href"]).scheme in ("http", "https", "mailto")
            self.links.append(given["href"])


def test_nothing_runs_or_loads() -> None:
    for text in HOSTILE:
        html = prose_html(text)
        seen = SeenProse(html)
        assert not UNSEEN & {*html}, text
        hosts = {urlsplit(each).hostname for each in seen.links}
        assert hosts <= {"e.example", "example.com", "evil.invalid"}, text
        # Inside other Markdown it is just as tame.
        for around in (
            "> {}",
            "- {}",
            "**{}**",
            "# {}",
            "[{}](http://e.example)",
            "|a|\n|-|\n|{}|",
        ):
            SeenProse(prose_html(around.format(text)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(HOSTILE),
            st.sampled_from([*"[]()<>!`*_~|\\\"'&:/#-+=\n\t ", "\n\n", "    ", "http://e.example"]),
            st.text(max_size=8),
        ),
        max_size=30,
    ).map("".join)
)
def test_whatever_it_is_it_stays_on_the_list(text: str) -> None:
    html = prose_html(text)
    SeenProse(html)
    assert not UNSEEN & {*html}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.from_regex(r"\A[a-z]{1,9}\Z"), st.sampled_from([*"[]()!`*_~|>#-+=\n ", "\n\n"])
        ),
        max_size=40,
    ).map("".join)
)
def test_no_word_is_hidden(text: str) -> None:
    html = prose_html(text)
    shown = SeenProse(html).text + "".join(re.findall(r'data-language="(.*?)"', html))
    assert sorted(re.sub("[^a-z]", "", text)) == sorted(re.sub("[^a-z]", "", shown))


def test_markdown_looks_like_markdown() -> None:
    html = prose_html(
        "# One\n\n**b** *i* ~~s~~ `c<d`\nnext\n\n- a\n- b\n\n3. x\n\n"
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n> q\n\n```py\nx<1\n```\n\n---\n\n<http://e.example>"
    )
    for part in (
        '<p class="heading" dir="auto">One</p>',
        "<strong>b</strong> <em>i</em> <s>s</s> <code>c&lt;d</code><br>\nnext</p>",
        '<ul>\n<li dir="auto">a</li>\n<li dir="auto">b</li>\n</ul>',
        '<ol start="3">',
        '<th dir="auto">b</th>',
        '<blockquote dir="auto">',
        '<pre data-language="py"><code>x&lt;1</code></pre>',
        "<hr>",
        '<a href="http://e.example" target="_blank" rel="noopener noreferrer nofollow">',
    ):
        assert part in html


def test_what_is_no_markup_is_text() -> None:
    for text, shown in [
        ("![a cat](http://e.example/cat.png)", "a cat · http://e.example/cat.png"),
        ("![a cat](./cat.png)", "![a cat](./cat.png)"),
        ("<b>raw</b>", "<b>raw</b>"),
        ("&lt;b&gt; &#8238;", "&lt;b&gt; &#8238;"),
        ("a\u202eb\u200bc\u2066d", "a\\u202eb\\u200bc\\u2066d"),
        ("[x]: http://e.example\n[x]", "[x]: http://e.example\n[x]"),
        ("|a|\n|-|\n|x|hidden|", "|a|\n|-|\n|x|hidden|"),
        ("> " * 40 + "deep", "> " * 40 + "deep"),
        ("[a](http://e.example 'title')", "a (title)"),
        ("```" + "long " * 20 + "\nx\n```", "long " * 19 + "long\nx"),
    ]:
        assert SeenProse(prose_html(text)).text.strip() == shown, (text, shown)


def test_a_link_says_where_it_leads_if_its_text_says_otherwise() -> None:
    for text, host in [
        ("[https://bank.example](https://evil.example)", "evil.example"),
        ("[bank.example](https://bank.example.evil.example/login)", "bank.example.evil.example"),
        ("[**bank**.example](https://evil.example)", "evil.example"),
        ("[`bank.example`](https://bank.example@evil.example)", "evil.example"),
        ("[bank\u200d.example](https://evil.example)", "evil.example"),
        ("[\uff42\uff41\uff4e\uff4b\uff0eexample](https://evil.example)", "evil.example"),
        ("[\u0430pple.com](https://\u0430pple.com)", "xn--pple-43d.com"),
        ("<https://\u0430pple.com>", "xn--pple-43d.com"),
        ("[info@bank.example](mailto:me@evil.example)", "evil.example"),
        ("[bank.example](http://127.0.0.1:8080/)", "127.0.0.1"),
    ]:
        assert f'<span class="host">({host})</span>' in prose_html(text), (text, host)


def test_an_honest_link_is_left_alone() -> None:
    for text in [
        "[https://e.example/a](https://e.example/b)",
        "[www.e.example](https://e.example)",
        "[our site](https://e.example)",
        "[version 1.2.3](https://e.example)",
        "<me@e.example>",
    ]:
        html = prose_html(text)
        assert len(SeenProse(html).links) == 1, text
        assert "host" not in html, text


FLOODS = {
    "brackets": "[" * 5_000,
    "a megabyte of brackets": "[" * 1_000_000,
    "images": "![" * 2_500,
    "closed brackets": "[" * 2_500 + "]" * 2_500,
    "backticks": "`" * 100_000,
    "runs of backticks": "".join("`" * n + "x" for n in range(100)),
    "emphasis": "*a **b " * 800,
    "stars and lines": "*_" * 2_500,
    "quotes": "> " * 50_000,
    "lists": "\n".join(" " * n + "- x" for n in range(440)),
    "items": "- a\n" * 5_000,
    "headings": "# a\n" * 5_000,
    "a wide table": "|" + "a|" * 300 + "\n|" + "-|" * 300 + "\n" + "||\n" * 1_400,
    "a long table": "|a|b|\n|-|-|\n" + "|x|y|\n" * 800,
    "many tables": "|a|\n|-|\n" * 1_000,
    "broken tables": "|a|b|\n|-|-|\n|a|b|c|\n" * 500,
    "links": "[a](http://e.example) " * 2_400,
    "angles": "<" * 5_000,
    "lines": "a\n" * 5_000,
    "backslashes": "\\" * 5_000,
    "fences": "```\n" * 1_200,
    "entities": "&" * 100_000,
}


def test_floods_are_not_slow() -> None:
    for name in FLOODS:
        text = FLOODS[name]
        begun = process_time()
        html = prose_html(text)
        assert process_time() - begun < 5, name  # it takes a tenth of this
        assert len(html) < 500_000 + 2 * len(text), name
        SeenProse(html)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nh3", "markdown_it"):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, name, None)
            with pytest.raises(limpet.Unsupported, match=r"pip install 'limpet\[cli\]'"):
                runpy.run_path(str(prose.__file__))
