"""Copies a store to another one, and imports lines into a store."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.errors import AlreadyExists, Conflict, InvalidInput
from limpet.model import Finding, ScopeKey
from limpet.portable.reading import (
    OnFinding,
    OnProgress,
    Progress,
    scope_records,
    scopes_of,
    sessions_of,
    unlisted,
)
from limpet.portable.records import (
    ExportRecord,
    LineReader,
    NoteRecord,
    ScopeRecord,
    SnapshotRecord,
    line_of,
)
from limpet.portable.writing import ScopeWriter


@dataclass(frozen=True, slots=True)
class Carried:
    """What was transferred. `written` counts the snapshots and notes that were new or changed.

    `skipped` is what could not be: damaged data of the source, snapshots whose head is lost, and
    links in a folder.
    """

    sessions: int
    scopes: int
    snapshots: int
    notes: int
    written: int
    bytes: int
    skipped: tuple[Finding, ...] = ()


def copy(
    source: Store,
    target: Store,
    *,
    session_id: str | None = None,
    prefix: str = "",
    verify: bool = True,
    conflicts: OnFinding | None = None,
    report: OnProgress | None = None,
) -> Carried:
    """Copy a store, one session, or those of a prefix: ids, order, times, notes and lineage.

    May be interrupted and repeated: existing snapshots are compared and not written again. With
    `verify` every scope is read back from the target and compared with the source. Damaged data in
    the source is skipped. Saves during the copy may be left for the next one. Deletions in the
    source are not repeated in the target. With `conflicts` a scope in conflict is reported to it,
    and the others are copied.

    Raises:
        Conflict: a scope of the target holds other data than the source.
        InvalidInput: both are the same store.
    """
    if source.sync.driver.opened is target.sync.driver.opened:
        raise InvalidInput("a store cannot be copied to itself")
    transfer = _Transfer(report)
    for session in sessions_of(source, session_id=session_id, prefix=prefix):
        for scope in scopes_of(source, session):
            try:
                _copy_scope(source, target, scope.key, transfer, verify=verify)
            except (AlreadyExists, Conflict) as conflict:
                if conflicts is None:
                    raise
                conflicts(Finding("error", "conflict", str(conflict), scope.key))
    transfer.skipped += unlisted(source, session_id=session_id, prefix=prefix)
    return transfer.total()


def _copy_scope(
    source: Store, target: Store, key: ScopeKey, transfer: "_Transfer", *, verify: bool
) -> None:
    records = scope_records(source.scope(*key), skipped=transfer.skipped.append)
    first = next(records, None)
    if isinstance(first, ScopeRecord):
        read = transfer.write_scope(target, first, records)
        if verify:
            read.compare(target.scope(*key))


def import_lines(
    store: Store, lines: Iterable[bytes], *, report: OnProgress | None = None
) -> Carried:
    """Import the lines of `export_lines`. May be interrupted and repeated.

    Lines before an invalid one are imported.

    Raises:
        InvalidInput: a line is not valid. The message has its number.
        Corrupt: the export is incomplete, or a line was changed.
        Conflict: a scope of the store holds other data.
    """
    transfer = _Transfer(report)
    reader = LineReader(lines, state_bytes_max=store.driver.tools.state_bytes_max)
    try:
        _import(store, iter(reader), transfer)
    except InvalidInput as error:
        if "line=`" in str(error):
            raise
        stop = "" if str(error).endswith("`") else "."
        raise InvalidInput(f"{error}{stop} line=`{reader.number}`") from error
    return transfer.total()


def _import(store: Store, records: Iterator[ExportRecord], transfer: "_Transfer") -> None:
    scope = next(records, None)

    def until_next_scope() -> Iterator[ExportRecord]:
        nonlocal scope
        for record in records:
            if isinstance(record, ScopeRecord):
                scope = record
                return
            yield record
        scope = None

    while scope is not None:
        if not isinstance(scope, ScopeRecord):
            raise InvalidInput("the lines are not in order: this one is not below its scope")
        transfer.write_scope(store, scope, until_next_scope())


class _Transfer:
    def __init__(self, report: OnProgress | None) -> None:
        self._report = report
        self._session: str | None = None
        names = ("sessions", "scopes", "snapshots", "notes", "written", "bytes")
        self._counts = dict.fromkeys(names, 0)
        self.skipped: list[Finding] = []

    def write_scope(
        self, store: Store, scope: ScopeRecord, records: Iterator[ExportRecord]
    ) -> "_ScopeDigest":
        counts = self._counts
        if scope.scope.session_id != self._session:
            self._session = scope.scope.session_id
            counts["sessions"] += 1
        counts["scopes"] += 1
        writer = ScopeWriter(store, scope)
        read = _ScopeDigest()
        read.add(scope, line_of(scope))
        for record in records:
            line = line_of(record)
            read.add(record, line)
            if not isinstance(record, ScopeRecord):
                counts["written"] += writer.write(record)
            counts["bytes"] += len(line)
            counts["snapshots" if isinstance(record, SnapshotRecord) else "notes"] += 1
            if self._report is not None:
                self._report(Progress(counts["sessions"], counts["snapshots"], counts["bytes"]))
        writer.finish()
        return read

    def total(self) -> Carried:
        return Carried(**self._counts, skipped=tuple(self.skipped))


class _ScopeDigest:
    """A digest of the records of a scope, to compare two stores in bounded memory."""

    def __init__(self) -> None:
        self._snapshots = blake2b()
        self._notes: set[bytes] = set()

    def add(self, record: ExportRecord, line: bytes) -> None:
        if isinstance(record, NoteRecord):
            self._notes.add(blake2b(line, digest_size=16).digest())
        else:
            self._snapshots.update(line)

    def compare(self, target: Scope) -> None:
        """Raise Conflict if the target does not hold all of this; it may have more notes."""
        found = _ScopeDigest()
        for record in scope_records(target):
            found.add(record, line_of(record))
        same = found._snapshots.digest() == self._snapshots.digest()
        if not same or not self._notes <= found._notes:
            where = f"{target.session_id}:{target.scope_id}"
            raise Conflict(f"the copy differs from the source. scope=`{where}`")
