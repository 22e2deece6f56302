"""What is new in a chat since it was looked at last."""

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from limpet.views._chat_parts import Call, Part, Turn


class News(NamedTuple):
    """The turns that are new, and whether what had been there before is there no longer.

    A result that came in for a known call is in a turn of the role `tool`, within its call.
    """

    turns: tuple[Turn, ...]
    is_replaced: bool = False


def chat_news(before: tuple[Turn, ...], after: tuple[Turn, ...]) -> News:
    """Return what is new in a chat: usually what was added to it.

    If the messages were replaced, by a summary or by fewer of them, it is the turns that had not
    been there before, wherever they had stood.
    """
    late: list[Turn] = []
    for old, new in zip(before, after, strict=False):
        if old == new:
            continue
        if _bare(old) != _bare(new):
            return _replaced(before, after)
        parts = tuple(n for o, n in zip(old.parts, new.parts, strict=True) if o != n)
        late.append(Turn("tool", None, parts, new.index))
    if len(after) < len(before):
        return _replaced(before, after)
    return News((*late, *after[len(before) :]))


def _replaced(before: tuple[Turn, ...], after: tuple[Turn, ...]) -> News:
    known = Counter(map(_print_of, before))
    new = []
    for turn in after:
        mark = _print_of(turn)
        if known[mark]:
            known[mark] -= 1
        else:
            new.append(turn)
    return News(tuple(new), is_replaced=True)


def _bare(turn: Turn) -> Turn:
    """Return a turn without the results of its calls, which come later than it."""
    return replace(turn, parts=tuple(map(_without_result, turn.parts)))


def _without_result(part: Part) -> Part:
    return replace(part, result=None) if isinstance(part, Call) else part


def _print_of(turn: Turn) -> str:
    """Return what tells a turn from others, wherever it stands."""
    return repr(replace(_bare(turn), index=0))
