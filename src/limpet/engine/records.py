"""The record of a scope after a change."""

from typing import Any

import orjson

from limpet.core import ids
from limpet.core.rows import Row
from limpet.errors import Corrupt
from limpet.model import ScopeKey
from limpet.protocol import AppendOffsets, Stamp
from limpet.storage import TRAIL_BYTES_MAX, Reader, ScopeRecord

VERSION_BYTES = 8


def changed(
    record: ScopeRecord | None,
    key: ScopeKey,
    stamp: Stamp,
    *,
    states_changed: bool = False,
    **fields: Any,
) -> ScopeRecord:
    """Return the next record of a scope, or its first one. Its version is the nonce, signed."""
    nonce = bytes.fromhex(stamp.nonce)
    version = int.from_bytes(nonce, signed=True)
    if record is None:
        pk = fields.get("last") or ids.place(stamp.now, 0, stamp.bits)
        return ScopeRecord(key, pk, version, trail=nonce, epoch=version, **fields)
    if states_changed:
        fields["epoch"] = version
    trail = (nonce + record.trail)[:TRAIL_BYTES_MAX]
    return record._replace(version=version, trail=trail, **fields)


def dump_offsets(offsets: AppendOffsets | None) -> bytes | None:
    """Return `ScopeRecord.offsets`; a copy, since orjson leaves 4 KB of unused room behind it."""
    return None if offsets is None else b"%b" % orjson.dumps(offsets)


def follows(record: ScopeRecord, after: ScopeRecord, before: ScopeRecord) -> bool | None:
    """Return whether a scope went from one record to another; None if its trail does not tell."""
    trail, size = record.trail, VERSION_BYTES
    versions = [trail[at : at + size] for at in range(0, len(trail), size)]
    if before.trail[:size] not in versions:
        return None
    at = versions.index(before.trail[:size])
    return at > 0 and versions[at - 1] == after.trail[:size]


def head_of(reader: Reader) -> Row | None:
    """Return the snapshot that a scope shows, or raise Corrupt."""
    record = reader.record
    if record is None or record.head is None:
        return None
    row = reader.row_at(record.head)
    if row is None:
        raise Corrupt(f"the head of a scope is missing. seq=`{record.head}`")
    return row
