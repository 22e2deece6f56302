"""Sessions to make documents of, and texts that try to break out of them."""

import base64
from html.parser import HTMLParser
from typing import Any

import limpet
from limpet import Store
from limpet.model import ScopeInfo
from limpet.views.document import ScopePage

HOSTILE = [
    "<script>alert(1)</script>",
    "</details></article></pre></code><img src=x onerror=alert(1)>",
    "\"'><svg/onload=alert(1)>",
    "`<script>alert(1)</script>",
    "\\`<script>alert(1)</script>`",
    "`` ` `` <b>x</b> ```",
    "| a | b |\n|---|---|\n| `x | <script>alert(1)</script>` |",
    "| a | b |\n|---|---|\n| `x | ![y](http://example.com/z)` |",
    "```html\n<b>in a fence</b>\n````\n```\n<script>after</script>",
    "~~~\n<b>never closed</b>",
    "- ~~~\n  <b>in a list</b>",
    "> ```\n> <script>in a quote</script>",
    "    ```\n<script>dedented</script>\n    ```",
    "# heading\n## another\n===\ntext\n---\n> # quoted\n- # listed",
    "[link](javascript:alert(1)) ![image](http://example.com/beacon.png) <http://example.com>",
    "[x]: http://example.com\n[x]",
    "&lt;script&gt; &amp; &#x3c;b&#x3e;",
    "<!-- comment --> <?php ?> <![CDATA[x]]> </style></title>",
    "a\u2028b\u2029c\u202ed\x00e\x1b[2Jf\x7fg\x85h\ufeffi\ud800j",
    "line\r\nline\rline\ttab\u00a0space 👩\u200d💻",
    "javascript:alert(1)",
    "$`x`$ **bold _half",
]
UNSEEN = set(map(chr, [*range(9), *range(11, 32), *range(127, 160), 0x2028, 0x2029, 0x202E]))


def hostile_messages(text: str) -> list[dict[str, Any]]:
    """Return messages with a text in every place that a message has."""
    call = {"type": "tool_use", "id": "c", "name": text, "input": {text: [text]}}
    image = {"type": "image", "source": {"type": "url", "url": text, "media_type": text}}
    result = {
        "type": "tool_result",
        "tool_use_id": "c",
        "content": [{"type": "text", "text": text}, image, {"type": "strange", text: text}],
    }
    orphan = {"type": "tool_result", "tool_use_id": text, "content": text, "is_error": True}
    thought = {"type": "thinking", "thinking": text}
    return [
        {"role": "system", "content": text},
        {"role": "user", "name": text, "content": [{"type": "text", "text": text}, image]},
        {"role": "assistant", "content": [thought, {"type": "text", "text": text}, call]},
        {"role": "user", "content": [result, orphan]},
        {"role": text, "content": text},
    ]


def stored(text: str) -> str:
    """Return a text without what no store takes."""
    return text.replace("\0", "").replace("\ud800", "")


def open_session(store: Store, name: str) -> tuple[list[ScopeInfo], list[ScopePage]]:
    """Return what a document needs of a session, in the order of its scopes."""
    contents = [*store.scopes(name)]
    pages = []
    for info in contents:
        scope = store.scope(*info.key)
        history = [*scope.history()]
        notes = [*scope.notes(), *scope.notes(on=[each.id for each in history])]
        pages.append(ScopePage(info.key, scope.load(), history, notes))
    return contents, pages


def hostile_session(text: str) -> tuple[str, list[ScopeInfo], list[ScopePage]]:
    """Return a session in which a text is the name and the value of everything."""
    name = stored(text)
    with limpet.open("memory:") as store:
        scope = store.scope(name, name)
        messages = hostile_messages(text.replace("\ud800", ""))
        first = scope.save(
            {"messages": messages, name: {name: name}}, labels={name[:64]: name}, status=name
        )
        scope.save({"messages": messages, name: [name]}, id=name, parent=first.id)
        scope.set_note(name, {name: name})
        scope.fork(first.id, scope_id=name + "2")
        return name, *open_session(store, name)


PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
IMAGES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0" + bytes(99),
    "image/gif": b"GIF89a" + bytes(98),
    "image/webp": b"RIFF\x10\0\0\0WEBPVP8 " + bytes(97),
}


def block(data: bytes, kind: str = "image/png") -> dict[str, Any]:
    source = {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}
    return {"type": "image", "source": source}


def chat(*messages: Any) -> dict[str, Any]:
    return {"messages": [*messages]}


_EMPTY = {"meta", "img", "br", "hr", "col", "link", "input"}


class Seen(HTMLParser):
    """Checks that a page or a part of one is well formed, and remembers what it is made of."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _EMPTY:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        assert decl == "doctype html", decl
        assert self.tags == [], decl

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)

    def values(self, name: str) -> list[str]:
        return [value for each, value in self.attributes if each == name]
