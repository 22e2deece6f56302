"""The public records: what the verbs take and give. Nothing in here does any work."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from reprlib import repr as short_repr
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


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many snapshots went, or would go, and how many bytes their encoded states have."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stats:
    """What a store or a session holds.

    `logical_bytes` is the sum of the encoded states, `stored_bytes` what they take in the engine.
    `largest` names what is biggest, with its bytes: sessions of a store by what is stored, or
    top-level keys of a session's current states (`scope_id:key`) by their encoding.
    """

    sessions: int
    scopes: int
    snapshots: int
    logical_bytes: int
    stored_bytes: int
    largest: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that `check` noticed.

    `severity` is `error` (something cannot be read or is wrong), `warning` (it works, but should
    not be so) or `info`; `code` is stable; `repaired` is True if `repair` has mended it.
    """

    severity: str
    code: str
    message: str
    scope: ScopeKey | None = None
    id: str | None = None
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two states, at a JSON Pointer.

    `path` leads into the new state, except for "removed", where it leads into the old one.
    "added" has no `before` and "removed" no `after` (None). For "moved" `before` and `after` are
    not values but the old and the new pointer; both can be the same text, as when a member of an
    object only takes another place in the order of its keys.
    """

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    path: str
    kind: Literal["added", "removed", "changed", "moved"]
    before: JSON
    after: JSON

    def __str__(self) -> str:
        where = self.path or "(the whole state)"
        if self.kind == "added":
            return f"+ {where}: {short_repr(self.after)}"
        if self.kind == "removed":
            return f"- {where}: {short_repr(self.before)}"
        if self.kind == "moved":
            same = self.before == self.after
            return f"> {where}: in another order" if same else f"> {where}: from {self.before}"
        return f"~ {where}: {short_repr(self.before)} -> {short_repr(self.after)}"


@dataclass(frozen=True, slots=True)
class Diff:
    """What changed from one state to another; falsy exactly when they are equal.

    As text it has one short line for each change. Values in it are those of the two states, not
    copies.
    """

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    changes: tuple[Change, ...]
    _patch: tuple[dict[str, JSON], ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.changes))

    def to_json_patch(self) -> list[dict[str, JSON]]:
        """Return RFC 6902 operations (add, remove, replace, move) from the old to the new state.

        The result is the new state exactly: types, and also the order of keys where the library
        that applies them keeps objects in order of insertion, as Python's dict does.
        """
        return [dict(operation) for operation in self._patch]
