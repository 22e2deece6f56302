"""Copies a store to another one, and imports lines into a store."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from threading import Lock

from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.backends.observed import Observed
from limpet.core.encryption import WrongKeys
from limpet.engine import Engine, moving
from limpet.engine.moving import Changed, Elsewhere, Part
from limpet.errors import AlreadyExists, Conflict, Corrupt, InvalidInput, Unavailable
from limpet.model import Finding, ScopeKey
from limpet.portable.reading import (
    OnFinding,
    OnProgress,
    Progress,
    scope_records,
    scopes_of,
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
from limpet.protocol import OWN_SESSION

_TRIES_MAX = 20
_THREADS = 8
_CHUNK = 64  # scopes


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

    Scopes are copied as they are stored, with their revisions. Over HTTP, and where the source is
    damaged or the target has the scope from elsewhere, they are copied snapshot by snapshot.

    May be interrupted and repeated: what is there is compared and not written again. With
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
    transfer, one, other = Transfer(report), engine_of(source), engine_of(target)

    def copy_one(key: ScopeKey) -> None:
        try:
            if not (one and other and transfer.move(one, other, key, verify=verify)):
                transfer.copy_scope(source, target, key, verify=verify)
        except (AlreadyExists, Conflict) as conflict:
            if conflicts is None:
                raise
            conflicts(Finding("error", "conflict", str(conflict), key))

    keys = scopes_of(source, session_id=session_id, prefix=prefix)
    with ThreadPoolExecutor(_THREADS) as pool:  # SQLite makes one commit of several
        for at in range(0, len(keys), _CHUNK):
            for _ in pool.map(copy_one, keys[at : at + _CHUNK]):
                pass
    transfer.skipped += unlisted(source, session_id=session_id, prefix=prefix)
    return transfer.total()


def engine_of(store: Store) -> Engine | None:
    """Return the engine of a store; None if another process has it."""
    backend: object = store.driver.run(lambda backend: backend)
    while isinstance(backend, Observed):
        backend = backend.below
    return backend if isinstance(backend, Engine) else None


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
    transfer = Transfer(report)
    reader = LineReader(lines, state_bytes_max=store.driver.tools.state_bytes_max)
    try:
        _import(store, iter(reader), transfer)
    except InvalidInput as error:
        if "line=`" in str(error):
            raise
        stop = "" if str(error).endswith("`") else "."
        raise InvalidInput(f"{error}{stop} line=`{reader.number}`") from error
    return transfer.total()


def _import(store: Store, records: Iterator[ExportRecord], transfer: "Transfer") -> None:
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


class Transfer:
    """Counts what is transferred, and reports it."""

    def __init__(self, report: OnProgress | None) -> None:
        self._report = report
        self._lock = Lock()
        self._sessions: set[str] = set()
        self._scopes: set[ScopeKey] = set()
        names = ("sessions", "scopes", "snapshots", "notes", "written", "bytes")
        self._counts = dict.fromkeys(names, 0)
        self.skipped: list[Finding] = []

    def _begin(self, key: ScopeKey) -> None:
        with self._lock:
            self._scopes.add(key)
            if key.session_id != OWN_SESSION:
                self._sessions.add(key.session_id)
        self._add()

    def count(self, key: ScopeKey, *, snapshots: int) -> None:
        """Count a scope that is there already."""
        self._begin(key)
        self._add(snapshots=snapshots)

    def _add(self, **more: int) -> None:
        counts = self._counts
        with self._lock:
            for name, count in more.items():
                counts[name] += count
            counts |= {"sessions": len(self._sessions), "scopes": len(self._scopes)}
            if self._report is not None:
                self._report(Progress(counts["sessions"], counts["snapshots"], counts["bytes"]))

    def move(
        self, source: Engine, target: Engine, key: ScopeKey, *, mirror: bool = False, verify: bool
    ) -> bool:
        """Copy a scope as it is stored; with `mirror` the other one becomes equal to it.

        Return False if that cannot be: it is damaged, or the other one is from elsewhere.
        """
        done = cleared = False
        for _ in range(_TRIES_MAX):
            try:
                self._move(source, target, key, mirror=mirror, verify=verify)
                done = True
            except Changed:
                continue
            except _Unreadable as damage:
                if mirror and isinstance(damage.__cause__, WrongKeys):
                    raise damage.__cause__ from None
            except (Conflict, Corrupt, Elsewhere) as cause:
                if not cleared and (mirror or _is_unfinished(target, key)):
                    target.delete_scope(key)
                    cleared = True
                    continue
                if isinstance(cause, Conflict):
                    raise
            if _is_unfinished(target, key):  # nobody would see it
                target.delete_scope(key)
            return done
        raise Unavailable(f"the scope keeps being changed. scope=`{_text_of(key)}`")

    def _move(
        self, source: Engine, target: Engine, key: ScopeKey, *, mirror: bool, verify: bool
    ) -> None:
        write = partial(target.write_part, mirror=mirror)
        for number, part in enumerate(_parts(source, key)):
            if number == 0 and part.last is not None and not _is_unfinished(target, key):
                for each in _parts(source, key):  # all of it can be moved, or nothing changes
                    mirror or write(each, verify=True)
            written = write(part)
            self._begin(key)
            found = {"snapshots": len(part.rows), "notes": len(part.notes), "bytes": part.size}
            self._add(written=written, **found)
            if verify and write(part, verify=True):
                raise Conflict(f"the copy differs from the source. scope=`{_text_of(key)}`")

    def copy_scope(self, source: Store, target: Store, key: ScopeKey, *, verify: bool) -> None:
        """Copy a scope snapshot by snapshot; what is damaged is skipped."""
        records = scope_records(source.scope(*key), skipped=self.skipped.append)
        first = next(records, None)
        if isinstance(first, ScopeRecord):
            read, found = self.write_scope(target, first, records), _Digest()
            for record in scope_records(target.scope(*key)) if verify else ():
                found.add(record, line_of(record))
            same = found.snapshots.digest() == read.snapshots.digest()
            if verify and not (same and read.notes <= found.notes):  # it may have more
                raise Conflict(f"the copy differs from the source. scope=`{_text_of(key)}`")

    def write_scope(
        self, store: Store, scope: ScopeRecord, records: Iterator[ExportRecord]
    ) -> "_Digest":
        self._begin(scope.scope)
        writer = ScopeWriter(store, scope)
        read = _Digest()
        read.add(scope, line_of(scope))
        for record in records:
            line = line_of(record)
            read.add(record, line)
            written = isinstance(record, ScopeRecord) or writer.write(record)
            kind = "snapshots" if isinstance(record, SnapshotRecord) else "notes"
            self._add(written=written, bytes=len(line), **{kind: 1})
        writer.finish()
        return read

    def total(self) -> Carried:
        return Carried(**self._counts, skipped=tuple(self.skipped))


class _Unreadable(Exception):
    """The source is Corrupt."""


def _parts(source: Engine, key: ScopeKey) -> Iterator[Part]:
    part: Part | None = None
    while part is None or part.last is not None:
        try:
            part = source.storage.read(key, partial(moving.read_part, before=part))
        except Corrupt as damage:
            raise _Unreadable from damage
        if part is None:
            return
        yield part


def _is_unfinished(target: Engine, key: ScopeKey) -> bool:
    with suppress(Corrupt):
        return target.storage.read(key, moving.is_unfinished)
    return False


class _Digest:
    """A digest of the records of a scope, to compare two stores in bounded memory."""

    def __init__(self) -> None:
        self.snapshots = blake2b()
        self.notes: set[bytes] = set()

    def add(self, record: ExportRecord, line: bytes) -> None:
        if isinstance(record, NoteRecord):
            self.notes.add(blake2b(line, digest_size=16).digest())
        else:
            self.snapshots.update(line)


class ScopeWriter:
    """Writes the records of one scope, in their order.

    May be stopped at any point and repeated: existing records are compared, and written only if
    they differ. A scope that holds other snapshots is not changed, since their order could not be
    preserved.
    """

    def __init__(self, store: Store, record: ScopeRecord) -> None:
        self._scope: Scope = store.scope(*record.scope)
        self._head_id = record.head
        self._passed_head = record.head is None
        present = scope_records(self._scope)
        self._present: Iterator[ExportRecord] = (
            r for r in present if not isinstance(r, ScopeRecord)
        )
        self._next = next(self._present, None)

    def write(self, record: SnapshotRecord | NoteRecord) -> bool:
        """Write one record if it is new or changed; return whether it was.

        Raises:
            Conflict: the scope holds other data.
        """
        if record.scope != self._scope.key:
            raise InvalidInput("the lines are not in order: this one is not below its scope")
        if isinstance(record, NoteRecord):
            return self._write_note(record)
        return self._write_kept(record) if record.kept else self._write_draft(record)

    def _write_kept(self, record: SnapshotRecord) -> bool:
        becomes_head = not self._passed_head
        if record.id == self._head_id:
            self._passed_head = True
        present = self._next
        if not isinstance(present, SnapshotRecord) or not present.kept:
            self._drop_draft()  # moving the head would drop it, or it is kept now
            self._save(record, head=becomes_head)
            return True
        if present.id != record.id or present.created_at != record.created_at:
            raise self._conflict("another snapshot at this position", present)
        self._next = next(self._present, None)
        if line_of(present) == line_of(record):
            return False
        self._save(record, head=becomes_head, overwrite=True)
        return True

    def _write_draft(self, record: SnapshotRecord) -> bool:
        self._check_at_end()
        present = self._next
        if isinstance(present, SnapshotRecord) and line_of(present) == line_of(record):
            return False
        self._drop_draft()
        self._save(record, head=True)
        return True

    def _drop_draft(self) -> None:
        if isinstance(self._next, SnapshotRecord):
            self._scope.delete_snapshot(self._next.id)
            self._next = None

    def _save(self, record: SnapshotRecord, *, head: bool, overwrite: bool = False) -> None:
        self._scope.save(
            record.state,
            id=record.id,
            parent=record.parent_id,
            keep=record.kept,
            head=head,
            overwrite=overwrite,
            status=record.status,
            labels=record.labels,
            metadata=record.metadata,
            created_at=record.created_at,
            forked_from=record.forked_from,
        )

    def _write_note(self, record: NoteRecord) -> bool:
        found = self._scope.note(record.name, on=record.on)
        if found is not None and line_of(NoteRecord.of(self._scope.key, found)) == line_of(record):
            return False
        self._scope.set_note(record.name, record.value, on=record.on)
        return True

    def finish(self) -> None:
        """Give the scope the same head as the source.

        Raises:
            Conflict: the scope holds more than was written.
        """
        self._check_at_end()
        shown = self._scope.load()
        if shown is not None and not shown.kept and shown.id != self._head_id:
            self._scope.delete_snapshot(shown.id)  # a draft that the source no longer has
        elif shown is not None and shown.id != self._head_id:
            # A deletion in the source made its newest snapshot the head: so does this one.
            draft = self._scope.save(shown.state, keep=False, expect=shown.revision)
            self._scope.delete_snapshot(draft.id)
        now = self._scope.info()
        if self._head_id != (None if now is None else now.id):
            raise Conflict(
                f"the head was changed during the copy. scope=`{_text_of(self._scope.key)}`"
            )

    def _check_at_end(self) -> None:
        present = self._next
        if isinstance(present, SnapshotRecord) and present.kept:
            raise self._conflict("more snapshots than the source", present)

    def _conflict(self, what: str, present: SnapshotRecord) -> Conflict:
        return Conflict(
            f"the scope holds {what}: it was saved here, or one was deleted in the source. Delete"
            " the scope in the target to copy it again."
            f" scope=`{_text_of(self._scope.key)}` id=`{present.id}`"
        )


def _text_of(key: ScopeKey) -> str:
    return f"{key.session_id}:{key.scope_id}"
