"""One moment of a scope, read from tables."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from limpet.backends.sql.columns import (
    ROW_COLUMNS,
    SCOPE_COLUMNS,
    read_note,
    read_row,
    read_scope,
    read_segment,
    read_shared,
    read_tail,
)
from limpet.backends.sql.transaction import Transaction
from limpet.core.encryption import Cipher, Ciphers, WrongKeys
from limpet.core.limits import is_text
from limpet.core.notes import NoteRow
from limpet.core.rows import Row
from limpet.errors import Corrupt
from limpet.model import ScopeKey
from limpet.storage import ScopeRecord, SegmentRow, SharedRow, TailRow

T = TypeVar("T")

Head = tuple[ScopeRecord, Row | None, TailRow | None]


class Once(Generic[T]):
    """A `cached_property` without the lock of all instances that it holds up to Python 3.11."""

    def __init__(self, read: Callable[[Any], T]) -> None:
        self._read = read

    def __set_name__(self, owner: Any, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: Any) -> T:
        found = instance.__dict__[self._name] = self._read(instance)
        return found


class SqlReader:
    """Implements `storage.Reader`. `statement` reads the scope, and may lock it."""

    def __init__(
        self, transaction: Transaction, key: ScopeKey, ciphers: Ciphers, statement: str = "scope"
    ) -> None:
        self._transaction = transaction
        self._key = key
        self._ciphers = ciphers
        self._cipher = ciphers.of(key.session_id)
        self._statement = statement
        self._address = (key.session_id, key.kind, key.scope_id)

    def _scope(self) -> Any:
        return self._transaction.one(self._statement, self._address)

    def _record(self) -> ScopeRecord | None:
        found = self._scope()
        return None if found is None else record_of(found, self._key, self._cipher)

    record = Once(_record)

    @property
    def _pk(self) -> Any:
        return -1 if self.record is None else self.record.pk

    def _row(self, name: str, value: Any) -> Row | None:
        found = self._transaction.one(name, {"pk": self._pk, "value": value})
        return None if found is None else read_row(found, self._key, self._cipher)

    def row_at(self, seq: int) -> Row | None:
        return self._row("row_at", seq)

    def rows(self, ids: Sequence[str]) -> list[Row]:
        values = {"pk": self._pk, "ids": self._transaction.many(ids)}
        found = self._transaction.all("rows_by_ids", values)
        if self.record is None:
            return []
        rows = {columns[1]: read_row(columns, self._key, self._cipher) for columns in found}
        if not rows.keys() <= {*ids}:
            raise Corrupt("an index leads to another snapshot")
        return [rows[id] for id in ids if id in rows]

    def row_by_nonce(self, nonce: str) -> Row | None:
        return self._row("row_by_nonce", nonce)

    def rows_between(self, first: int, last: int) -> list[Row]:
        values = {"pk": self._pk, "first": first, "last": last}
        found = self._transaction.all("rows_between", values)
        return [read_row(columns, self._key, self._cipher) for columns in found]

    def seqs_and_sizes(self, ids: Sequence[str]) -> list[tuple[int, int]]:
        values = {"pk": self._pk, "ids": self._transaction.many(ids)}
        found = self._transaction.all("seqs_and_sizes", values)
        return [(seq, size if type(size) is int else 0) for seq, size in found]

    def newest_kept(self, without: Collection[int]) -> int | None:
        values = {"pk": self._pk, "without": self._transaction.many(without)}
        (seq,) = self._transaction.one("newest_kept", values)
        return None if seq is None else int(seq)

    def tail_row(self, seq: int) -> TailRow | None:
        found = self._transaction.one("tail_row", {"pk": self._pk, "value": seq})
        return None if found is None else self._tail(found)

    def _tail(self, columns: Any) -> TailRow:
        return read_tail(columns, self._pk, self._key, self._cipher)

    def tail(self) -> dict[int, TailRow]:
        if self.record is None:
            return {}
        found = self._transaction.all("tail", {"pk": self._pk, "all": False})
        if len(found) != self.record.tail_count:
            # A draft, or one that was kept later, may be older than the newest segment.
            found = self._transaction.all("tail", {"pk": self._pk, "all": True})
        return {row.seq: row for row in map(self._tail, found)}

    def segment(self, seq: int | None) -> SegmentRow | None:
        name = "newest_segment" if seq is None else "segment"
        found = self._transaction.one(name, {"pk": self._pk, "value": seq})
        return None if found is None else self._segment(found)

    def _segment(self, found: Any) -> SegmentRow:
        try:
            return read_segment(found, self._pk, self._key, self._cipher)
        except WrongKeys:
            raise
        except Corrupt:  # what comes after it can still be rolled
            return SegmentRow(found[0], found[1], b"")

    def shared(self, name: bytes) -> SharedRow | None:
        found = self._transaction.one("shared", (name,))
        return None if found is None else read_shared(found, self._cipher)

    def has_shared(self, name: bytes) -> bool:
        return self._transaction.one("has_shared", (name,)) is not None

    def notes(self, on: Collection[str], names: Collection[str] | None = None) -> list[NoteRow]:
        many = self._transaction.many
        if names is None:
            found = self._transaction.all("notes_on", {"pk": self._pk, "on": many(on)})
        else:
            values = {"pk": self._pk, "on": many(on), "names": many(names)}
            found = self._transaction.all("notes_named", values)
        return [self._note(columns, on, names) for columns in found if self.record is not None]

    def _note(
        self, columns: Any, on: Collection[str], names: Collection[str] | None = None
    ) -> NoteRow:
        row = read_note(columns, self._pk, self._key, self._cipher)
        if row.on not in on or (names is not None and row.name not in names):
            raise Corrupt(f"an index leads to another note. rev=`{row.rev}`")
        return row

    def note_page(self, on: str, after: str, limit: int) -> list[NoteRow]:
        def take(columns: Any) -> NoteRow | None:
            with suppress(Corrupt):  # asking for it by name raises
                return self._note(columns, (on,))
            return None

        values = {"pk": self._pk, "on": on, "after": after}
        return self._transaction.page("note_page", values, take, limit)

    def note_addresses(self, on: Collection[str]) -> list[tuple[str, str]]:
        values = {"pk": self._pk, "on": self._transaction.many(on)}
        return [(each, name) for each, name in self._transaction.all("note_addresses", values)]

    def noted(self, after: str, limit: int) -> list[str]:
        return self._transaction.page("noted", {"pk": self._pk, "after": after}, name_of, limit)

    def count(self) -> int:
        (count,) = self._transaction.one("count_snapshots", (self._pk,))
        return int(count)

    def now(self, here: int, *, hint: bool = False) -> int:
        return here

    def other(self, key: ScopeKey) -> "SqlReader":
        return type(self)(self._transaction, key, self._ciphers, self._statement)


def record_of(columns: Any, key: ScopeKey, cipher: Cipher) -> ScopeRecord:
    """Return the scope that was asked for by its address."""
    record = read_scope(columns, cipher)
    if record.key != key:
        raise _another(record)
    return record


def _another(record: ScopeRecord) -> Corrupt:
    return Corrupt(f"an index leads to another scope. pk=`{record.pk}`")


def head_of(columns: Any, key: ScopeKey, ciphers: Ciphers) -> Head:
    """Return a scope, its head, and the state of that if it is in the tail."""
    cipher, at = ciphers.of(key.session_id), SCOPE_COLUMNS + ROW_COLUMNS
    record = read_scope(columns[:SCOPE_COLUMNS], cipher)
    if record.key != key:
        raise _another(record)
    if record.head is None:
        return record, None, None
    if columns[SCOPE_COLUMNS] is None:
        raise Corrupt(f"the head of a scope is missing. seq=`{record.head}`")
    row = read_row(columns[SCOPE_COLUMNS:at], key, cipher)
    if columns[at] is None:
        return record, row, None
    return record, row, read_tail(columns[at:], record.pk, key, cipher)


def name_of(columns: Any) -> str | None:
    (name,) = columns
    return name if is_text(name) else None
