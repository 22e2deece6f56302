"""Writes records into a store, in the order of the source.

May be stopped at any point and repeated: existing records are compared, and written only if they
differ. A scope that holds other snapshots is not changed, since their order could not be preserved.
"""

from collections.abc import Iterator

from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.errors import Conflict, InvalidInput
from limpet.model import ScopeKey
from limpet.portable.reading import scope_records
from limpet.portable.records import ExportRecord, NoteRecord, ScopeRecord, SnapshotRecord, line_of


class ScopeWriter:
    """Writes the records of one scope, in their order."""

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
            raise Conflict(
                "the scope holds another snapshot at this position: it was saved here, or one was"
                " deleted in the source. Delete the scope in the target to copy it again."
                f" scope=`{_shown(self._scope.key)}` id=`{present.id}`"
            )
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
                f"the head was changed during the copy. scope=`{_shown(self._scope.key)}`"
            )

    def _check_at_end(self) -> None:
        present = self._next
        if isinstance(present, SnapshotRecord) and present.kept:
            raise Conflict(
                "the scope holds more snapshots than the source, where some were perhaps deleted."
                " Delete the scope in the target to copy it again."
                f" scope=`{_shown(self._scope.key)}` id=`{present.id}`"
            )


def _shown(key: ScopeKey) -> str:
    return f"{key.session_id}:{key.scope_id}"
