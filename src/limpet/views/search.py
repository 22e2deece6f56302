"""Finds a pattern in the texts of a state."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from limpet.model import JSON


class Match(NamedTuple):
    """A line that matches, and the position of the first match in it.

    `pointer` is the JSON Pointer of the text, or with `is_key` of the member with this key.
    """

    pointer: str
    text: str
    start: int
    end: int
    is_key: bool = False


def matches(state: JSON, pattern: re.Pattern[str], *, keys: bool = False) -> Iterator[Match]:
    """Yield each line of the texts of a state that matches a pattern, in order.

    With `keys` also the keys of objects, each before its value. A match never spans lines.
    """
    path: list[str | int] = []
    if isinstance(state, str):
        yield from _in_text(state, pattern, path, is_key=False)
        return
    # One iterator for each level; `path` has the key or index of every level that was entered.
    levels = [_members(state)]
    while levels:
        key, value = next(levels[-1], _END)
        if key is None:
            levels.pop()
            if path:
                path.pop()
            continue
        path.append(key)
        if keys and isinstance(key, str):
            yield from _in_text(key, pattern, path, is_key=True)
        if isinstance(value, dict | list):
            levels.append(_members(value))
            continue
        if isinstance(value, str):
            yield from _in_text(value, pattern, path, is_key=False)
        path.pop()


_Member = tuple[str | int | None, JSON]
_END: _Member = (None, None)


def _members(value: JSON) -> Iterator[_Member]:
    if isinstance(value, dict):
        return iter(value.items())
    return iter(enumerate(value)) if isinstance(value, list) else iter(())


def _in_text(
    text: str, pattern: re.Pattern[str], path: list[str | int], *, is_key: bool
) -> Iterator[Match]:
    start = 0
    while start <= len(text):
        end = text.find("\n", start)
        line = text[start : len(text) if end < 0 else end]
        if found := pattern.search(line):
            yield Match(_pointer(path), line, found.start(), found.end(), is_key)
        if end < 0:
            return
        start = end + 1


def _pointer(path: list[str | int]) -> str:
    return "".join(
        f"/{part.replace('~', '~0').replace('/', '~1') if isinstance(part, str) else part}"
        for part in path
    )


_BEFORE_SHARE = 3  # a third of the context is before the match


def excerpt(match: Match, chars_max: int) -> tuple[str, str, str]:
    """Return what is before a match, the match and what is after it: about so many characters."""
    line, start, end = match.text, match.start, match.end
    before, text, after = line[:start], line[start:end], line[end:]
    text = text if len(text) <= chars_max else text[: chars_max - 1] + "…"
    room = max(0, chars_max - len(text))
    left = max(room // _BEFORE_SHARE, room - len(after))
    if len(before) > left:
        before = "…" + before[len(before) - max(0, left - 1) :]
    right = max(0, room - len(before))
    if len(after) > right:
        after = after[: max(0, right - 1)] + "…"
    return before, text, after
