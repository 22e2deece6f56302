"""A part of a long chat as HTML, around one of its messages."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from limpet.model import JSON
from limpet.views.chat import Chat, ChatTurn, Media, chat_news
from limpet.views.page.chat import Budget, ChatWriter
from limpet.views.page.images import Images
from limpet.views.page.values import value_at

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


class News(NamedTuple):
    """The messages that a snapshot added, and those whose calls got their results."""

    added: frozenset[int] = frozenset()
    answered: frozenset[int] = frozenset()

    def mark(self, index: int) -> str:
        return "new" if index in self.added else "new result" if index in self.answered else ""


def news_of(before: Chat | None, after: Chat) -> News:
    """Compare a chat with that of the snapshot before."""
    if before is None:
        return News()
    whole = {id(turn) for turn in after.turns}
    found = chat_news(before.turns, after.turns).turns
    return News(
        frozenset(turn.index for turn in found if id(turn) in whole),
        frozenset(turn.index for turn in found if id(turn) not in whole),
    )


def chat_window(state: JSON, chat: Chat, news: News, index: int | None = None) -> Window:
    """Return the turns around a message, by default the last ones."""
    turns = chat.turns
    if not turns:
        return Window("", 0, 0)
    last = len(turns) - 1
    pivot = last if index is None else _position(turns, index)
    images = _SomeImages(state, chat, pivot)
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


class _SomeImages:
    """The images near a turn, until they take up too much."""

    def __init__(self, state: JSON, chat: Chat, pivot: int) -> None:
        near = chat.turns[max(0, pivot - TURNS_MAX) : pivot + TURNS_MAX]
        messages = value_at(state, chat.path)
        if near and isinstance(messages, list):
            messages = messages[max(0, near[0].index) : near[-1].index + TURNS_MAX]
        self._images = Images(messages)
        self._left = _IMAGE_CHARS_MAX

    def find(self, media: Media) -> str | None:
        uri = self._images.find(media)
        if uri is None or len(uri) > self._left:
            return None
        self._left -= len(uri)
        return uri
