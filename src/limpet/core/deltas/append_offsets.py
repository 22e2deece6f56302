"""Appending to a list inside an encoded object whose bytes are not at hand.

What is known is where each top-level list ends, counted from the end of the encoding, and that is
all that is needed: the new items go before the `]`.
"""

import orjson

from limpet.core.deltas.delta import Delta
from limpet.protocol import Append, Tails

_EMPTY = b"[]"
_WIDE = b" "  # items with integers beyond 64 bits mark the whole state: core/codec.py


def extended(tails: Tails, size: int, append: Append) -> tuple[Delta, Tails] | None:
    """Return the delta that appends to an encoding of `size` bytes, and where its lists end then.

    None if that cannot be told without the state: the value is no list, or the items need care.
    """
    if append.items.startswith(_WIDE):
        return None
    if append.key in tails:
        found = tails[append.key]
        if found is None:
            return None
        tail, nonempty = found
        fresh = append.items[1:-1]
        if fresh and nonempty:
            fresh = b"," + fresh
        entry = (tail, nonempty or bool(fresh))
    else:
        tail = 1
        comma = b"," if tails else b""
        fresh = comma + orjson.dumps(append.key) + b":" + append.items
        entry = (2, append.items != _EMPTY)
    moved = {
        key: (each[0] + len(fresh), each[1]) if each is not None and each[0] > tail else each
        for key, each in tails.items()
    }
    moved[append.key] = entry
    return Delta([0, size - tail, len(fresh), size - tail, tail, 0], fresh), moved
