"""Appending to a list inside an encoded object without its bytes.

It is enough to know where each top-level list ends, counted from the end of the encoding: the new
items go before the `]`.
"""

import orjson

from limpet.core.deltas.delta import Delta
from limpet.protocol import Append, AppendOffsets

_EMPTY = b"[]"
_WIDE = b" "  # marks an encoding that holds integers beyond 64 bits: core/codec.py
_new = tuple.__new__  # the same as Delta(…), without a call of Python code


def extended(
    offsets: AppendOffsets, size: int, append: Append
) -> tuple[Delta, AppendOffsets] | None:
    """Return the delta that appends to an encoding of `size` bytes, and the offsets after it.

    None if the state itself is needed: the value is not a list, or the items hold wide integers.
    """
    if append.items.startswith(_WIDE):
        return None
    if append.key in offsets:
        found = offsets[append.key]
        if found is None:
            return None
        at, nonempty = found
        fresh = append.items[1:-1]
        if fresh and nonempty:
            fresh = b"," + fresh
        entry = (at, nonempty or bool(fresh))
    else:
        at = 1  # a new member goes before the `}`
        comma = b"," if offsets else b""
        fresh = comma + orjson.dumps(append.key) + b":" + append.items
        entry = (2, append.items != _EMPTY)
    moved = {
        key: (each[0] + len(fresh), each[1]) if each is not None and each[0] > at else each
        for key, each in offsets.items()
    }
    moved[append.key] = entry
    return _new(Delta, ([0, size - at, len(fresh), size - at, at, 0], fresh)), moved
