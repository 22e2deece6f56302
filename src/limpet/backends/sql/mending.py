"""Repairing the rows of scopes: everything in them but the name follows from what they own."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from limpet.backends.sql.columns import (
    COLUMNS,
    FACTS,
    SCOPE_COLUMNS,
    read_scope,
    read_tail,
    scope_values,
    verified_row,
)
from limpet.backends.sql.transaction import Transaction
from limpet.core import ids, limits
from limpet.core.codec import checksum_of
from limpet.core.encryption import PLAIN, Cipher, Ciphers
from limpet.core.rows import Row
from limpet.errors import Corrupt, InvalidInput
from limpet.model import ScopeKey
from limpet.storage import DAMAGED, TRAIL_BYTES_MAX, ScopeRecord

LOST_AND_FOUND = "lost+found"

# What reading a row of damaged bytes can raise: its types need not be those of its columns.
DAMAGE = (Corrupt, AttributeError, OverflowError, RecursionError, TypeError, ValueError)


class Facts(NamedTuple):
    """What a scope owns: whether its head is there, its newest snapshots, how many notes."""

    has_head: int
    newest: int | None
    newest_kept: int | None
    notes: int


def put_scope(transaction: Transaction, record: ScopeRecord, cipher: Cipher) -> bool:
    """Write a record as a change of its own; return False if another scope has its name."""
    values = scope_values(_changed(record), cipher)
    return _put(transaction, (record.pk, *record.key, *values))


def _changed(record: ScopeRecord) -> ScopeRecord:
    """Return a record at another version: who remembers this one, or plans a roll, starts again.

    The version is no random one, but depends on all that was stored.
    """
    version = checksum_of(orjson.dumps(record[FACTS]), record.trail)
    trail = (version.to_bytes(8, signed=True) + record.trail)[:TRAIL_BYTES_MAX]
    return record._replace(version=version, epoch=version, trail=trail)


def _put(transaction: Transaction, columns: tuple[Any, ...]) -> bool:
    values = dict(zip(COLUMNS["scope"].split(), columns, strict=True))
    return transaction.count("put_scope", values) == 1


def wrong_fields(
    transaction: Transaction, record: ScopeRecord, facts: Facts, cipher: Cipher
) -> dict[str, Any]:
    """Return the columns that do not fit what a scope owns, as they should be.

    A draft exists only as a head, so a head that is lost was the draft if there is one. Else the
    newest kept snapshot becomes the head, as when a head is deleted. It does so even if it is
    damaged: to show an older state as the current one would hide the damage.
    """
    right: dict[str, Any] = {"tip": facts.newest_kept, "notes": facts.notes}
    if not facts.has_head:
        rows = _rows(transaction, record.pk)
        draft = next((row.seq for row in rows if not row.kept), None)
        if record.head is not None or draft is not None:
            right["head"] = facts.newest_kept if draft is None else draft
    if facts.newest is not None and record.last < facts.newest:
        right["last"] = facts.newest
    if record.floor and ids.time_ms_of(record.floor) is None:
        right["floor"] = _greatest_minted(transaction, record.pk)
    right |= _tail_sums(transaction, record, cipher)
    fields = {name: value for name, value in right.items() if getattr(record, name) != value}
    return fields | ({"offsets": None} if "tip" in fields else {})


def _rebuilt(
    transaction: Transaction, pk: int, key: ScopeKey, facts: Facts, cipher: Cipher
) -> ScopeRecord:
    """Return a scope as its snapshots and notes show. Its lease is ended."""
    record = ScopeRecord(key, pk, 0, head=0, last=pk, floor="?")
    facts = facts._replace(has_head=0)
    return record._replace(**wrong_fields(transaction, record, facts, cipher))


def restore_scope(transaction: Transaction, pk: int, facts: Facts) -> ScopeKey | None:
    """Make a scope again that is missing, under a new address; return None if that is taken.

    Its key is part of the checksums of what it owns, so with that key it can be read again.
    """
    key = ScopeKey(LOST_AND_FOUND, f"scope-{pk}")
    record = _changed(_rebuilt(transaction, pk, key, facts, PLAIN))
    values = (*scope_values(record, PLAIN), pk, key.session_id, key.kind, key.scope_id)
    return key if transaction.count("add_scope", values) else None


def mend_scope(
    transaction: Transaction, columns: Any, facts: Facts, ciphers: Ciphers
) -> str | None:
    """Write a right row for a scope whose row fails its checksum, if its name is known.

    Return what is believed and why, or None if nothing was written. What is not proven is written
    without a key: to sign it is a decision (`rekey`).
    """
    before = _before_a_flip(columns)
    if before is not None:
        is_put = _put(transaction, before)
        return "one bit was flipped: so the checksum holds" if is_put else None
    try:
        key = limits.check_scope(*columns[1:4])
    except InvalidInput:
        return None
    record = _rebuilt(transaction, columns[0], key, facts, ciphers.of(key.session_id))
    if not put_scope(transaction, record, PLAIN):
        return None
    head = "the newest kept snapshot is the head"
    if record.head is None:
        head = "there is no head"
    elif record.head != record.tip:
        head = "the draft is the head"
    return f"{head}, as its snapshots tell; a lease has ended"


def _before_a_flip(columns: Any) -> tuple[Any, ...] | None:
    """Return the columns before one bit was flipped: that the checksum holds is the proof."""
    for at in range(1, SCOPE_COLUMNS):
        for value in _one_bit_off(columns[at]):
            before = (*columns[:at], value, *columns[at + 1 :])
            with suppress(*DAMAGE, InvalidInput):
                limits.check_scope(*read_scope(before, None).key)
                return before
    return None


def _one_bit_off(value: object) -> Iterator[Any]:
    """Yield all values of the same type of which one bit is another."""
    if isinstance(value, int):
        for bit in range(64):
            flipped = value % 2**64 ^ 1 << bit
            yield flipped - 2**64 if flipped >= 2**63 else flipped
    elif isinstance(value, str | bytes):
        data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
        for bit in range(8 * len(data)):
            other = (int.from_bytes(data) ^ 1 << bit).to_bytes(len(data))
            with suppress(UnicodeDecodeError):
                yield other if isinstance(value, bytes) else other.decode()


def _rows(transaction: Transaction, pk: int) -> Iterator[Row]:
    """Yield the snapshots of a scope that are not damaged, the newest first."""
    for columns in transaction.each("rows_of_scope", {"pk": pk}):
        with suppress(*DAMAGE):
            yield verified_row(columns)


def _greatest_minted(transaction: Transaction, pk: int) -> str:
    """Return the greatest id of a scope that can have been minted in it, or "".

    A minted id is never ahead of the time of its commit. One that is was given by a caller, and
    as a floor it could be so far ahead that no greater id exists.
    """
    found = ((row.id, ids.time_ms_of(row.id), row.saved_at) for row in _rows(transaction, pk))
    minted = (id for id, time_ms, at in found if time_ms is not None and time_ms <= at // 1000)
    return max(minted, default="")


def _tail_sums(transaction: Transaction, record: ScopeRecord, cipher: Cipher) -> dict[str, int]:
    """Return how many states a tail has, and their bytes, unless some cannot be read."""
    found = transaction.all("tail", {"pk": record.pk, "all": True})
    try:
        tail = [read_tail(columns, record.pk, record.key, cipher) for columns in found]
    except Corrupt:
        return {"tail_count": len(found)}
    if any(row.encoding == DAMAGED for row in tail):
        return {"tail_count": len(found)}
    return {"tail_count": len(found), "tail_bytes": sum(len(row.body) for row in tail)}
