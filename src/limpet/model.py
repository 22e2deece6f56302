"""The public records: arguments and results of the methods."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # part of every type checker

    State = TypeVar("State", default=Any)
else:
    from typing import TypeVar

    State = TypeVar("State")

JSON: TypeAlias = Any
"""Any JSON value: None, bool, int, float, str, list, or dict with text keys, nested."""


class Sentinel(Enum):
    """Default values that cannot be confused with a caller's data."""

    HEAD = "HEAD"
    ANY = "ANY"
    SAME = "SAME"

    def __repr__(self) -> str:
        return self.value


HEAD: Final = Sentinel.HEAD
"""`parent=HEAD`: the parent is the current head (the default)."""

ANY: Final = Sentinel.ANY
"""`expect=ANY`: do not compare (the default)."""

SAME: Final = Sentinel.SAME

Parent: TypeAlias = str | Literal[Sentinel.HEAD] | None
Expect: TypeAlias = str | Literal[Sentinel.ANY] | None
Same: TypeAlias = Literal[Sentinel.SAME]


class ScopeKey(NamedTuple):
    """The address of a scope.

    Example:
        key = limpet.ScopeKey("chat-42", "planner")
        chat = store.scope(*key)
    """

    session_id: str
    scope_id: str = "main"
    kind: str = "agent"


class SnapshotRef(NamedTuple):
    """The address of one snapshot: its scope, and its id there.

    Example:
        ref = limpet.SnapshotRef(chat.key, "step-7")
        print(chat.load(ref).state)
    """

    scope: ScopeKey
    id: str


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """Everything about a snapshot except its state.

    Example:
        info = chat.save({"messages": []}, labels={"run_id": "r-7"})
        print(info.id, info.revision, info.labels)

    Attributes:
        scope: the scope that it belongs to.
        id: unique within the scope.
        parent_id: the snapshot that it follows, which may have been deleted; None for a root.
        forked_from: the snapshot that this one is a copy of, if it began a fork.
        status, labels, metadata: as saved.
        created_at, updated_at: aware times in UTC.
        revision: opaque text that names this version; pass it as `expect`.
        kept: whether it is in history; False for a draft.
        size: the bytes of the encoded state.
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
class Snapshot(SnapshotInfo, Generic[State]):
    """A snapshot with its state, which is the caller's own copy.

    Example:
        print(chat.load().state)

    Attributes:
        state: any JSON, or in a scope with a model an object of it; the rest is that of
            `SnapshotInfo`.
    """

    __hash__: ClassVar[None] = None

    state: State

    def with_(
        self,
        *,
        state: State | Same = SAME,
        status: str | Same = SAME,
        labels: dict[str, str] | Same = SAME,
        metadata: dict[str, JSON] | Same = SAME,
    ) -> "Snapshot[State]":
        """Return a copy in which the given fields are replaced whole; for use inside `update`.

        Example:
            chat.update("step-7", lambda snapshot: snapshot.with_(status="done"))

        Args:
            state, status, labels, metadata: the new values; what is not given stays.
        """
        given = {"state": state, "status": status, "labels": labels, "metadata": metadata}
        changes: dict[str, Any] = {k: v for k, v in given.items() if v is not SAME}
        return replace(self, **changes)


SnapshotLike: TypeAlias = str | SnapshotInfo | SnapshotRef
"""How methods take a snapshot: its id, what `save`, `history` or `load` gave, or its address."""


@dataclass(frozen=True, slots=True)
class ScopeInfo:
    """A scope and its head; `head` is None if there are only notes or a lease.

    `revision` changes with anything in the scope, also with its notes and its lease.

    Example:
        for each in store.scopes(): print(each.key, each.head)
    """

    key: ScopeKey
    head: SnapshotInfo | None
    revision: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Note:
    """A small named document of a scope, or of one snapshot id (`snapshot_id`).

    Example:
        note = chat.set_note("title", "A trip to Lisbon")
        print(note.value, note.revision)
    """

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    name: str
    value: JSON
    revision: str
    updated_at: datetime
    snapshot_id: str | None


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many snapshots were (or would be) deleted, and the bytes of their encoded states.

    Example:
        print(chat.prune(keep_last=1, dry_run=True).count)
    """

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Redacted:
    """How many snapshots and notes were changed.

    Example:
        print(chat.redact("/mood").snapshots)
    """

    snapshots: int
    notes: int


@dataclass(frozen=True, slots=True)
class Stats:
    """The size of a store or a session.

    Example:
        print(store.stats().snapshots)

    `logical_bytes` is the sum of the encoded states, `stored_bytes` what they take in the engine.
    `largest` names the largest parts with their bytes: sessions of a store by what is stored, or
    top-level keys in the 256 largest heads of a session (`scope_id:key`) by their encoding.
    """

    sessions: int
    scopes: int
    snapshots: int
    logical_bytes: int
    stored_bytes: int
    largest: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that `check` found.

    Example:
        for finding in store.check(): print(finding.code, finding.message)

    `severity` is `error` (something is wrong or cannot be read), `warning` (it works, but should
    not be so) or `info`. `code` never changes. `repaired` is True if `repair` has repaired it.
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

    Example:
        for change in chat.diff("step-7", "step-8").changes: print(change.kind, change.path)

    `path` points into the new state, for "removed" into the old one. "added" has no `before` and
    "removed" no `after` (None). For "moved", `before` and `after` are not values but the old and
    the new pointer; they are equal if only the order of an object's keys has changed.
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

    Example:
        diff = chat.diff("step-7", "step-8")
        print(diff, diff.to_json_patch())

    `str(diff)` has one short line for each change. The values are those of the states, not copies.
    """

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    changes: tuple[Change, ...]
    # (operation, path, value or for a move the old path)
    _patch: tuple[tuple[str, str, JSON], ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        return "\n".join(map(str, self.changes))

    def to_json_patch(self) -> list[dict[str, JSON]]:
        """Return RFC 6902 operations (add, remove, replace, move) from the old to the new state.

        The result is the new state exactly: types, and also the order of keys where the library
        that applies them keeps objects in order of insertion, as Python's dict does.
        """
        return [_operation(*each) for each in self._patch]


def _operation(op: str, path: str, value: JSON) -> dict[str, JSON]:
    if op == "remove":
        return {"op": op, "path": path}
    if op == "move":
        return {"op": op, "from": value, "path": path}
    return {"op": op, "path": path, "value": value}
