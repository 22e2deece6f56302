"""The public records: what the verbs take and give. Nothing in here does any work."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

JSON: TypeAlias = Any
"""Any JSON value: None, bool, int, float, str, list or dict with text keys, nested."""


class Sentinel(Enum):
    """Values that no caller's data can be mistaken for."""

    HEAD = "HEAD"
    ANY = "ANY"
    SAME = "SAME"

    def __repr__(self) -> str:
        return self.value


HEAD: Final = Sentinel.HEAD
"""`parent=HEAD`: the parent is what the scope shows now (the default)."""

ANY: Final = Sentinel.ANY
"""`expect=ANY`: do not compare (the default)."""

SAME: Final = Sentinel.SAME

Parent: TypeAlias = str | Literal[Sentinel.HEAD] | None
Expect: TypeAlias = str | Literal[Sentinel.ANY] | None
Same: TypeAlias = Literal[Sentinel.SAME]


class ScopeKey(NamedTuple):
    """The address of a scope: `store.scope(*info.scope)` goes there."""

    session_id: str
    scope_id: str = "main"
    kind: str = "agent"


class SnapshotRef(NamedTuple):
    """The address of one snapshot, in whatever scope."""

    scope: ScopeKey
    id: str


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """Everything about a snapshot except its state.

    `revision` is opaque and names one written version; `kept` tells whether it stands in history;
    `size` is the number of bytes of the encoded state. Times are aware and in UTC.
    """

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # labels and metadata are dicts

    scope: ScopeKey
    id: str
    parent_id: str | None
    forked_from: SnapshotRef | None
    status: str
    labels: dict[str, str]
    metadata: dict[str, JSON]
    created_at: datetime
    updated_at: datetime
    revision: str
    kept: bool
    size: int

    @property
    def session_id(self) -> str:
        """The session that the snapshot belongs to."""
        return self.scope.session_id


@dataclass(frozen=True, slots=True)
class Snapshot(SnapshotInfo):
    """A snapshot with its state, which is the reader's own copy."""

    __hash__: ClassVar[None] = None

    state: JSON

    def with_(
        self,
        *,
        state: JSON | Same = SAME,
        status: str | Same = SAME,
        labels: dict[str, str] | Same = SAME,
        metadata: dict[str, JSON] | Same = SAME,
    ) -> "Snapshot":
        """Return a copy with what is given replaced whole; for use inside `update`."""
        given = {"state": state, "status": status, "labels": labels, "metadata": metadata}
        changes: dict[str, Any] = {k: v for k, v in given.items() if v is not SAME}
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class ScopeInfo:
    """A scope and what it shows now; `head` is None where there is no current state."""

    key: ScopeKey
    head: SnapshotInfo | None


@dataclass(frozen=True, slots=True)
class Note:
    """A small named document beside a scope, or beside a snapshot id (`snapshot_id`)."""

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    name: str
    value: JSON
    revision: str
    updated_at: datetime
    snapshot_id: str | None
