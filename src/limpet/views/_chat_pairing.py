"""Joins the calls of tools with their results."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from limpet.views._chat_parts import Answer, Call, Part, Result, Turn

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
