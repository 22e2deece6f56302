"""The lines of an export: what stands in them, and what is accepted.

The first line names the format. Then come, for each scope, a line about the scope itself, its kept
snapshots in the order of their commits, its draft if it shows one, and its notes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from holdfast.core import codec, limits
from holdfast.core.document import decode_foreign
from holdfast.errors import Corrupt, InvalidInput
from holdfast.model import JSON, Note, ScopeKey, Snapshot, SnapshotRef

VERSION = 1
FIRST_LINE: Mapping[str, JSON] = {"type": "holdfast", "version": VERSION}


@dataclass(frozen=True, slots=True)
class ScopeRecord:
    """A scope that holds something, and the id of what it shows."""

    scope: ScopeKey
    head: str | None

    def to_json(self) -> dict[str, JSON]:
        """Return its line."""
        return {"type": "scope", **_address(self.scope), "head": self.head}


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot, wherever it is stored."""

    scope: ScopeKey
    id: str
    parent_id: str | None
    forked_from: SnapshotRef | None
    status: str
    labels: dict[str, str]
    metadata: dict[str, JSON]
    created_at: datetime
    kept: bool
    state: JSON

    @staticmethod
    def of(snapshot: Snapshot) -> "SnapshotRecord":
        """Return what of a snapshot is not the engine's."""
        names = SnapshotRecord.__slots__
        return SnapshotRecord(**{name: getattr(snapshot, name) for name in names})

    def to_json(self) -> dict[str, JSON]:
        """Return its line."""
        origin = self.forked_from
        return {
            "type": "snapshot",
            **_address(self.scope),
            "id": self.id,
            "parent_id": self.parent_id,
            "forked_from": None if origin is None else {**_address(origin.scope), "id": origin.id},
            "status": self.status,
            "labels": dict(sorted(self.labels.items())),
            "metadata": self.metadata,
            "created_at": self.created_at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "kept": self.kept,
            "state": self.state,
        }


@dataclass(frozen=True, slots=True)
class NoteRecord:
    """A note beside a scope, or on a snapshot id."""

    scope: ScopeKey
    on: str | None
    name: str
    value: JSON

    @staticmethod
    def of(scope: ScopeKey, note: Note) -> "NoteRecord":
        """Return what of a note is not the engine's."""
        return NoteRecord(scope, note.snapshot_id, note.name, note.value)

    def to_json(self) -> dict[str, JSON]:
        """Return its line."""
        return {
            "type": "note",
            **_address(self.scope),
            "on": self.on,
            "name": self.name,
            "value": self.value,
        }


Record: TypeAlias = ScopeRecord | SnapshotRecord | NoteRecord


def line_of(record: Record) -> bytes:
    """Return a record as a line."""
    # Each member by itself, since a state may be nested as deep as is allowed.
    members = (codec.encode(k) + b":" + codec.encode(v) for k, v in record.to_json().items())
    return b"{" + b",".join(members) + b"}\n"


def first_line() -> bytes:
    """Return the line that names the format."""
    return codec.encode(dict(FIRST_LINE)) + b"\n"


def read_lines(lines: Iterable[bytes]) -> Iterator[Record]:
    """Yield the records of an export.

    Raises:
        InvalidInput: it is no export, or a line of it is not understood; the message has its
            number.
    """
    number = 0
    for number, line in enumerate(lines, 1):
        if number == 1:
            _check_first(line)
        elif line.strip():
            yield _read(line, number)
    if not number:
        raise InvalidInput("this is no export of holdfast: it is empty")


def _check_first(line: bytes) -> None:
    try:
        found = decode_foreign(line)
    except Corrupt:
        found = None
    if not isinstance(found, dict) or found.get("type") != "holdfast":
        raise InvalidInput("this is no export of holdfast: the first line does not say so")
    if found.get("version") != VERSION:
        raise InvalidInput(
            f"this export is of another version. found=`{found.get('version')}` known=`{VERSION}`"
        )


def _read(line: bytes, number: int) -> Record:
    try:
        found: Any = decode_foreign(line)
    except Corrupt:
        raise InvalidInput(f"the line is not JSON: was it cut off? line=`{number}`") from None
    try:
        make = _MAKERS[found["type"]]
        return make(found)
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise InvalidInput(f"the line is not understood. line=`{number}`") from cause
    except InvalidInput as cause:
        raise InvalidInput(f"{cause} line=`{number}`") from None


def _address(scope: ScopeKey) -> dict[str, JSON]:
    return {"session_id": scope.session_id, "kind": scope.kind, "scope_id": scope.scope_id}


def _scope(found: Mapping[str, Any]) -> ScopeKey:
    return limits.check_scope(found["session_id"], found["scope_id"], found["kind"])


def _scope_record(found: Mapping[str, Any]) -> ScopeRecord:
    return ScopeRecord(_scope(found), _optional(found["head"]))


def _snapshot_record(found: Mapping[str, Any]) -> SnapshotRecord:
    origin = found["forked_from"]
    created_at = datetime.fromisoformat(found["created_at"])
    if created_at.tzinfo is None or not isinstance(found["kept"], bool):
        raise ValueError
    return SnapshotRecord(
        scope=_scope(found),
        id=limits.check_id("id", found["id"]),
        parent_id=_optional(found["parent_id"]),
        forked_from=None if origin is None else SnapshotRef(_scope(origin), origin["id"]),
        status=found["status"],
        labels=found["labels"],
        metadata=found["metadata"],
        created_at=created_at,
        kept=found["kept"],
        state=found["state"],
    )


def _note_record(found: Mapping[str, Any]) -> NoteRecord:
    name = limits.check_id("note name", found["name"])
    return NoteRecord(_scope(found), _optional(found["on"]), name, found["value"])


def _optional(id: object) -> str | None:
    return None if id is None else limits.check_id("id", id)


_MAKERS: Mapping[str, Callable[[Mapping[str, Any]], Record]] = {
    "scope": _scope_record,
    "snapshot": _snapshot_record,
    "note": _note_record,
}
