"""Sizes, counts, times, ids, URLs and values as short texts, and what of a text is visible."""

import json
import re
from datetime import datetime
from unicodedata import category

from limpet.model import JSON, ScopeKey, SnapshotInfo

_UNITS = ("KiB", "MiB", "GiB", "TiB")
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def size_text(size: int) -> str:
    """Return a number of bytes as `713 B`, `1.5 KiB`, `412 MiB`."""
    if abs(size) < 1024:
        return f"{size} B"
    value, power = size / 1024, 0
    while abs(value) >= 999.5 and power < len(_UNITS) - 1:  # at most three digits
        value, power = value / 1024, power + 1
    digits = 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f} {_UNITS[power]}"


def ratio(stored: int, logical: int) -> float | None:
    return stored / logical if logical else None


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """Return `1 scope`, `1,204 scopes`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def bar(share: float, cells: int) -> str:
    """Return a bar that fills a share of the cells; it is never empty for a share above 0."""
    eighths = round(max(0.0, min(1.0, share)) * cells * 8)
    if share > 0:
        eighths = max(1, eighths)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


_STEPS = ((60, "s"), (60, "m"), (24, "h"), (365, "d"))


def age_text(then: datetime, now: datetime) -> str:
    """Return an age in its largest unit: `now` (also for the future), `42s`, `3h`, `12d`, `2y`."""
    rest = int((now - then).total_seconds())
    if rest < 1:
        return "now"
    for size, unit in _STEPS:
        if rest < size:
            return f"{rest}{unit}"
        rest //= size
    return f"{rest}y"


def ago_text(then: datetime, now: datetime) -> str:
    """Return `now`, `42s ago`, `3h ago`."""
    age = age_text(then, now)
    return age if age == "now" else f"{age} ago"


def duration_text(seconds: float) -> str:
    """Return `640 ms`, `21 s`, `1.5 h`."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    for size, unit, limit in ((1, "s", 60), (60, "min", 3600), (3600, "h", 86_400)):
        if seconds < limit:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds / 86_400:,.0f} d"


def moment_text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S")


_SHORT_MIN = 14  # below, shortening would save nothing
_USER_INFO = re.compile(r"(?<=://)(?!/)[^`\n]*@")
_HALF_USER_INFO = re.compile(r"(?<=://)[^/@:\[]*:(?![0-9]*(?:/|\?|$))[^/]*")
_KNOWN_SCHEME = re.compile(r"(?i)\s*(?:(?:memory|sqlite|file|postgres(?:ql)?|s3|gs|az):[/\\]*)?")
_KEYWORD = re.compile(r"(?i)(pass\w*|pwd|secret|token|key)(\s*=\s*)[^\s&`]+")
_QUERY_VALUE = re.compile(r"(?<==)[^&]*")


def address_text(scope: ScopeKey, id: str | None = None) -> str:
    """Return `SESSION:SCOPE`, or `SESSION:SCOPE@ID`."""
    return f"{scope.session_id}:{scope.scope_id}" + ("" if id is None else f"@{id}")


def short_id(id: str) -> str:
    """Return both ends of an id: ids that were minted in one second differ only at the end."""
    return id if len(id) < _SHORT_MIN else f"{id[:8]}…{id[-4:]}"


def shown_labels(info: SnapshotInfo) -> dict[str, str]:
    """Return the labels for people: without those by which Pydantic AI finds its messages."""
    if info.scope.kind != "conversation":
        return info.labels
    return {name: value for name, value in info.labels.items() if value != "entry"}


def status_or_dash(status: str) -> str:
    return visible(status) or "\N{EN DASH}"


# Characters that Unicode calls printable, and that draw nothing: two different ids look the same.
_BLANKS = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\U00016fe4\U0001d159"
) | frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))  # variation selectors
# All blanks and combining marks are in here, and little else of what people write often.
_SUSPECT = re.compile(
    "[\u0300-\u036f\u0483-\u200f\u20d0-\u20ff\u2800\u2cef-\u2cf1\u2d7f-\u2dff\u302a-\u302f\u3099\u309a"
    "\u3164\ua66f-\uabff\ufb1e\ufe00-\ufe2f\uffa0\U00010000-\U0001eaff\U000e0000-\U0010ffff]"
)
_NOT_ASCII = re.compile("[^ -~]+")
_AS_EMOJI = "\ufe0f"  # after a symbol, which is then drawn in colour
_MARKS_MAX = 5  # combining marks on one character; more would be drawn over other lines


def visible(text: str, kept: str = "") -> str:
    """Return text with escaped control characters, except those of `kept`.

    Ids and messages may contain line ends, characters that draw nothing, floods of combining marks,
    and escape sequences that clear the screen or falsify it.
    """
    if text.isprintable() and _SUSPECT.search(text) is None:
        return text
    return _NOT_ASCII.sub(lambda run: _escaped(run, kept), text)


def _escaped(run: re.Match[str], kept: str) -> str:
    shown = []
    marks = 0 if run.start() else _MARKS_MAX  # a first mark would be drawn over what is before it
    before = ""
    for char in run[0]:
        is_mark = char >= "\u0300" and category(char) in ("Mn", "Me")
        marks = marks + 1 if is_mark else 0
        draws = char not in _BLANKS or (char == _AS_EMOJI and category(before or " ") == "So")
        plain = char in kept or (char.isprintable() and draws)
        before = char
        shown.append(char if plain and marks <= _MARKS_MAX else ascii(char)[1:-1])
    return "".join(shown)


_SPACES = (
    "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
# Joiners and selectors belong to letters and emoji, direction marks to a line.
_INVISIBLE_KEPT = f"\n\t{_SPACES}\u200c\u200d\u200e\u200f\ufe0e\ufe0f"


def readable(text: str) -> str:
    """Return text with escaped control characters, except what belongs to prose."""
    return visible(text.replace("\r\n", "\n"), kept=_INVISIBLE_KEPT)


def clipped(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: max(0, chars_max - 1)].rstrip() + "…"


def json_start(value: JSON, chars_max: int, *, indent: int | None = 2) -> str:
    """Return a value as JSON, of which at most `chars_max` characters are made: it may be large."""
    text, length = [], 0
    for chunk in json.JSONEncoder(ensure_ascii=False, indent=indent).iterencode(value):
        text.append(chunk[: chars_max - length])
        length += len(text[-1])
        if length >= chars_max:
            break
    return "\n".join(map(visible, "".join(text).split("\n")))


def masked_url(url: str) -> str:
    """Return a URL with user, password and query values masked.

    In a mistyped one (`postgresql:/bob:pw@host`, `//bob:pw@host`) everything before the last `@`
    counts as user and password if there is a colon in it.
    """
    shown = _HALF_USER_INFO.sub("***", without_secrets(url))
    user_info, at, rest = shown.rpartition("@")
    scheme = _KNOWN_SCHEME.match(user_info)
    if scheme is not None and ":" in user_info[scheme.end() :]:
        shown = f"{scheme[0]}***{at}{rest}"
    place, mark, query = shown.partition("?")
    return _KEYWORD.sub(r"\1\2***", place) + mark + _QUERY_VALUE.sub("…", query)


def without_secrets(text: str) -> str:
    """Return text with the user and password of each URL masked.

    An unescaped password may contain a slash or a question mark, so it masks up to the last `@`.
    """
    return _USER_INFO.sub("***@", text)
