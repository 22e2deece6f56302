"""Joins tool calls with their results, and compares two versions of a chat."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from limpet.views.chat.model import Answer, Call, ChatTurn, Part, Result

_Position = tuple[int, int]  # of a turn, and of a part in it
_Key = tuple[str, str]


def pair(turns: Iterable[ChatTurn]) -> tuple[ChatTurn, ...]:
    """Return the turns with every result inside its call; turns that become empty are dropped.

    Calls and results are joined by id, or by name if neither has one. Frameworks reuse ids: of
    several open calls with the same id, those of the latest turn come first, in their order.
    """
    turns = tuple(turns)
    waiting: defaultdict[_Key, list[tuple[int, deque[_Position]]]] = defaultdict(list)
    results: dict[_Position, Result] = {}
    paired: set[_Position] = set()
    for at, turn in enumerate(turns):
        for position, part in enumerate(turn.parts):
            if isinstance(part, Call) and part.result is None:
                open_calls = waiting[_key(part)]
                if not open_calls or open_calls[-1][0] != at:
                    open_calls.append((at, deque()))
                open_calls[-1][1].append((at, position))
            elif isinstance(part, Answer):
                open_calls = waiting.get(_key(part), [])
                if open_calls:
                    results[open_calls[-1][1].popleft()] = part.result
                    paired.add((at, position))
                    if not open_calls[-1][1]:
                        open_calls.pop()
    return tuple(_joined(turns, results, paired))


def _key(part: Call | Answer) -> _Key:
    return ("id", part.id) if part.id is not None else ("name", part.name or "")


def _joined(
    turns: tuple[ChatTurn, ...], results: dict[_Position, Result], paired: set[_Position]
) -> Iterator[ChatTurn]:
    for at, turn in enumerate(turns):
        parts: list[Part] = []
        for position, part in enumerate(turn.parts):
            result = results.get((at, position))
            if isinstance(part, Call) and result is not None:
                parts.append(replace(part, result=result))
            elif (at, position) not in paired:
                parts.append(part)
        if parts or not turn.parts:
            yield replace(turn, parts=tuple(parts))


class News(NamedTuple):
    """The new turns, and whether earlier ones were replaced.

    A late result of a known call is in a turn of the role `tool`, inside its call.
    """

    turns: tuple[ChatTurn, ...]
    is_replaced: bool = False


def chat_news(before: tuple[ChatTurn, ...], after: tuple[ChatTurn, ...]) -> News:
    """Return the turns that were added.

    If the messages were replaced (by a summary, or by fewer of them): the turns that are not among
    the earlier ones, in any position.
    """
    late: list[ChatTurn] = []
    for old, new in zip(before, after, strict=False):
        if old == new:
            continue
        if _bare(old) != _bare(new):
            return _replaced(before, after)
        parts = tuple(n for o, n in zip(old.parts, new.parts, strict=True) if o != n)
        late.append(ChatTurn("tool", None, parts, new.index))
    if len(after) < len(before):
        return _replaced(before, after)
    return News((*late, *after[len(before) :]))


def _replaced(before: tuple[ChatTurn, ...], after: tuple[ChatTurn, ...]) -> News:
    known = Counter(map(_content_of, before))
    new = []
    for turn in after:
        content = _content_of(turn)
        if known[content]:
            known[content] -= 1
        else:
            new.append(turn)
    return News(tuple(new), is_replaced=True)


def _bare(turn: ChatTurn) -> ChatTurn:
    """Return a turn without the results of its calls, which come later than it."""
    parts = (replace(p, result=None) if isinstance(p, Call) else p for p in turn.parts)
    return replace(turn, parts=tuple(parts))


def _content_of(turn: ChatTurn) -> str:
    return repr(replace(_bare(turn), index=0))
