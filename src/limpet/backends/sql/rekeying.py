"""Encrypting again what is not encrypted with the current key of its session.

Tables are walked without locks. What is outdated is then encrypted again scope by scope, under the
lock that writers take. What cannot be decrypted stays; the version of a scope stays too.
"""

from contextlib import suppress
from typing import Any

from limpet.backends.sql.checking import Position, walk
from limpet.backends.sql.columns import (
    COLUMNS,
    SCOPE_COLUMNS,
    SEGMENT_COLUMNS,
    SHARED_COLUMNS,
    TAIL_COLUMNS,
    label_values,
    note_values,
    read_note,
    read_row,
    read_scope,
    read_segment,
    read_shared,
    read_tail,
    row_values,
    scope_values,
    segment_values,
    shared_values,
    tail_values,
)
from limpet.backends.sql.transaction import Transaction
from limpet.core.encryption import Cipher, Ciphers
from limpet.core.limits import MIB, is_text
from limpet.errors import Corrupt
from limpet.model import ScopeKey
from limpet.storage import DAMAGED, NAME_BYTES, SHARED

_BYTES_MAX = 8 * MIB  # in one part, unless one row has more
# Which column of the statements `check_…` is encrypted.
_ENCRYPTED = {
    table: COLUMNS[row].split().index(column)
    for table, row, column in (
        ("scopes", "scope", "offsets"),
        ("snapshots", "row", "metadata"),
        ("tails", "tail", "body"),
        ("segments", "segment", "body"),
        ("shared", "shared", "body"),
        ("notes", "note", "value"),
    )
}

Outdated = dict[ScopeKey, list[Any]]
"""Keys of rows of one table, by their scope."""


def outdated(
    transaction: Transaction, ciphers: Ciphers, position: Position, limit: int
) -> tuple[Outdated, Position | None]:
    """Return what is outdated in a part of a table, and where to go on."""
    found, spent = Outdated(), 0

    def visit(key: Any) -> bool:
        nonlocal spent
        columns = transaction.one(f"check_{position.table}", {"key": key})
        owner = None if columns is None else _owner(position.table, columns)
        if owner is not None:
            part = _encrypted(position.table, columns)
            if not ciphers.of(owner.session_id).is_current(part):
                found.setdefault(owner, []).append(key)
                spent += len(part)
        return spent < _BYTES_MAX

    if position.table == "labels":  # they go with their snapshots
        return found, position.following
    return found, walk(transaction, position, limit, visit)


def _owner(table: str, columns: Any) -> ScopeKey | None:
    """Return the scope that a row belongs to; of a shared state only the session counts."""
    names = columns[1:4] if table == "scopes" else columns[-4:-1]
    if table == "shared":
        names = (columns[1], "", "")
    return ScopeKey._make(names) if is_text(*names) else None


def _encrypted(table: str, columns: Any) -> bytes:
    """Return the part of a row that is encrypted."""
    part = bytes(columns[_ENCRYPTED[table]] or b"")
    return part[NAME_BYTES:] if table == "tails" and columns[2] == SHARED else part


def encrypt_again(
    transaction: Transaction, ciphers: Ciphers, table: str, key: ScopeKey, keys: list[Any]
) -> int:
    """Encrypt rows of a scope with the current key; return how many."""
    if table != "shared" and not transaction.one("scope_to_change", (key[0], key[2], key[1])):
        return 0
    cipher, count = ciphers.of(key.session_id), 0
    for each in keys:
        with suppress(Corrupt):
            columns = transaction.one(f"check_{table}", {"key": each})
            if columns is None or _owner(table, columns) != key:
                continue
            if not cipher.is_current(_encrypted(table, columns)):
                count += _put(transaction, table, columns, key, cipher)
    return count


def _put(transaction: Transaction, table: str, columns: Any, key: ScopeKey, cipher: Cipher) -> bool:
    do, pk = transaction.do, columns[-5]
    match table:
        case "scopes":
            record = read_scope(columns[:SCOPE_COLUMNS], cipher)
            do("move_scope", (*scope_values(record, cipher), record.pk, record.version))
        case "snapshots":
            row = read_row(columns, key, cipher)
            stored = dict(
                zip(COLUMNS["row"].split(), row_values(row, pk, key, cipher), strict=True)
            )
            changed = [stored[name] for name in ("status", "labels", "metadata", "checksum")]
            do("put_encrypted", (*changed, row.seq))
            do("remove_labels", {"seqs": transaction.many([row.seq])})
            transaction.do_many("add_label", label_values(row, cipher))
        case "tails":
            tail = read_tail(columns[:TAIL_COLUMNS], pk, key, cipher)
            if tail.encoding == DAMAGED:
                return False
            do("put_tail", tail_values(tail, pk, key, cipher))
        case "segments":
            segment = read_segment(columns[:SEGMENT_COLUMNS], pk, key, cipher)
            do("remove_segments", {"pk": pk, "seqs": transaction.many([segment.last])})
            do("put_segment", segment_values(segment, pk, key, cipher))
        case "shared":
            shared = read_shared(columns[:SHARED_COLUMNS], cipher)
            name, _, body, checksum = shared_values(shared, key.session_id, cipher)
            do("put_shared", (body, checksum, name))
        case _:
            note = read_note(columns, pk, key, cipher)
            do("put_note", note_values(note, pk, key, cipher))
    return True
