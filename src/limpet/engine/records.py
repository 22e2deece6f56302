"""The record of a scope after a change."""

from typing import Any

from limpet.core import ids
from limpet.model import ScopeKey
from limpet.protocol import Stamp
from limpet.storage import TRAIL_MAX, ScopeRecord


def version_of(nonce: str) -> int:
    """Return a nonce of 16 hex digits as a signed integer of 64 bits."""
    return int.from_bytes(bytes.fromhex(nonce), signed=True)


def changed(
    record: ScopeRecord | None,
    key: ScopeKey,
    stamp: Stamp,
    *,
    states_changed: bool = False,
    **fields: Any,
) -> ScopeRecord:
    """Return the next record of a scope, or its first one."""
    version = version_of(stamp.nonce)
    if record is None:
        pk = fields.get("last") or ids.place(stamp.now, 0, stamp.bits)
        return ScopeRecord(key, pk, version, trail=(version,), epoch=version, **fields)
    if states_changed:
        fields["epoch"] = version
    trail = (version, *record.trail)[:TRAIL_MAX]
    return record._replace(version=version, trail=trail, **fields)
