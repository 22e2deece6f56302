"""Markdown as HTML that is safe to show: what a model or a stranger wrote cannot leave its bubble.

There is one such function, for the exported page and for the inspector. A parser that knows no HTML
makes the tags, and a sanitizer drops all but a short list of them. Nothing is loaded from anywhere,
nothing of a text is hidden, and a link shows where it leads if its text names another place.
"""

import re
from collections.abc import MutableMapping, Sequence
from functools import cache
from html import escape
from typing import Any, Final
from unicodedata import normalize
from urllib.parse import urlsplit

from limpet.errors import Unsupported
from limpet.views.format import readable

try:
    import nh3
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_block.table import table as parse_table
    from markdown_it.token import Token
except ModuleNotFoundError:
    raise Unsupported("HTML pages need an extra: pip install 'limpet[cli]'") from None

_BLOCKS = ("p", "li", "blockquote", "th", "td")
TAGS: Final = frozenset(
    {*_BLOCKS, "br", "hr", "strong", "em", "s", "code", "pre", "ul", "ol", "a", "span"}
    | {"table", "thead", "tbody", "tr"}
)
"""All tags that a text can become."""

_CHARS_MAX = 100_000
_MARKS_MAX = 5_000  # each takes the parser up to 60 µs
_MARKS = re.compile(r"[\[\]!*_~`<|\\\n]")
_MARKUP = re.compile(r"[\[*_~`<|\\]|^[ \t]*(?:[#>+=-]|\d+[.)])|^(?: {4}|\t)", re.MULTILINE)
_LINE_END = "\n"
_LEVELS_MAX = 20
_MISSING_CELLS_MAX = 1_000
_INFO_CHARS_MAX = 40
_LINK = re.compile(r"(?:https?://|mailto:)[!-~]+", re.IGNORECASE)
_PIPE = re.compile(r"(?<!\\)\|")
_UNSEEN = re.compile("[\xad\u200c-\u200f\ufe0e\ufe0f]")
_HOST = re.compile(r"[\w-]+(?:[.\u3002][\w-]+)*[.\u3002][^\W\d_][\w-]+")


def prose_html(text: str) -> str:
    """Return a text as HTML: as Markdown, or as it is if that would take long.

    It is CommonMark with tables and strikethrough. HTML in it is text; so are images, references,
    and links other than to http, https and mailto.
    """
    text = readable(text)
    is_large = len(text) > _CHARS_MAX or marks_in(text) > _MARKS_MAX
    if is_large or _MARKUP.search(text) is None:
        return plain_html(text)
    parser = _parser()
    tokens = parser.parse(text)
    # Below that many levels the parser leaves out what there is.
    if any(token.level >= _LEVELS_MAX - 1 for token in tokens):
        return plain_html(text)
    made = parser.renderer.render(tokens, parser.options, {})
    return f'<div class="prose">{_sanitized(made)}</div>'


def plain_html(text: str) -> str:
    """Return a text as it is, with its line ends."""
    return f'<div class="text" dir="auto">{escape(readable(text).strip(_LINE_END))}</div>'


def marks_in(text: str) -> int:
    """Return how many characters of a text may be markup: they are what takes time."""
    return len(_MARKS.findall(text))


def _sanitized(html: str) -> str:
    return nh3.clean(
        html,
        tags=set(TAGS),
        attributes={"a": {"href"}, "ol": {"start"}, "pre": {"data-language"}},
        tag_attribute_values={
            "p": {"class": {"heading"}},
            "span": {"class": {"media", "host"}},
        },
        set_tag_attribute_values={
            "a": {"target": "_blank"},
            **{tag: {"dir": "auto"} for tag in _BLOCKS},
        },
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )


@cache
def _parser() -> MarkdownIt:
    options = {"html": False, "linkify": False, "typographer": False, "breaks": True}
    found = MarkdownIt("commonmark", options, renderer_cls=_Renderer)
    found.options["maxNesting"] = _LEVELS_MAX
    found.enable(["table", "strikethrough"])
    # A reference has no text of its own, and an entity could write what `readable` escapes.
    found.disable(["reference", "html_block", "html_inline", "entity"])
    found.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})
    found.validateLink = _is_safe  # type: ignore[method-assign]
    return found


def _table(state: StateBlock, first: int, end: int, silent: bool) -> bool:
    """Parse a table; as text if some of its cells would be left out, or many would be added."""
    if silent or not parse_table(state, first, end, True):
        return parse_table(state, first, end, silent)
    columns, missing = _cells(state, first + 1), 0
    for line in range(first, end):
        if state.isEmpty(line):
            break
        missing += max(0, columns - _cells(state, line))
        if _cells(state, line) > columns or missing > _MISSING_CELLS_MAX:
            return _lines_as_text(state, first, end)
    return parse_table(state, first, end, False)


def _lines_as_text(state: StateBlock, first: int, end: int) -> bool:
    last = next((line for line in range(first, end) if state.isEmpty(line)), end)
    state.push("paragraph_open", "p", 1)
    inline = state.push("inline", "", 0)
    inline.content = state.getLines(first, last, state.blkIndent, False).strip()
    inline.children = []
    state.push("paragraph_close", "p", -1)
    state.line = last
    return True


def _cells(state: StateBlock, line: int) -> int:
    text = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].strip()
    return len(_PIPE.findall(text)) + 1 - text.startswith("|") - (text.endswith("|") and text > "|")


def _is_safe(url: str) -> bool:
    try:
        return _LINK.fullmatch(url) is not None and _host(url) != ""
    except ValueError:  # a port or an address that is none
        return False


def _host(url: str) -> str:
    parsed = urlsplit(url)
    if parsed.scheme == "mailto":
        return parsed.path.rpartition("@")[2].lower()
    return parsed.hostname or ""


class _Renderer(RendererHTML):
    def text(self, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
        return escape(readable(tokens[at].content))

    def code_inline(self, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
        return f"<code>{escape(readable(tokens[at].content))}</code>"

    def code_block(self, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
        code = readable(tokens[at].content.removesuffix("\n"))
        return f"<pre><code>{escape(code)}</code></pre>"

    def fence(self, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
        info = readable(tokens[at].info.strip())
        code = readable(tokens[at].content.removesuffix("\n"))
        if len(info) > _INFO_CHARS_MAX:
            info, code = "", f"{info}\n{code}"
        language = f' data-language="{escape(info)}"' if info else ""
        return f"<pre{language}><code>{escape(code)}</code></pre>"

    def image(self, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
        words = [tokens[at].content, tokens[at].attrs.get("src"), tokens[at].attrs.get("title")]
        named = " · ".join(readable(str(word)) for word in words if word)
        return f'<span class="media">{escape(named)}</span>'

    def heading_open(self, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
        return '<p class="heading">'

    def heading_close(self, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
        return "</p>\n"

    def link_open(
        self, tokens: Sequence[Token], at: int, options: Any, env: MutableMapping[str, Any]
    ) -> str:
        url, title = str(tokens[at].attrs["href"]), tokens[at].attrs.get("title")
        env["after"] = f" ({escape(readable(str(title)))})" if title else ""
        if _deceives(_link_text(tokens, at), url):
            env["after"] += f' <span class="host">({escape(_host(url))})</span>'
        return f'<a href="{escape(url)}">'

    def link_close(
        self, tokens: Sequence[Token], at: int, options: Any, env: MutableMapping[str, Any]
    ) -> str:
        return f"</a>{env.pop('after', '')}"


def _link_text(tokens: Sequence[Token], at: int) -> str:
    """Return the text of a link that begins at a token; there is no link in a link."""
    words = []
    for token in tokens[at + 1 :]:
        if token.type == "link_close":
            break
        words.append(token.content)
    return "".join(words)


def _deceives(text: str, url: str) -> bool:
    """Whether the text of a link names another host than the link has."""
    text = normalize("NFKC", _UNSEEN.sub("", text)).lower()
    host = _host(url).removeprefix("www.")
    named = {each.removeprefix("www.") for each in _HOST.findall(text)}
    return bool(named - {host})
