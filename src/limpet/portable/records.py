"""The lines of an export: how they are written, parsed and checked.

The first line names the format. Then, for each scope: a line for the scope, its kept snapshots in
commit order, its draft if it has one, and its notes. The last line counts them; without it the
export is incomplete. Each line ends with a checksum of itself and of all lines before it, so that
a line that was changed, lost or moved is noticed before it is used. Exports may be concatenated in
one file.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from xxhash import xxh3_64

from limpet.core import codec, limits
from limpet.core.wire import time_json
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON, Note, ScopeKey, Snapshot, SnapshotRef

VERSION = 1
_NO_EXPORT = (
    "this is not an export, which `limpet export` writes: the first line does not name the format"
)
_BOM = b"\xef\xbb\xbf"
_CHECK = "check"
_SEAL = re.compile(rb',"check":"([0-9a-f]{16})"\}\Z')
_SEAL_BYTES = len(',"check":""}') + 16
_LINE_BYTES_MORE = limits.MIB  # of a line without its state and its metadata


@dataclass(frozen=True, slots=True)
class ScopeRecord:
    scope: ScopeKey
    head: str | None

    def to_json(self) -> dict[str, JSON]:
        return {"type": "scope", **_address(self.scope), "head": self.head}


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
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
        names = SnapshotRecord.__slots__
        return SnapshotRecord(**{name: getattr(snapshot, name) for name in names})

    def to_json(self) -> dict[str, JSON]:
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
            "created_at": time_json(self.created_at),
            "kept": self.kept,
            "state": self.state,
        }


@dataclass(frozen=True, slots=True)
class NoteRecord:
    scope: ScopeKey
    on: str | None
    name: str
    value: JSON

    @staticmethod
    def of(scope: ScopeKey, note: Note) -> "NoteRecord":
        return NoteRecord(scope, note.snapshot_id, note.name, note.value)

    def to_json(self) -> dict[str, JSON]:
        return {
            "type": "note",
            **_address(self.scope),
            "on": self.on,
            "name": self.name,
            "value": self.value,
        }


ExportRecord: TypeAlias = ScopeRecord | SnapshotRecord | NoteRecord


def line_of(record: ExportRecord) -> bytes:
    # Each member separately: a state may already have the maximal depth.
    members = (codec.encode(k) + b":" + codec.encode(v) for k, v in record.to_json().items())
    return b"{" + b",".join(members) + b"}\n"


def first_line() -> bytes:
    return codec.encode({"type": "limpet", "version": VERSION}) + b"\n"


def last_line(counts: "Counts") -> bytes:
    return codec.encode({"type": "end", **counts._asdict()}) + b"\n"


class LineChecks:
    """The checksums at the ends of the lines of one export."""

    def __init__(self) -> None:
        self._digest = xxh3_64()

    def add(self, line: bytes) -> bytes:
        """Return a line with its checksum."""
        self._digest.update(line[:-1])
        return b'%b,"check":"%b"}\n' % (line[:-2], self._digest.hexdigest().encode())

    def holds(self, line: bytes) -> bool:
        """Return whether a line, without its line feed, is the next one as it was written."""
        found = _SEAL.search(line, max(len(line) - _SEAL_BYTES, 0))
        self._digest.update(line[:-_SEAL_BYTES] + b"}")
        return found is not None and found[1].decode() == self._digest.hexdigest()


class Counts(NamedTuple):
    scopes: int = 0
    snapshots: int = 0
    notes: int = 0

    def plus(self, record: ExportRecord) -> "Counts":
        name = {ScopeRecord: "scopes", SnapshotRecord: "snapshots", NoteRecord: "notes"}
        field = name[type(record)]
        return self._replace(**{field: getattr(self, field) + 1})


class LineReader:
    """Iterates over the records of an export; `number` is the current line.

    Checksums are optional, for exports that other programs write: if the first line has one, all
    lines must, and otherwise none may.

    Raises:
        InvalidInput: it is not an export, or a line is not valid; the message has its number.
        Corrupt: a line was changed, lost or moved, the last one is missing, or has other counts.
    """

    def __init__(self, lines: Iterable[bytes], *, state_bytes_max: int) -> None:
        self._lines = lines
        self._bytes_max = 2 * state_bytes_max + _LINE_BYTES_MORE  # metadata may be as large
        self._checks: LineChecks | None = None
        self.number = 0

    def __iter__(self) -> Iterator[ExportRecord]:
        counts: Counts | None = None
        for line in self._bounded():
            text = line.removeprefix(_BOM) if self.number == 1 else line
            if not text.strip():
                continue
            found = self._decoded(text, is_first=counts is None)
            if counts is None:
                counts = Counts()
            elif found.get("type") == "end":
                if found != {"type": "end", **counts._asdict()}:
                    raise Corrupt(
                        f"the export is incomplete: lines are missing. line=`{self.number}`"
                    )
                counts = None
            else:
                record = self._record(found)
                counts = counts.plus(record)
                yield record
        if not self.number:
            raise InvalidInput("this is not an export, which `limpet export` writes: it is empty")
        if counts is not None:
            raise Corrupt(f"the export is incomplete: it has no last line. line=`{self.number}`")

    def _bounded(self) -> Iterator[bytes]:
        """Yield the lines, and read no more of a file than a line may have."""
        readline = getattr(self._lines, "readline", None)
        bytes_max = self._bytes_max
        lines = self._lines if readline is None else iter(lambda: readline(bytes_max + 1), b"")
        for number, line in enumerate(lines, 1):
            self.number = number
            if len(line) > bytes_max:
                raise InvalidInput(f"the line is too long. line=`{number}` max=`{bytes_max}`")
            yield line

    def _decoded(self, line: bytes, *, is_first: bool) -> dict[str, Any]:
        """Return a line as JSON, after its checksum was compared."""
        if not is_first:
            self._compare(line)
        found = self._parsed(line, is_first=is_first)
        if is_first:
            _check_first(found)
            self._checks = LineChecks() if _CHECK in found else None
            self._compare(line)
        elif self._checks is None and _CHECK in found:
            raise Corrupt(f"the first line was changed: it has no checksum. line=`{self.number}`")
        return {name: value for name, value in found.items() if name != _CHECK}

    def _compare(self, line: bytes) -> None:
        if self._checks is None or self._checks.holds(line.rstrip(b"\r\n")):
            return
        if not line.endswith(b"\n"):
            raise Corrupt(f"the export is incomplete. line=`{self.number}`")
        raise Corrupt(
            "the line was changed after it was written, or lines before it are missing."
            f" line=`{self.number}`"
        )

    def _parsed(self, line: bytes, *, is_first: bool) -> dict[str, Any]:
        try:
            found: Any = codec.decode_foreign(line)
        except Corrupt as damage:
            if is_first and self.number == 1:
                raise InvalidInput(_NO_EXPORT) from None
            if not line.endswith(b"\n"):
                raise Corrupt(f"the export is incomplete. line=`{self.number}`") from None
            why = str(damage.__cause__).partition(": line 1 ")[0]
            raise InvalidInput(f"the line is not JSON: {why}. line=`{self.number}`") from None
        if not isinstance(found, dict):
            raise InvalidInput(f"the line is not valid. line=`{self.number}`")
        return found

    def _record(self, found: dict[str, Any]) -> ExportRecord:
        try:
            return _MAKERS[found["type"]](found)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidInput(f"the line is not valid. line=`{self.number}`") from None
        except InvalidInput as cause:
            raise InvalidInput(f"{cause} line=`{self.number}`") from None


def _check_first(found: dict[str, Any]) -> None:
    version = found.get("version")
    if found.get("type") != "limpet":
        raise InvalidInput(_NO_EXPORT)
    if type(version) is not int or version != VERSION:
        raise InvalidInput(f"this export has another version. found=`{version}` known=`{VERSION}`")


def _address(scope: ScopeKey) -> dict[str, JSON]:
    return {"session_id": scope.session_id, "kind": scope.kind, "scope_id": scope.scope_id}


def _scope(found: Mapping[str, Any]) -> ScopeKey:
    return limits.check_scope(found["session_id"], found["scope_id"], found["kind"])


def _scope_record(found: Mapping[str, Any]) -> ScopeRecord:
    return ScopeRecord(_scope(found), _optional(found["head"]))


def _snapshot_record(found: Mapping[str, Any]) -> SnapshotRecord:
    origin = found["forked_from"]
    created_at = datetime.fromisoformat(found["created_at"])
    kinds = {"kept": bool, "labels": dict, "metadata": dict, "status": str}
    if created_at.tzinfo is None or any(type(found[k]) is not v for k, v in kinds.items()):
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


_MAKERS: Mapping[str, Callable[[Mapping[str, Any]], ExportRecord]] = {
    "scope": _scope_record,
    "snapshot": _snapshot_record,
    "note": _note_record,
}
