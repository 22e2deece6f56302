"""A chat as HTML: a bubble for each turn, its images, and a window onto a long one."""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import islice
from math import inf
from typing import Final, NamedTuple, TypeAlias

from limpet.core.limits import KIB
from limpet.model import JSON
from limpet.views.chat import (
    Answer,
    Call,
    Chat,
    ChatTurn,
    Inner,
    Media,
    Part,
    Result,
    Text,
    call_text,
    chat_news,
    media_text,
    value_text,
)
from limpet.views.chat.media import base64_bytes
from limpet.views.format import clipped, count_text, json_start, readable, visible
from limpet.views.page.prose import marks_in, plain_html, prose_html
from limpet.views.page.values import value_at

ImageOf: TypeAlias = Callable[[Media], str | None]

_ROLES = ("system", "user", "assistant", "tool")
_TITLE_CHARS_MAX = 120
_FOLDED_CHARS_MIN = 6_000  # about two screens
_FOLDED_LINES_MIN = 24
_PARTS_MAX = 200  # of one message, if there is a budget
_ANCHORS_MAX = 200
_MARKS_MAX = 30_000  # of Markdown on one page, if there is a budget: a second at worst


def no_image(media: Media) -> None:
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

    def turn(self, turn: ChatTurn, *, mark: str = "", anchors: Iterable[int] = ()) -> Iterator[str]:
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
            if not isinstance(part, Text) or part.text.strip():
                yield from self._part(part)
        if not turn.parts:
            yield '<p class="quiet">nothing</p>'
        yield _left_out(len(turn.parts) - len(shown), "part")
        yield "</article>\n"

    def _part(self, part: Part) -> Iterator[str]:
        if isinstance(part, Call):
            yield from self._call(part)
        elif isinstance(part, Answer):
            name = part.name or part.id or "a missing call"
            bad = " bad" if part.result.is_error else ""
            yield f'<details class="call{bad}">'
            yield f"<summary><b>result of {self._named(name)}</b></summary>"
            yield from self._result(part.result)
            yield "</details>"
        elif isinstance(part, Text):
            yield from self._text(part)
        else:
            yield f'<div class="bubble">{self._inner(part)}</div>'

    def _text(self, part: Text) -> Iterator[str]:
        chars, text = len(part.text), self._cut(part.text)
        kind = "bubble thinking" if part.thinking else "bubble"
        as_html = prose_html if self._budget is None else self._budget.prose_html
        shown = as_html(text) + _left_out(chars - len(text), "character")
        if part.thinking or chars >= _FOLDED_CHARS_MIN:
            about = "thinking" if part.thinking else count_text(chars, "character")
            yield f'<details class="{kind}">{_summary(about, _first(part.text))}{shown}</details>'
        else:
            yield f'<div class="{kind}">{shown}</div>'

    def _call(self, call: Call) -> Iterator[str]:
        is_error = call.result is not None and call.result.is_error
        state = "failed" if is_error else "no result" if call.result is None else ""
        given = clipped(call_text(call).removeprefix(visible(call.name)), _TITLE_CHARS_MAX)
        yield f'<details class="call{" bad" if is_error else ""}"><summary>'
        yield f"<code>{self._named(call.name)}</code> "
        yield f'<span class="brief">{escaped(given)}</span>'
        yield f' <span class="mark">{state}</span></summary>' if state else "</summary>"
        yield f'<p class="label">arguments</p>{self._json(call.arguments)}'
        if call.result is not None:
            yield f'<p class="label">{"error" if is_error else "result"}</p>'
            yield from self._result(call.result)
        yield "</details>"

    def _result(self, result: Result) -> Iterator[str]:
        if not result.parts:
            yield '<p class="quiet">nothing</p>'
        shown = result.parts if self._budget is None else result.parts[:_PARTS_MAX]
        yield from map(self._inner, shown)
        yield _left_out(len(result.parts) - len(shown), "part")

    def _inner(self, part: Inner) -> str:
        if isinstance(part, Media):
            return _media(self._named(media_text(part)), self._image_of(part))
        if isinstance(part, Text):
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
            return folded_code(value_text(value, indent=2))
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
    return clipped(" ".join(text[: 2 * _TITLE_CHARS_MAX].split()), _TITLE_CHARS_MAX)


def _summary(about: str, first: str) -> str:
    return f'<summary><b>{escaped(about)}</b> <span class="brief">{escaped(first)}</span></summary>'


def _left_out(count: int, noun: str) -> str:
    return f'<p class="quiet">… {count_text(count, f"more {noun}")}</p>' if count else ""


def escaped(text: str) -> str:
    return escape(visible(text))


# Images: those that are small are embedded as checked data URIs.

IMAGE_BYTES_MAX: Final = 256 * KIB

_DATA_URL = "data:image/"
_RIFF, _WEBP = b"RIFF", b"WEBP"
_BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_ENCODED_BEGINNINGS = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")


class Images:
    """The images in a state, by their size; only as many as have `chars_max` as data URIs."""

    def __init__(self, state: JSON, *, chars_max: float = inf) -> None:
        self._left = chars_max
        self._by_size: dict[int, set[str]] = {}
        for text in _texts(state):
            uri = image_uri(text)
            if uri is not None:
                size = base64_bytes(uri.partition(",")[2])
                self._by_size.setdefault(size, set()).add(uri)

    def find(self, media: Media) -> str | None:
        """Return the data URI of an image; None if it is too large, or another has its size."""
        found = self._by_size.get(media.size or -1, set())
        uri = next(iter(found)) if len(found) == 1 and media.kind == "image" else None
        if uri is None or len(uri) > self._left:
            return None
        self._left -= len(uri)
        return uri


def image_uri(text: str) -> str | None:
    """Return base64 as a data URI if it is a PNG, JPEG, GIF or WebP below 256 KiB, else None.

    The type is that of its bytes.
    """
    if text.startswith(_DATA_URL):
        text = text.partition(";base64,")[2]
    if not text.startswith(_ENCODED_BEGINNINGS) or len(text) > 2 * IMAGE_BYTES_MAX:
        return None
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    kind = next((kind for begin, kind in _BEGINNINGS.items() if data.startswith(begin)), None)
    if data[:4] == _RIFF and data[8:12] == _WEBP:
        kind = "image/webp"
    if kind is None or len(data) >= IMAGE_BYTES_MAX:
        return None
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _texts(state: JSON) -> Iterator[str]:
    waiting = [state]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()


# A window onto a long chat

TURNS_MAX: Final = 200
"""How many turns are shown at once."""

_TEXT_CHARS_MAX = 20_000
_CHARS_MAX = 400_000
_IMAGE_CHARS_MAX = 2_000_000  # of all images


class Window(NamedTuple):
    """Some turns of a chat, up to the message `last`.

    `earlier` and `later` name a message before and after them, if any.
    """

    html: str
    turns: int
    of: int
    earlier: int | None = None
    later: int | None = None
    last: int | None = None


class NewMessages(NamedTuple):
    """The messages that a snapshot added, and those whose calls got their results."""

    added: frozenset[int] = frozenset()
    answered: frozenset[int] = frozenset()

    def mark(self, index: int) -> str:
        return "new" if index in self.added else "new result" if index in self.answered else ""


def new_messages(before: Chat | None, after: Chat) -> NewMessages:
    """Compare a chat with that of the snapshot before."""
    if before is None:
        return NewMessages()
    whole = {id(turn) for turn in after.turns}
    found = chat_news(before.turns, after.turns).turns
    return NewMessages(
        frozenset(turn.index for turn in found if id(turn) in whole),
        frozenset(turn.index for turn in found if id(turn) not in whole),
    )


def chat_window(state: JSON, chat: Chat, news: NewMessages, index: int | None = None) -> Window:
    """Return the turns around a message, by default the last ones."""
    turns = chat.turns
    if not turns:
        return Window("", 0, 0)
    last = len(turns) - 1
    pivot = last if index is None else _position(turns, index)
    images = Images(_messages_near(state, chat, pivot), chars_max=_IMAGE_CHARS_MAX)
    budget = Budget(text_chars_max=_TEXT_CHARS_MAX, chars_max=_CHARS_MAX)
    writer = ChatWriter(images.find, budget)

    def written(at: int) -> str:
        turn = turns[at]
        until = turns[at + 1].index if at < last else chat_length(state, chat)
        # A message may be several turns: the last of them has its anchor.
        shown = range(turn.index, max(turn.index + 1, until) if until != turn.index else until)
        return "".join(writer.turn(turn, mark=news.mark(turn.index), anchors=shown))

    made = {pivot: written(pivot)}
    for at in range(pivot + 1, min(last, pivot + TURNS_MAX // 2) + 1):
        if budget.left <= 0:
            break
        made[at] = written(at)
    for at in range(pivot - 1, -1, -1):
        if len(made) >= TURNS_MAX or budget.left <= 0:
            break
        made[at] = written(at)
    first, final = min(made), max(made)
    return Window(
        "".join(made[at] for at in sorted(made)),
        len(made),
        len(turns),
        turns[first - 1].index if first > 0 else None,
        turns[final + 1].index if final < last else None,
        turns[final].index,
    )


def chat_length(state: JSON, chat: Chat) -> int:
    """Return how many messages there are, with those that are shown inside others."""
    found = value_at(state, chat.path)
    return len(found) if isinstance(found, list) else 0


def _position(turns: Sequence[ChatTurn], index: int) -> int:
    """Return the turn that shows a message: its own, or the one before."""
    found = [at for at, turn in enumerate(turns) if turn.index <= index]
    return found[-1] if found else 0


def _messages_near(state: JSON, chat: Chat, pivot: int) -> JSON:
    """Return the messages of which a window around a turn may show images."""
    near = chat.turns[max(0, pivot - TURNS_MAX) : pivot + TURNS_MAX]
    messages = value_at(state, chat.path)
    if near and isinstance(messages, list):
        return messages[max(0, near[0].index) : near[-1].index + TURNS_MAX]
    return messages
