"""A session as one self-contained HTML page: no script, no font, no other file.

Content of the store is escaped text; a Content-Security-Policy in the page enforces it.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from limpet.model import JSON, ScopeInfo, ScopeKey
from limpet.views.chat import value_text
from limpet.views.document import (
    ScopePage,
    content_of,
    note_name,
    scope_facts,
    scope_name,
    session_facts,
)
from limpet.views.format import count_text, moment_text
from limpet.views.page.chat import ChatWriter, escaped, folded_code, no_image
from limpet.views.page.history import HISTORY, History, status_html
from limpet.views.page.images import Images
from limpet.views.page.style import STYLE

__all__ = ["ScopePage", "session_page"]

_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'"
)


def session_page(
    session_id: str,
    scopes: Iterable[ScopePage],
    *,
    contents: Sequence[ScopeInfo] = (),
    title: str | None = None,
    images: bool = False,
) -> Iterator[str]:
    """Yield the parts of a page with all scopes of a session.

    `contents` are the same scopes, for a table of contents. `scopes` is read lazily. With `images`,
    PNG, JPEG, GIF and WebP images in messages below 256 KiB are embedded; others are named.
    """
    name = escaped(session_id)
    heading = name if title is None else escaped(title)
    policy = _POLICY + ("; img-src data:" if images else "")
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield '<meta name="color-scheme" content="light dark">\n'
    yield '<meta name="referrer" content="no-referrer">\n'
    yield '<meta name="generator" content="Limpet">\n'
    yield f"<title>{heading}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
    kicker = "Session" if title is None else f"Session <code>{name}</code>"
    yield f'<header class="top"><p class="kicker">{kicker}</p><h1>{heading}</h1>'
    yield f"{_facts(session_facts(contents)) if contents else ''}</header>\n"
    anchors = {info.key: f"scope-{number}" for number, info in enumerate(contents, start=1)}
    if len(contents) > 1:
        yield from _contents(contents, anchors)
    yield "<main>\n"
    history = History(anchors)
    for number, page in enumerate(scopes, start=1):
        anchor = anchors.setdefault(page.key, f"scope-{number}")
        yield from _scope(page, anchor, images=images)
        history.add(page)
    yield from history.html()
    yield "</main>\n</body>\n</html>\n"


def _contents(contents: Sequence[ScopeInfo], anchors: dict[ScopeKey, str]) -> Iterator[str]:
    yield '<nav aria-label="Scopes"><ul>\n'
    for info in contents:
        name = f'<a href="#{anchors[info.key]}">{escaped(scope_name(info.key))}</a>'
        head = info.head
        if head is None:
            facts = '<span class="quiet">no head</span>'
        else:
            moment = f"<time>{moment_text(head.created_at)}</time>"
            facts = f"{status_html(head.status)} {moment}"
        yield f"<li>{name} {facts}</li>\n"
    yield f'<li><a href="#{HISTORY}">History</a> <span class="quiet">of all scopes</span></li>\n'
    yield "</ul></nav>\n"


def _scope(page: ScopePage, anchor: str, *, images: bool) -> Iterator[str]:
    yield f'<section class="scope" id="{anchor}">\n<h2>{escaped(page.key.scope_id)}</h2>'
    yield _facts(scope_facts(page))
    if page.head is not None:
        yield from _state(page.head.state, images=images)
    else:
        yield '<p class="quiet">no head</p>\n'
    if page.notes:
        yield "<h3>Notes</h3>\n"
        for note in page.notes:
            yield from _value(note_name(note), note.value)
    yield "</section>\n"


def _state(state: JSON, *, images: bool) -> Iterator[str]:
    content = content_of(state)
    if content.chat is not None:
        writer = ChatWriter(Images(state).find if images else no_image)
        turns = content.chat.turns
        yield f"<h3>Conversation <small>{count_text(len(turns), 'turn')}</small></h3>\n"
        yield '<div class="chat">\n'
        for turn in turns:
            yield from writer.turn(turn)
        yield "</div>\n"
    if content.others:
        yield "<h3>State</h3>\n"
        for name, value in content.others:
            yield from _value(name, value)


def _value(name: str, value: JSON) -> Iterator[str]:
    yield f'<div class="value"><h4><code>{escaped(name)}</code></h4>'
    yield f"{folded_code(value_text(value, indent=2))}</div>\n"


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(
        f"<div><dt>{escaped(name)}</dt>"
        f"<dd>{status_html(value) if name == 'status' else escaped(value)}</dd></div>"
        for name, value in facts
    )
    return f'<dl class="facts">{rows}</dl>\n'
