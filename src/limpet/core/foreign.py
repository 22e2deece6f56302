"""Recognising by its keys whose folder or bucket it is: ours, or one in a layout of Strands."""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

LayoutName: TypeAlias = Literal["classic", "unified", "messages"]

_SNAPSHOTS = (
    r"[^/]+/scopes/[^/]+/[^/]+/snapshots/"
    r"(?:snapshot_latest|manifest|immutable_history/snapshot_[^/]+)\.json"
)
_LAYOUTS: tuple[tuple[LayoutName, re.Pattern[str]], ...] = (
    ("classic", re.compile(_SNAPSHOTS)),
    ("unified", re.compile(f"session/{_SNAPSHOTS}")),
    (
        "messages",
        re.compile(r"session_[^/]+/(?:session|(?:multi_)?agents/(?:multi_)?agent_[^/]+/.+)\.json"),
    ),
)
_BELOW = "sessions/"
_OURS = re.compile(
    r"\.limpet/index/(?:alive|ids|labels|lines)/.+"
    r"|sessions/[^/]+/scopes/[^/]+/[^/]+/snapshots/(?:head|segments/.+|notes/.+)"
)
# The first format of stores in folders and buckets had documents of the classic layout.
_FIRST_FORMAT = re.compile(r"\.limpet/index/(?:snapshots|order)/.+")


class Foreign(NamedTuple):
    """What was recognised, and where `limpet import strands` finds it."""

    what: str
    below: str = ""


def layout_of(key: str) -> LayoutName | None:
    """Return the layout that a key is in, None if it is in none."""
    return next((name for name, pattern in _LAYOUTS if pattern.fullmatch(key)), None)


def recognise(keys: Iterable[str]) -> Foreign | None:
    """Return what the first known key says; None for a store of ours and for unknown keys."""
    for key in keys:
        if _OURS.fullmatch(key):
            return None
        if _FIRST_FORMAT.fullmatch(key):
            return Foreign("a store of an early version, before the first release", "/sessions")
        found = layout_of(key)
        if found is not None:
            return Foreign(f"sessions of the Strands SDK (layout {found})")
        if key.startswith(_BELOW) and layout_of(key.removeprefix(_BELOW)) == "classic":
            return Foreign("sessions of the Strands SDK (layout classic)", "/sessions")
    return None
