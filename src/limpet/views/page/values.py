"""A state as a tree of JSON, level by level: what is below one value, and how large it is."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from limpet.core import codec
from limpet.core.codec import escaped
from limpet.errors import NotFound
from limpet.model import JSON
from limpet.views.diff import brief, dotted, parts
from limpet.views.format import clipped, count_text, readable, visible

MEMBERS_MAX: Final = 100
"""Of one level; more are grouped in ranges."""
TEXT_CHARS_MAX: Final = 50_000
"""Of a text that are shown at once."""

_PREVIEW_CHARS_MAX = 120
_NAME_CHARS_MAX = 80
_SHORT_TEXT_CHARS_MAX = 2_000
_POINTER_CHARS_MAX = 4_000  # it is a part of addresses


class Member(NamedTuple):
    """A value in an object or a list.

    `share` compares its size with that of the largest one next to it. A pointer that is too long
    for an address is left out. `text` is a text that is too long for a preview, and short enough to
    be shown at once.
    """

    name: str
    pointer: str
    kind: str
    preview: str
    size: int
    share: float
    opens: bool
    text: str | None = None

    @property
    def path(self) -> str:
        """Its path as the command line takes it: `messages.3.content`."""
        return dotted(self.pointer)


class Level(NamedTuple):
    """What is below a value: its members, or ranges of them, or a part of a text."""

    pointer: str
    about: str
    members: Sequence[Member] = ()
    ranges: Sequence[tuple[int, int]] = ()
    text: str | None = None
    more: int | None = None
    """Where the text goes on."""


def value_at(state: JSON, pointer: str) -> JSON:
    """Return the value at a JSON Pointer, or raise NotFound."""
    at = state
    for part in parts(pointer):
        if isinstance(at, dict) and part in at:
            at = at[part]
        elif isinstance(at, list) and part.isdecimal() and len(part) < 10 and int(part) < len(at):
            at = at[int(part)]
        else:
            raise NotFound(f"the state has no value at this path. path=`{pointer}`")
    return at


def read_level(value: JSON, pointer: str, start: int = 0, stop: int | None = None) -> Level:
    """Return what is below a value, from one member or character up to another."""
    if isinstance(value, str):
        end = start + TEXT_CHARS_MAX
        shown = readable(value[start:end])
        return Level(pointer, about(value), text=shown, more=end if end < len(value) else None)
    if not isinstance(value, dict | list):
        return Level(pointer, about(value), text=brief(value))
    stop = min(len(value), len(value) if stop is None else stop)
    if stop - start > MEMBERS_MAX:
        return Level(pointer, about(value), ranges=_ranges(start, stop))
    found = [*islice(_named(value), start, stop)]
    sizes = [len(codec.encode(each)) for _, each in found]
    largest = max(sizes, default=1)
    members = [
        _member(name, f"{pointer}/{escaped(name)}", each, size, size / largest)
        for (name, each), size in zip(found, sizes, strict=True)
    ]
    return Level(pointer, about(value), members)


def about(value: JSON) -> str:
    """Return the type of a value, with its length."""
    if isinstance(value, dict):
        return f"object, {count_text(len(value), 'member')}"
    if isinstance(value, list):
        return f"list, {count_text(len(value), 'item')}"
    if isinstance(value, str):
        return f"text, {count_text(len(value), 'character')}"
    if value is None:
        return "null"
    return "boolean" if isinstance(value, bool) else "number"


def crumbs(pointer: str) -> Iterator[tuple[str, str]]:
    """Yield the names on the way to a value, each with its JSON Pointer."""
    at = ""
    for part in parts(pointer):
        at += f"/{escaped(part)}"
        yield clipped(visible(part), _NAME_CHARS_MAX) or '""', at


def _named(value: JSON) -> Iterator[tuple[str, JSON]]:
    if isinstance(value, dict):
        yield from value.items()
    else:
        yield from ((str(at), each) for at, each in enumerate(value))


def _member(name: str, pointer: str, value: JSON, size: int, share: float) -> Member:
    is_long = isinstance(value, str) and (len(value) > _PREVIEW_CHARS_MAX or "\n" in value)
    is_short = isinstance(value, str) and len(value) <= _SHORT_TEXT_CHARS_MAX
    is_named = len(pointer) <= _POINTER_CHARS_MAX
    return Member(
        clipped(visible(name[: 2 * _NAME_CHARS_MAX]), _NAME_CHARS_MAX) or '""',
        pointer if is_named else "",
        about(value) if is_long or not isinstance(value, str) else "text",
        clipped(brief(value, 2 * _PREVIEW_CHARS_MAX), _PREVIEW_CHARS_MAX),
        size,
        share,
        opens=is_named and (is_long or (isinstance(value, dict | list) and bool(value))),
        text=readable(value) if is_long and is_short else None,
    )


def _ranges(start: int, stop: int) -> list[tuple[int, int]]:
    step = MEMBERS_MAX
    while step * MEMBERS_MAX < stop - start:
        step *= MEMBERS_MAX
    return [(at, min(stop, at + step)) for at in range(start, stop, step)]
