"""The records of `SnapshotStorage`, and what can be an identifier.

`data` and `app_data` are passed through unchanged, so they may be any JSON.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

from limpet.compat.wire import WireRecord, shown
from limpet.errors import InvalidInput
from limpet.model import JSON

Wire: TypeAlias = dict[str, JSON]

FACADE: Final = "strands"  # in metadata: the document of a snapshot without its `data`
SCOPES = ("agent", "multiAgent")
SCHEMA_VERSION = "1.0"
IDENTIFIER_CHARS_MAX = 200  # longer ones cannot be file names as they are

_IDENTIFIER = re.compile(r"[a-z0-9_-]+")
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def is_identifier(text: str) -> bool:
    return len(text) <= IDENTIFIER_CHARS_MAX and _IDENTIFIER.fullmatch(text) is not None


def is_uuid7(text: str) -> bool:
    """Return whether a text is a UUID of version 7, whose text order is its time order."""
    return _UUID7.fullmatch(text) is not None


def check_identifier(name: str, value: object) -> str:
    if not isinstance(value, str) or not is_identifier(value):
        raise InvalidInput(
            f"an identifier has 1 to {IDENTIFIER_CHARS_MAX} lowercase letters, digits, hyphens and "
            f"underscores. {name}=`{shown(value)}`"
        )
    return value


@dataclass(frozen=True)
class SnapshotLocation(WireRecord):
    """Where the snapshots of one agent, or of one multi-agent graph, are in a session."""

    session_id: str
    scope: str
    scope_id: str
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)

    def check(self) -> Self:
        check_identifier("session_id", self.session_id)
        if not isinstance(self.scope, str) or self.scope not in SCOPES:
            raise InvalidInput(f"scope must be agent or multiAgent. scope=`{shown(self.scope)}`")
        check_identifier("scope_id", self.scope_id)
        return self


@dataclass(frozen=True)
class Snapshot(WireRecord):
    """The state of an agent at one moment. `created_at` is text, kept as given."""

    scope: str
    schema_version: str
    created_at: str
    data: JSON
    app_data: JSON = field(default_factory=dict)
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class SnapshotManifest(WireRecord):
    """The manifest of a scope. `updated_at` is text, kept as given."""

    schema_version: str
    updated_at: str
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class SnapshotPage(WireRecord):
    """A page of ids. `next_token` is the `start_after` of the next one, None on the last."""

    snapshot_ids: tuple[str, ...]
    next_token: str | None = None
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "snapshot_ids", tuple(self.snapshot_ids))

    def to_json(self) -> dict[str, JSON]:
        """Return the wire dict, without a token on the last page."""
        wire = super().to_json()
        if self.next_token is None:
            del wire["nextToken"]
        return {**wire, "snapshotIds": list(self.snapshot_ids)}
