"""The messages of a chat as HTML: a bubble for each turn, with long parts folded."""

import re
from collections.abc import Callable, Iterator
from html import escape
from typing import TypeAlias

from limpet.views import chat
from limpet.views.document import CODE_SPAN, HEADING, Block, blocks, readable
from limpet.views.format import clipped, count_text, visible

ImageOf: TypeAlias = Callable[[chat.Media], str | None]

_ROLES = ("system", "user", "assistant", "tool")
_TITLE_CHARS_MAX = 120
_FOLDED_CHARS_MIN = 6_000  # about two screens
_FOLDED_LINES_MIN = 24
_SPAN = re.compile(rf"{CODE_SPAN}|\*\*(?=\S)(.{{1,300}}?)(?<=\S)\*\*")


def turn_html(turn: chat.ChatTurn, image_of: ImageOf) -> Iterator[str]:
    role = turn.role if turn.role in _ROLES else "other"
    name = f' <span class="name">{escaped(turn.name)}</span>' if turn.name else ""
    yield f'<article class="turn {role}"><header>{escaped(turn.role)}{name}</header>'
    for part in turn.parts:
        if not isinstance(part, chat.Text) or part.text.strip():
            yield from _part(part, image_of)
    if not turn.parts:
        yield '<p class="quiet">nothing</p>'
    yield "</article>\n"


def _part(part: chat.Part, image_of: ImageOf) -> Iterator[str]:
    if isinstance(part, chat.Call):
        yield from _call(part, image_of)
    elif isinstance(part, chat.Answer):
        name = part.name or part.id or "a missing call"
        yield from _result(part.result, f"result of {name}", image_of)
    elif isinstance(part, chat.Text):
        yield from _text(part)
    else:
        yield f'<div class="bubble">{_inner(part, image_of)}</div>'


def _text(part: chat.Text) -> Iterator[str]:
    chars = len(part.text)
    kind = "bubble thinking" if part.thinking else "bubble"
    if part.thinking or chars >= _FOLDED_CHARS_MIN:
        about = "thinking" if part.thinking else count_text(chars, "character")
        first = clipped(" ".join(part.text[: 2 * _TITLE_CHARS_MAX].split()), _TITLE_CHARS_MAX)
        yield f'<details class="{kind}">{_summary(about, first)}'
        yield from map(_block, blocks(part.text))
        yield "</details>"
    else:
        yield f'<div class="{kind}">'
        yield from map(_block, blocks(part.text))
        yield "</div>"


def _block(block: Block) -> str:
    if block.is_code:
        return f"<pre><code>{escape(block.text)}</code></pre>"
    lines = map(_line, block.text.split("\n"))
    return '<div class="text" dir="auto">' + "\n".join(lines) + "</div>"


def _line(line: str) -> str:
    heading = HEADING.fullmatch(line)
    if heading is not None:
        return f"<strong>{_spans(heading[1])}</strong>"
    return _spans(line)


def _spans(line: str) -> str:
    shown, at = [], 0
    for span in _SPAN.finditer(line):
        tag, inside = ("code", span[2]) if span[1] else ("strong", span[3])
        shown.append(f"{escape(line[at : span.start()])}<{tag}>{escape(inside)}</{tag}>")
        at = span.end()
    return "".join(shown) + escape(line[at:])


def _call(call: chat.Call, image_of: ImageOf) -> Iterator[str]:
    is_error = call.result is not None and call.result.is_error
    state = "failed" if is_error else "no result" if call.result is None else ""
    given = clipped(chat.call_text(call).removeprefix(visible(call.name)), _TITLE_CHARS_MAX)
    yield f'<details class="call{" bad" if is_error else ""}"><summary>'
    yield f"<code>{escaped(call.name)}</code> "
    yield f'<span class="brief">{escaped(given)}</span>'
    yield f' <span class="mark">{state}</span></summary>' if state else "</summary>"
    yield f"<h5>arguments</h5><pre><code>{_json(call.arguments)}</code></pre>"
    if call.result is not None:
        yield f"<h5>{'error' if is_error else 'result'}</h5>"
        yield from _inners(call.result, image_of)
    yield "</details>"


def _result(result: chat.Result, title: str, image_of: ImageOf) -> Iterator[str]:
    bad = " bad" if result.is_error else ""
    yield f'<details class="call{bad}">{_summary(title, "")}'
    yield from _inners(result, image_of)
    yield "</details>"


def _inners(result: chat.Result, image_of: ImageOf) -> Iterator[str]:
    if not result.parts:
        yield '<p class="quiet">nothing</p>'
    for part in result.parts:
        yield _inner(part, image_of)


def _inner(part: chat.Inner, image_of: ImageOf) -> str:
    if isinstance(part, chat.Media):
        return _media(part, image_of(part))
    if isinstance(part, chat.Text):
        return folded_code(readable(part.text))
    return folded_code(chat.value_text(part.value, indent=2))


def _media(media: chat.Media, uri: str | None) -> str:
    name = escaped(chat.media_text(media))
    if uri is None:
        return f'<p class="media">{name}</p>'
    return f'<figure><img src="{escape(uri)}" alt="{name}"><figcaption>{name}</figcaption></figure>'


def folded_code(text: str) -> str:
    lines = text.count("\n") + 1
    shown = f"<pre><code>{escape(text)}</code></pre>"
    if lines < _FOLDED_LINES_MIN and len(text) < _FOLDED_CHARS_MIN:
        return shown
    first = clipped(" ".join(text[: 2 * _TITLE_CHARS_MAX].split()), _TITLE_CHARS_MAX)
    about = count_text(lines, "line") if lines > 1 else count_text(len(text), "character")
    return f'<details class="long">{_summary(about, first)}{shown}</details>'


def _summary(about: str, first: str) -> str:
    return f'<summary><b>{escaped(about)}</b> <span class="brief">{escaped(first)}</span></summary>'


def _json(value: object) -> str:
    return escape(chat.value_text(value, indent=2))


def escaped(text: str) -> str:
    return escape(visible(text))
