"""Joins the calls of tools with their results."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from limpet.views.chat.model import Answer, Call, Part, Result, Turn

_Spot = tuple[int, int]  # a turn, and a part in it
_Key = tuple[str, str]


def pair(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """Return the turns with every result in the call that it answers.

    The two are joined by id, or by name if neither has one. Frameworks use ids again: of several
    calls that wait under the same one those of the latest turn are first, in their order. A turn of
    which nothing is left is left out.
    """
    turns = tuple(turns)
    waiting: defaultdict[_Key, list[tuple[int, deque[_Spot]]]] = defaultdict(list)
    results: dict[_Spot, Result] = {}
    paired: set[_Spot] = set()
    for at, turn in enumerate(turns):
        for place, part in enumerate(turn.parts):
            if isinstance(part, Call) and part.result is None:
                lines = waiting[_key(part)]
                if not lines or lines[-1][0] != at:
                    lines.append((at, deque()))
                lines[-1][1].append((at, place))
            elif isinstance(part, Answer):
                lines = waiting.get(_key(part), [])
                if lines:
                    results[lines[-1][1].popleft()] = part.result
                    paired.add((at, place))
                    if not lines[-1][1]:
                        lines.pop()
    return tuple(_joined(turns, results, paired))


def _key(part: Call | Answer) -> _Key:
    return ("id", part.id) if part.id is not None else ("name", part.name or "")


def _joined(
    turns: tuple[Turn, ...], results: dict[_Spot, Result], paired: set[_Spot]
) -> Iterator[Turn]:
    for at, turn in enumerate(turns):
        parts: list[Part] = []
        for place, part in enumerate(turn.parts):
            result = results.get((at, place))
            if isinstance(part, Call) and result is not None:
                parts.append(replace(part, result=result))
            elif (at, place) not in paired:
                parts.append(part)
        if parts or not turn.parts:
            yield replace(turn, parts=tuple(parts))


# What is new in a chat since it was looked at last.


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
