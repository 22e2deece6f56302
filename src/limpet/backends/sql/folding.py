"""Folds what processes left whole: small states become deltas on the state saved after each.

A process folds the states that it saved itself (`continuing.py`). If it ends before that, `compact`
does it.
"""

from itertools import pairwise
from typing import NamedTuple

from limpet.backends.sql.bodies import typed
from limpet.backends.sql.tables import Tables
from limpet.core import codec
from limpet.core.deltas.chain import (
    FOLDED_MAX,
    WHOLE_BYTES_MAX,
    BodyRow,
    Unfolded,
    folded,
    payload_of,
)
from limpet.core.encryption import ENCRYPTED_BYTES, Cipher
from limpet.errors import Corrupt
from limpet.model import ScopeKey

_ROWS_MAX = 256  # in one transaction
_STORED_BYTES_MAX = WHOLE_BYTES_MAX + ENCRYPTED_BYTES


class FoldedUpTo(NamedTuple):
    """How far a scope is folded: a place, and how many states before it build on each other."""

    seq: int = 0
    depth: int = 0


def unfolded_scopes(tables: Tables) -> list[ScopeKey]:
    """Return the scopes that have several small states that are whole."""
    found = tables.transaction.all("unfolded_scopes", (_STORED_BYTES_MAX,))
    return [ScopeKey._make(each) for each in found]


def fold_some(tables: Tables, key: ScopeKey, done: FoldedUpTo) -> FoldedUpTo | None:
    """Fold some states of a scope; return where to go on, None at the end."""
    try:
        scope = tables.scope_to_change(key)
    except Corrupt:
        return None  # `check` reports it; the others are folded
    if scope is None:
        return None
    values = (_STORED_BYTES_MAX, scope.pk, done.seq, _ROWS_MAX)
    rows = [typed(each) for each in tables.transaction.all("small_bodies", values)]
    depth, new = done.depth, list[BodyRow]()
    states = ((row, _whole(row, scope.cipher)) for row in rows)
    for (row, state), (later, later_state) in pairwise(states):
        if state and later_state and depth < FOLDED_MAX:
            new += (found := folded([state, later_state], scope.cipher))
            depth = depth + 1 if found else 0
        else:
            depth = depth + 1 if row.base == later.seq else 0
    tables.bodies.delete_rows(row.seq for row in new)
    tables.bodies.insert_rows(new)
    return FoldedUpTo(rows[-1].seq - 1, depth) if len(rows) == _ROWS_MAX else None


def _whole(row: BodyRow, cipher: Cipher) -> Unfolded | None:
    """Return a row that is a small whole state; a large one was not read."""
    if row.base is not None or row.encoding != codec.WHOLE or row.body is None:
        return None
    try:
        state, nonces = payload_of(row, cipher)
    except Corrupt:
        return None
    if len(state) > WHOLE_BYTES_MAX:
        return None
    return Unfolded(row.seq, state, row.checksum, nonces[0] if nonces else "")
