"""The messages of a chat as HTML: a bubble for each turn, with long parts folded."""

from collections.abc import Callable, Iterable, Iterator
from html import escape
from itertools import islice
from typing import TypeAlias

from limpet.model import JSON
from limpet.views import chat
from limpet.views.document import json_start, readable
from limpet.views.format import clipped, count_text, visible
from limpet.views.page.prose import marks_in, plain_html, prose_html

ImageOf: TypeAlias = Callable[[chat.Media], str | None]

_ROLES = ("system", "user", "assistant", "tool")
_TITLE_CHARS_MAX = 120
_FOLDED_CHARS_MIN = 6_000  # about two screens
_FOLDED_LINES_MIN = 24
_PARTS_MAX = 200  # of one message, if there is a budget
_ANCHORS_MAX = 200
_MARKS_MAX = 30_000  # of Markdown on one page, if there is a budget: a second at worst


def no_image(media: chat.Media) -> None:
    return None


class Budget:
    """How many characters of one text are shown, and of all together; and how much is Markdown."""

    def __init__(self, *, text_chars_max: int, chars_max: int) -> None:
        self._text_chars_max = text_chars_max
        self._marks = _MARKS_MAX
        self.left = chars_max

    def prose_html(self, text: str) -> str:
        self._marks -= marks_in(text)
        return prose_html(text) if self._marks > 0 else plain_html(text)

    def cut(self, text: str) -> str:
        shown = text[: max(0, min(self._text_chars_max, self.left))]
        self.left -= len(shown)
        return shown

    def cut_json(self, value: JSON) -> tuple[str, bool]:
        """Return the beginning of a value as JSON, and whether there is more of it."""
        text = json_start(value, self._text_chars_max + 1)
        shown = self.cut(text)
        return shown, len(shown) < len(text)


class ChatWriter:
    """Writes turns as HTML: whole, or with a budget as much of them as it allows."""

    def __init__(self, image_of: ImageOf = no_image, budget: Budget | None = None) -> None:
        self._image_of = image_of
        self._budget = budget

    def turn(
        self, turn: chat.ChatTurn, *, mark: str = "", anchors: Iterable[int] = ()
    ) -> Iterator[str]:
        """Yield the parts of a turn.

        `mark` is a word about it. `anchors` are the messages that it shows, each of which gets an
        anchor: `m12`. The first is its own, the others hold results of its calls.
        """
        role = turn.role if turn.role in _ROLES else "other"
        numbers = [*islice(anchors, _ANCHORS_MAX)]
        id = f' id="m{numbers[0]}"' if numbers else ""
        yield f'<article class="turn {role}"{id}><header>{self._named(turn.role)}'
        yield f' <span class="name">{self._named(turn.name)}</span>' if turn.name else ""
        yield from (f' <a class="number" href="#m{n}">{n}</a>' for n in numbers[:1] if n >= 0)
        yield f' <span class="new">{escaped(mark)}</span>' if mark else ""
        yield "</header>"
        yield from (f'<span class="anchor" id="m{other}"></span>' for other in numbers[1:])
        shown = turn.parts if self._budget is None else turn.parts[:_PARTS_MAX]
        for part in shown:
            if not isinstance(part, chat.Text) or part.text.strip():
                yield from self._part(part)
        if not turn.parts:
            yield '<p class="quiet">nothing</p>'
        yield _left_out(len(turn.parts) - len(shown), "part")
        yield "</article>\n"

    def _part(self, part: chat.Part) -> Iterator[str]:
        if isinstance(part, chat.Call):
            yield from self._call(part)
        elif isinstance(part, chat.Answer):
            name = part.name or part.id or "a missing call"
            bad = " bad" if part.result.is_error else ""
            yield f'<details class="call{bad}">'
            yield f"<summary><b>result of {self._named(name)}</b></summary>"
            yield from self._result(part.result)
            yield "</details>"
        elif isinstance(part, chat.Text):
            yield from self._text(part)
        else:
            yield f'<div class="bubble">{self._inner(part)}</div>'

    def _text(self, part: chat.Text) -> Iterator[str]:
        chars, text = len(part.text), self._cut(part.text)
        kind = "bubble thinking" if part.thinking else "bubble"
        as_html = prose_html if self._budget is None else self._budget.prose_html
        shown = as_html(text) + _left_out(chars - len(text), "character")
        if part.thinking or chars >= _FOLDED_CHARS_MIN:
            about = "thinking" if part.thinking else count_text(chars, "character")
            yield f'<details class="{kind}">{_summary(about, _first(part.text))}{shown}</details>'
        else:
            yield f'<div class="{kind}">{shown}</div>'

    def _call(self, call: chat.Call) -> Iterator[str]:
        is_error = call.result is not None and call.result.is_error
        state = "failed" if is_error else "no result" if call.result is None else ""
        given = clipped(chat.call_text(call).removeprefix(visible(call.name)), _TITLE_CHARS_MAX)
        yield f'<details class="call{" bad" if is_error else ""}"><summary>'
        yield f"<code>{self._named(call.name)}</code> "
        yield f'<span class="brief">{escaped(given)}</span>'
        yield f' <span class="mark">{state}</span></summary>' if state else "</summary>"
        yield f'<p class="label">arguments</p>{self._json(call.arguments)}'
        if call.result is not None:
            yield f'<p class="label">{"error" if is_error else "result"}</p>'
            yield from self._result(call.result)
        yield "</details>"

    def _result(self, result: chat.Result) -> Iterator[str]:
        if not result.parts:
            yield '<p class="quiet">nothing</p>'
        shown = result.parts if self._budget is None else result.parts[:_PARTS_MAX]
        yield from map(self._inner, shown)
        yield _left_out(len(result.parts) - len(shown), "part")

    def _inner(self, part: chat.Inner) -> str:
        if isinstance(part, chat.Media):
            return _media(self._named(chat.media_text(part)), self._image_of(part))
        if isinstance(part, chat.Text):
            text = self._cut(part.text)
            left = _left_out(len(part.text) - len(text), "character")
            return folded_code(readable(text)) + left
        return self._json(part.value)

    def _named(self, name: str) -> str:
        return escaped(self._cut(name))

    def _cut(self, text: str) -> str:
        return text if self._budget is None else self._budget.cut(text)

    def _json(self, value: JSON) -> str:
        if self._budget is None:
            return folded_code(chat.value_text(value, indent=2))
        return started_code(*self._budget.cut_json(value))


def _media(name: str, uri: str | None) -> str:
    if uri is None:
        return f'<p class="media">{name}</p>'
    return f'<figure><img src="{escape(uri)}" alt="{name}"><figcaption>{name}</figcaption></figure>'


def folded_code(text: str) -> str:
    lines = text.count("\n") + 1
    shown = f"<pre><code>{escape(text)}</code></pre>"
    if lines < _FOLDED_LINES_MIN and len(text) < _FOLDED_CHARS_MIN:
        return shown
    about = count_text(lines, "line") if lines > 1 else count_text(len(text), "character")
    return f'<details class="long">{_summary(about, _first(text))}{shown}</details>'


def started_code(text: str, is_cut: bool) -> str:
    """Return the beginning of a value, and say if it is only that."""
    return folded_code(text) + ('<p class="quiet">… and more</p>' if is_cut else "")


def _first(text: str) -> str:
    """Return the beginning of a text on one line."""
    return clipped(" ".join(text[: 2 * _TITLE_CHARS_MAX].split()), _TITLE_CHARS_MAX)


def _summary(about: str, first: str) -> str:
    return f'<summary><b>{escaped(about)}</b> <span class="brief">{escaped(first)}</span></summary>'


def _left_out(count: int, noun: str) -> str:
    return f'<p class="quiet">… {count_text(count, f"more {noun}")}</p>' if count else ""


def escaped(text: str) -> str:
    return escape(visible(text))
