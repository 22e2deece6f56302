"""A diff as rows for a person to read."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.model import JSON, Diff
from holdfast.views.names import visible

_MARKS = {"added": "+", "removed": "-", "changed": "~", "moved": ">"}


class Row(NamedTuple):
    """One change: its mark, where it is, and what was and is there, as text on one line each.

    `before` is None for what was added, and `after` for what was removed. A moved value has its
    old place as `before` and its new one as `after`.
    """

    mark: str
    path: str
    before: str | None
    after: str | None


def diff_rows(diff: Diff) -> Iterator[Row]:
    """Yield a row for each change, in the order of the diff."""
    for change in diff.changes:
        shown = dotted if change.kind == "moved" else brief
        yield Row(
            _MARKS[change.kind],
            dotted(change.path),
            None if change.kind == "added" else shown(change.before),
            None if change.kind == "removed" else shown(change.after),
        )


def dotted(pointer: str) -> str:
    """Return a JSON Pointer as people write it: `messages.3.content`; `.` is the whole state."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    return visible(".".join(parts)) or "."


def brief(value: JSON) -> str:
    """Return a value as one line: a text as it is, a message as who said what, the rest as JSON."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict) and isinstance(value.get("content"), str):
        speaker = value.get("name") or value.get("role")
        if isinstance(speaker, str):
            return visible(f"{speaker}: {value['content']}")
    return visible(json.dumps(value, ensure_ascii=False))
