"""Writing records into a store, so that it holds what the source held, in the same order.

May be stopped at any point and begun again: what is there already is compared and left. A scope in
which something else was saved is not touched, since the order of its history could not be kept.
"""

from collections.abc import Iterator

from limpet.api.scope import Scope
from limpet.api.store import Store
from limpet.errors import Conflict, InvalidInput
from limpet.model import ScopeKey
from limpet.portable.reading import scope_records
from limpet.portable.records import NoteRecord, Record, ScopeRecord, SnapshotRecord, line_of


class ScopeWriter:
    """Takes the records of one scope, in their order."""

    def __init__(self, store: Store, record: ScopeRecord) -> None:
        self._scope: Scope = store.scope(*record.scope)
        self._head_id = record.head
        self._passed_head = record.head is None
        present = scope_records(self._scope)
        self._present: Iterator[Record] = (r for r in present if not isinstance(r, ScopeRecord))
        self._next = next(self._present, None)

    @property
    def key(self) -> ScopeKey:
        """The scope that is written."""
        return self._scope.key

    def take(self, record: SnapshotRecord | NoteRecord) -> bool:
        """Write one record, and tell whether that was needed.

        Raises:
            Conflict: the scope holds something else.
        """
        if record.scope != self.key:
            raise InvalidInput("a line stands outside its scope: the lines are not in order")
        if isinstance(record, NoteRecord):
            return self._take_note(record)
        return self._take_kept(record) if record.kept else self._take_draft(record)

    def _take_kept(self, record: SnapshotRecord) -> bool:
        becomes_head = not self._passed_head
        if record.id == self._head_id:
            self._passed_head = True
        present = self._next
        if not isinstance(present, SnapshotRecord) or not present.kept:
            self._drop_draft()  # it would go when the head moves, or is what is kept now
            self._save(record, head=becomes_head)
            return True
        if present.id != record.id or present.created_at != record.created_at:
            raise Conflict(
                "something else was saved in this scope, or deleted in the source since, so that"
                " the order of its history could not be kept."
                f" scope=`{_shown(self.key)}` id=`{present.id}`"
            )
        self._next = next(self._present, None)
        if line_of(present) == line_of(record):
            return False
        self._save(record, head=becomes_head, overwrite=True)
        return True

    def _take_draft(self, record: SnapshotRecord) -> bool:
        self._check_at_end()
        present = self._next
        if isinstance(present, SnapshotRecord) and line_of(present) == line_of(record):
            return False
        self._drop_draft()
        self._save(record, head=True)
        return True

    def _drop_draft(self) -> None:
        """Remove what the target shows that is not kept, if it does."""
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

    def _take_note(self, record: NoteRecord) -> bool:
        found = self._scope.note(record.name, on=record.on)
        if found is not None and line_of(NoteRecord.of(self.key, found)) == line_of(record):
            return False
        self._scope.set_note(record.name, record.value, on=record.on)
        return True

    def finish(self) -> None:
        """Let the scope show what the source showed.

        Raises:
            Conflict: the scope holds more than was written.
        """
        self._check_at_end()
        shown = self._scope.load()
        if shown is not None and not shown.kept and shown.id != self._head_id:
            self._scope.delete_snapshot(shown.id)  # a draft that the source has no more
        elif shown is not None and shown.id != self._head_id:
            # Something was deleted in the source, which uncovered its newest: so does this.
            draft = self._scope.save(shown.state, keep=False, expect=shown.revision)
            self._scope.delete_snapshot(draft.id)
        now = self._scope.info()
        if self._head_id != (None if now is None else now.id):
            raise Conflict(f"it shows something else now. scope=`{_shown(self.key)}`")

    def _check_at_end(self) -> None:
        present = self._next
        if isinstance(present, SnapshotRecord) and present.kept:
            raise Conflict(
                "there is more in this scope than in the source, where it was perhaps deleted:"
                " delete the scope to copy it again."
                f" scope=`{_shown(self.key)}` id=`{present.id}`"
            )


def _shown(key: ScopeKey) -> str:
    return f"{key.session_id}:{key.scope_id}"
