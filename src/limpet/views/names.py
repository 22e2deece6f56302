"""Ids, other people's text and URLs, made fit to be shown."""

import re

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
