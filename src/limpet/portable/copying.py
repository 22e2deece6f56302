"""From one store to another, and from lines into a store."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.errors import AlreadyExists, Conflict, InvalidInput
from limpet.model import Finding, ScopeKey
from limpet.portable.reading import (
    Progress,
    Report,
    Tell,
    scope_records,
    scopes_of,
    sessions_of,
)
from limpet.portable.records import (
    NoteRecord,
    Reader,
    Record,
    ScopeRecord,
    SnapshotRecord,
    line_of,
)
from limpet.portable.writing import ScopeWriter


@dataclass(frozen=True, slots=True)
class Carried:
    """What was carried over. `written` of the snapshots and notes were not there before.

    `skipped` tells what is damaged in the source, and was left out.
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
    conflicts: Tell | None = None,
    report: Report | None = None,
) -> Carried:
    """Copy a store, one session of it, or those of a prefix: ids, order, times, notes and lineage.

    May be interrupted and repeated: what is there already is compared and left alone, and so is
    what the target holds besides. With `verify` every scope is read again from the target and
    compared with what was read from the source. What is damaged in the source is left out, and
    told. What is saved in the source meanwhile may be left for the next time, and what was deleted
    in it since an earlier copy is not deleted here. A scope in conflict is told to `conflicts`, and
    the others are copied; without it, Conflict is raised.

    Raises:
        Conflict: something else was saved in a scope of the target, or what it holds then is not
            what was read from the source.
        InvalidInput: both are the same store.
    """
    if source.sync.driver.opened is target.sync.driver.opened:
        raise InvalidInput("a store cannot be copied to itself")
    count = _Count(report)
    for session in sessions_of(source, session_id=session_id, prefix=prefix):
        for scope in scopes_of(source, session):
            try:
                _copy_scope(source, target, scope.key, count, verify=verify)
            except (AlreadyExists, Conflict) as conflict:
                if conflicts is None:
                    raise
                conflicts(Finding("error", "conflict", str(conflict), scope.key))
    return count.total()


def _copy_scope(
    source: Store, target: Store, key: ScopeKey, count: "_Count", *, verify: bool
) -> None:
    records = scope_records(source.scope(*key), skipped=count.skipped.append)
    first = next(records, None)
    if isinstance(first, ScopeRecord):
        read = count.take(target, first, records)
        if verify:
            read.compare(target.scope(*key))


def import_lines(store: Store, lines: Iterable[bytes], *, report: Report | None = None) -> Carried:
    """Write what `export_lines` gave into a store. May be interrupted and repeated.

    What stood before a line that is refused was written.

    Raises:
        InvalidInput: a line is not understood, or not acceptable. The message has its number.
        Corrupt: the export is cut off.
        Conflict: something else was saved in a scope of it.
    """
    count = _Count(report)
    reader = Reader(lines)
    try:
        _import(store, iter(reader), count)
    except InvalidInput as error:
        if "line=`" in str(error):
            raise
        stop = "" if str(error).endswith("`") else "."
        raise InvalidInput(f"{error}{stop} line=`{reader.number}`") from error
    return count.total()


def _import(store: Store, records: Iterator[Record], count: "_Count") -> None:
    first = next(records, None)
    while first is not None:
        if not isinstance(first, ScopeRecord):
            raise InvalidInput("a line stands outside its scope: the lines are not in order")
        rest: list[Record] = []
        count.take(store, first, _until_scope(records, rest))
        first = rest[0] if rest else None


def _until_scope(records: Iterator[Record], rest: list[Record]) -> Iterator[Record]:
    """Yield records up to that of the next scope, which is left in `rest`."""
    for record in records:
        if isinstance(record, ScopeRecord):
            rest.append(record)
            return
        yield record


class _Count:
    """Writes scopes, and counts what they hold."""

    def __init__(self, report: Report | None) -> None:
        self._report = report
        self._session: str | None = None
        self._sessions = self._scopes = self._snapshots = self._notes = 0
        self._written = self._bytes = 0
        self.skipped: list[Finding] = []

    def take(self, store: Store, scope: ScopeRecord, records: Iterator[Record]) -> "_Read":
        """Write one scope; return what was read."""
        if scope.scope.session_id != self._session:
            self._session = scope.scope.session_id
            self._sessions += 1
        self._scopes += 1
        writer = ScopeWriter(store, scope)
        read = _Read()
        read.add(scope, line_of(scope))
        for record in records:
            line = line_of(record)
            read.add(record, line)
            if not isinstance(record, ScopeRecord):
                self._written += writer.take(record)
            self._bytes += len(line)
            is_snapshot = isinstance(record, SnapshotRecord)
            self._snapshots += is_snapshot
            self._notes += not is_snapshot
            if self._report is not None:
                self._report(Progress(self._sessions, self._snapshots, self._bytes))
        writer.finish()
        return read

    def total(self) -> Carried:
        """Return the counts."""
        return Carried(
            self._sessions,
            self._scopes,
            self._snapshots,
            self._notes,
            self._written,
            self._bytes,
            tuple(self.skipped),
        )


class _Read:
    """What was read from a scope: enough to know it again."""

    def __init__(self) -> None:
        self._snapshots = blake2b()
        self._notes: set[bytes] = set()

    def add(self, record: Record, line: bytes) -> None:
        """Take the next record."""
        if isinstance(record, NoteRecord):
            self._notes.add(blake2b(line, digest_size=16).digest())
        else:
            self._snapshots.update(line)

    def compare(self, target: Scope) -> None:
        """Read a scope again; notes that only the target has do no harm.

        Raises:
            Conflict: it does not hold all of this.
        """
        found = _Read()
        for record in scope_records(target):
            found.add(record, line_of(record))
        same = found._snapshots.digest() == self._snapshots.digest()
        if not same or not self._notes <= found._notes:
            shown = f"{target.session_id}:{target.scope_id}"
            raise Conflict(
                f"the target does not hold what was read from the source. scope=`{shown}`"
            )
