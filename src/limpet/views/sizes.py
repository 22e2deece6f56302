"""Bytes, shares and bars."""

import re
from datetime import datetime

_UNITS = ("KiB", "MiB", "GiB", "TiB")
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def size_text(size: int) -> str:
    """Return a number of bytes for a person to read: `713 B`, `1.5 KiB`, `412 MiB`."""
    if abs(size) < 1024:
        return f"{size} B"
    value, power = size / 1024, 0
    while abs(value) >= 999.5 and power < len(_UNITS) - 1:  # else it would have four digits
        value, power = value / 1024, power + 1
    digits = 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f} {_UNITS[power]}"


def ratio(stored: int, logical: int) -> float | None:
    """Return how much room something takes, as a share of its plain size; None if it has none."""
    return stored / logical if logical else None


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 scope`, `1,204 scopes`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def bar(share: float, cells: int) -> str:
    """Return a bar of blocks that fills a share of the cells; more than nothing is always seen."""
    eighths = round(max(0.0, min(1.0, share)) * cells * 8)
    if share > 0:
        eighths = max(1, eighths)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


# Ages and moments for a person to read.

_STEPS = ((60, "s"), (60, "m"), (24, "h"), (365, "d"))


def age_text(then: datetime, now: datetime) -> str:
    """Return how long ago something was, in its biggest unit: `now`, `42s`, `3h`, `12d`, `2y`.

    What lies ahead, since clocks differ, is `now`.
    """
    rest = int((now - then).total_seconds())
    if rest < 1:
        return "now"
    for size, unit in _STEPS:
        if rest < size:
            return f"{rest}{unit}"
        rest //= size
    return f"{rest}y"


def moment_text(moment: datetime) -> str:
    """Return a time to the second, in the time zone that it has: `2026-03-01 14:05:09`."""
    return moment.strftime("%Y-%m-%d %H:%M:%S")


# Ids, other people's text and URLs, made fit to be shown.

_SHORT_MIN = 14  # below, the two ends and the gap would take as much room
_USER_INFO = re.compile(r"(?<=://)(?!/)[^`\n]*@")
_HALF_USER_INFO = re.compile(r"(?<=://)[^/@:\[]*:(?![0-9]*(?:/|\?|$))[^/]*")
_KEYWORD = re.compile(r"(?i)(password|secret|token|key)(\s*=\s*)[^\s&`]+")
_QUERY_VALUE = re.compile(r"(?<==)[^&]*")


def short_id(id: str) -> str:
    """Return the two ends of an id: ids minted in one second differ only in the last one."""
    return id if len(id) < _SHORT_MIN else f"{id[:8]}…{id[-4:]}"


def visible(text: str) -> str:
    """Return text that draws on one line and nowhere else.

    Ids and messages hold whatever their makers put in, so also line ends and the escape sequences
    that clear a screen or lie about what is on it: they are shown as Python would write them.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def clipped(text: str, chars_max: int) -> str:
    """Return text of at most so many characters; what is cut off is an ellipsis."""
    return text if len(text) <= chars_max else text[: max(0, chars_max - 1)].rstrip() + "…"


def masked_url(url: str) -> str:
    """Return a URL without anything that may be secret: user, password, values of the query."""
    shown = _HALF_USER_INFO.sub("***", without_secrets(url))
    place, mark, query = shown.partition("?")
    return _KEYWORD.sub(r"\1\2***", place) + mark + _QUERY_VALUE.sub("…", query)


def without_secrets(text: str) -> str:
    """Return text in which users and passwords of URLs are masked.

    Rather too much than too little: a password that should have been escaped and holds a slash or
    a question mark is masked up to the last `@` as well.
    """
    return _USER_INFO.sub("***@", text)
