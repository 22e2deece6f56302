"""The keys of a scope's objects and of the index.

    sessions/<session>/scopes/<kind>/<scope>/snapshots/
        head                                  the only authority of the scope
        segments/<place>.<attempt>.after-<base>   immutable; written by one attempt to replace the
                                              head of the write `base`
        notes/<place>.<attempt>.after-<base>  the same for a page of notes
        started.<line>                        there was a head of this line; written after it, and
                                              removed before it if the scope is deleted
    .limpet/index/
        ids/<id>/<session>.<kind>.<scope>.<seq>                  ids that a caller gave
        labels/<name>=<value>/<minute>.<session>.<kind>.<scope>.<stamp>
        lines/<tag>/<session>.<kind>.<scope>.<line>              scopes, by the tag of minted ids;
                                              removed after the head if the scope is deleted

Names are escaped as in `core.names`, kinds are written as they are. A key of the index is never
used again: a `seq`, a `stamp` and a `line` are unique.
"""

import re
from typing import NamedTuple

from limpet.core import ids
from limpet.core.names import (
    INDEX_NAME_BYTES_MAX,
    Clipped,
    Name,
    cut,
    name_of,
    start_of,
    unescape,
)
from limpet.model import ScopeKey

ROOT = "sessions/"
INDEX = ".limpet/index/"
LABELS = f"{INDEX}labels/"
LINES = f"{INDEX}lines/"
_MINUTE_LAST = 10**9 - 1
_MINUTE_US = 60 * 1_000_000

_NAME = r"(?:[a-z0-9_-]|\+[0-9a-f]{2})+(?:~[0-9a-f]{32})?"
_KIND = r"[a-z0-9_-]{1,64}|multiAgent"
_PART = r"[0-9a-f]+\.[0-9a-f]+\.after-[0-9a-f]*"
_PART_NAME = re.compile(_PART)
_OBJECT = re.compile(
    rf"(?P<session>{_NAME})/scopes/(?P<kind>{_KIND})/(?P<scope>{_NAME})/snapshots/"
    rf"(?:(?P<head>head)|segments/(?P<segment>{_PART})|notes/(?P<page>{_PART})"
    r"|started\.(?P<line>[0-9a-f]+))"
)
_ADDRESS = rf"(?P<address>(?P<session>{_NAME})\.(?P<kind>{_KIND})\.(?P<scope>{_NAME}))"
_POINTERS = tuple(
    re.compile(re.escape(INDEX) + pattern)
    for pattern in (
        rf"ids/(?P<id>{_NAME})/{_ADDRESS}\.(?P<seq>[0-9a-f]{{16}})",
        rf"labels/(?P<label>{_NAME}=(?:{_NAME})?)/(?P<minute>[0-9]{{9}})\.{_ADDRESS}"
        r"\.(?P<stamp>[0-9a-f]{16})",
        rf"lines/[0-9a-f]{{10}}/{_ADDRESS}\.(?P<line>[0-9a-f]+)",
    )
)


class ObjectKey(NamedTuple):
    """A parsed key: of a head, unless it has the name of a segment, a page of notes, or a line.

    `folder` is the prefix of all keys of the scope. `scope` is None if the key does not have its
    names in full.
    """

    folder: str
    scope: ScopeKey | None
    segment: str | None = None
    page: str | None = None
    line: str | None = None

    @property
    def is_head(self) -> bool:
        return self.segment is None and self.page is None and self.line is None

    @property
    def part(self) -> str | None:
        """The name of a segment or a page."""
        return self.segment or self.page


def _scope_of(session_id: Name, scope_id: Name, kind: str) -> ScopeKey | None:
    if isinstance(session_id, Clipped) or isinstance(scope_id, Clipped):
        return None
    return ScopeKey(session_id, scope_id, kind)


# Objects


def sessions_prefix(prefix: str) -> str:
    """Return the prefix of all sessions whose ids begin with a text, and maybe of others."""
    return f"{ROOT}{start_of(prefix)}"


def session_prefix(session_id: str) -> str:
    return f"{ROOT}{name_of(session_id)}/"


def scope_prefix(scope: ScopeKey) -> str:
    session = session_prefix(scope.session_id)
    return f"{session}scopes/{scope.kind}/{name_of(scope.scope_id)}/snapshots/"


def head_key(scope: ScopeKey) -> str:
    return f"{scope_prefix(scope)}head"


def is_part(name: str) -> bool:
    return _PART_NAME.fullmatch(name) is not None


def part_name(place: int, attempt: str, base: str) -> str:
    return f"{place:016x}.{attempt}.after-{base}"


def segment_key(scope: ScopeKey, name: str) -> str:
    return f"{scope_prefix(scope)}segments/{name}"


def page_key(scope: ScopeKey, name: str) -> str:
    return f"{scope_prefix(scope)}notes/{name}"


def started_key(scope: ScopeKey, line: str) -> str:
    return f"{scope_prefix(scope)}started.{line}"


def line_signs(scope: ScopeKey, line: str) -> list[str]:
    """Return the keys of what shows that a line lives: its pointer, and that it has begun."""
    return [line_key(scope, line), started_key(scope, line)]


def parse(key: str) -> ObjectKey | None:
    """Parse the key of an object; None if it is not one of ours."""
    found = _OBJECT.fullmatch(key[len(ROOT) :]) if key.startswith(ROOT) else None
    if found is None:
        return None
    session, scope = unescape(found["session"]), unescape(found["scope"])
    if session is None or scope is None:
        return None
    folder = key.partition("/snapshots/")[0] + "/snapshots/"
    owner = _scope_of(session, scope, found["kind"])
    return ObjectKey(folder, owner, found["segment"], found["page"], found["line"])


def is_content(key: str) -> bool:
    """Return whether an object is ours and not empty: also one that a repair has put aside."""
    found = parse(key)
    return (found is not None and found.line is None) or "/snapshots/damaged/" in key


# The index


class Pointer(NamedTuple):
    """A parsed key of the index, and what it says: an `id` and its `seq`, a `line`, or a label.

    `scope` is where it leads; None if the key does not have its names in full.
    """

    scope: ScopeKey | None
    parts: dict[str, str]

    def leads_to(self, scope: ScopeKey) -> bool:
        return self.parts["address"] == _address(scope)

    @property
    def place(self) -> int:
        """The `seq` of a snapshot, or of the write that gave a label or began a line."""
        parts = self.parts
        return int(parts.get("seq") or parts.get("stamp") or parts["line"], 16)

    @property
    def minute(self) -> int:
        return _MINUTE_LAST - int(self.parts["minute"])


def _short(id: str) -> str:
    return name_of(id, INDEX_NAME_BYTES_MAX)


def _address(scope: ScopeKey) -> str:
    return f"{_short(scope.session_id)}.{scope.kind}.{_short(scope.scope_id)}"


def id_prefix(id: str) -> str:
    return f"{INDEX}ids/{_short(id)}/"


def ids_prefix(start: str) -> str:
    """Return the prefix of the pointers to all ids that begin with a text, and maybe to others."""
    return f"{INDEX}ids/{cut(start, INDEX_NAME_BYTES_MAX)}"


def id_key(scope: ScopeKey, id: str, seq: int) -> str:
    return f"{id_prefix(id)}{_address(scope)}.{seq:016x}"


def label_prefix(label: str, value: str) -> str:
    return f"{LABELS}{_short(label)}={_short(value)}/"


def minute_of(seq: int) -> int:
    return ids.place_us(seq) // _MINUTE_US


def minute_range(minute: int) -> tuple[int, int]:
    """Return the first `seq` of a minute, and that of the next one."""
    first, end = minute * _MINUTE_US, (minute + 1) * _MINUTE_US
    return ids.place_at(first - 1) + 1 if minute else 0, ids.place_at(end - 1) + 1


def label_start(label: str, value: str, seq: int) -> str:
    """Return a text before the pointers of the minute of a `seq`, and of all earlier ones."""
    return f"{label_prefix(label, value)}{_MINUTE_LAST - minute_of(seq):09d}"


def label_key(scope: ScopeKey, label: str, value: str, seq: int, stamp: int) -> str:
    """Return the pointer to the snapshots with a label in the minute of a `seq`; newest first."""
    return f"{label_start(label, value, seq)}.{_address(scope)}.{stamp:016x}"


def line_prefix(tag: int) -> str:
    return f"{LINES}{tag:010x}/"


def line_key(scope: ScopeKey, line: str) -> str:
    return f"{line_prefix(ids.tag_of_place(int(line, 16)))}{_address(scope)}.{line}"


def parse_pointer(key: str) -> Pointer | None:
    found = next((found for each in _POINTERS if (found := each.fullmatch(key))), None)
    if found is None:
        return None
    parts = found.groupdict()
    session = unescape(parts.pop("session"), INDEX_NAME_BYTES_MAX)
    scope = unescape(parts.pop("scope"), INDEX_NAME_BYTES_MAX)
    if session is None or scope is None:
        return None
    return Pointer(_scope_of(session, scope, parts.pop("kind")), parts)
