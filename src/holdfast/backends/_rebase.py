"""Writing bodies anew because what they build on is going away.

All is read before anything is changed, and only what replaces a row is kept, so memory holds a few
states at a time. A body may be written against one that stood before it in the order of
(length of its old chain, turn here), which no cycle can satisfy.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from holdfast.core import codec, delta
from holdfast.core.chains import BodyRow, body_row
from holdfast.errors import Corrupt

_DEPTH_MAX = 256  # rows of a chain, and one more for each 4 KiB of state
_DEPTH_BYTES = 4 * 1024
_WHOLE_SHARE = 8  # a delta above this part of the state is compared with the whole


class BodyTable(Protocol):
    """The rows of `bodies` in one transaction."""

    def chain(self, seq: int, until: int | None = None) -> list[BodyRow]:
        """Return a row and what it builds on, down to a whole one or to one on top of `until`."""
        ...

    def row(self, seq: int) -> BodyRow | None:
        """Return one row."""
        ...

    def glance(self, seq: int) -> tuple[int, int | None, int, bytes | None, int] | None:
        """Return one row, its body only if that is not large."""
        ...

    def links(self, seq: int) -> list[int]:
        """Return the keys of a chain."""
        ...

    def dependents(self, seqs: Iterable[int]) -> list[tuple[int, int, int]]:
        """Return (seq, base, encoding) of all rows that build directly on one of these."""
        ...

    def bases(self, seqs: Iterable[int]) -> set[int]:
        """Return all that one of these builds on directly."""
        ...

    def listed(self, seqs: Iterable[int]) -> set[int]:
        """Return those that are the state of a snapshot."""
        ...

    def unused(self, seqs: Iterable[int]) -> list[tuple[int, int | None]]:
        """Return (seq, base) of those that are no snapshot's and that nothing builds on."""
        ...

    def add(self, rows: Iterable[BodyRow]) -> None:
        """Insert rows."""
        ...

    def remove(self, seqs: Iterable[int]) -> None:
        """Remove rows."""
        ...


class Rewritten(NamedTuple):
    """The rows that replace others, and those that cannot be read and stay as they are."""

    rows: list[BodyRow]
    lost: list[int]


class _Text(NamedTuple):
    seq: int
    body: bytes
    depth: int


class _Survivor(NamedTuple):
    """A body to write anew: its chain, where that meets the dead, and what is left below."""

    seq: int
    depth: int
    dead: int
    below: int | None
    below_depth: int

    @property
    def turn(self) -> tuple[int, bool, int]:
        """Those nearest to the dead come first, the older of them before the newer."""
        return self.depth, self.seq > self.dead, abs(self.seq - self.dead)


def rewritten(table: BodyTable, dead: set[int], read: Callable[[int], bytes]) -> Rewritten:
    """Return new rows for all that cannot be read without the dead. Changes nothing."""
    survivors = sorted(_survivors(table, dead), key=lambda each: each.turn)
    result = Rewritten([], [])
    first: dict[tuple[int | None, int], _Text] = {}
    last: dict[tuple[int | None, int], _Text] = {}
    below: _Text | None = None
    for each in survivors:
        kin = (each.below, each.dead)
        try:
            body = read(each.seq)
            if each.below is not None and (below is None or below.seq != each.below):
                below = _Text(each.below, read(each.below), each.below_depth)
        except Corrupt:
            result.lost.append(each.seq)
            continue
        texts = [first.get(kin), last.get(kin), below if each.below is not None else None]
        row, depth = _shortest(each.seq, body, dict.fromkeys(filter(None, texts)))
        result.rows.append(row)
        last[kin] = _Text(each.seq, body, depth)
        first.setdefault(kin, last[kin])
    return result


def _survivors(table: BodyTable, dead: set[int]) -> Iterable[_Survivor]:
    found = {seq for seq, _, _ in table.dependents(dead)} - dead
    # A sealed body also needs what its base builds on.
    fresh = found
    while fresh:
        fresh = {
            seq
            for seq, _, encoding in table.dependents(fresh)
            if codec.form_of(encoding) == codec.SEALED
        }
        fresh = fresh - found - dead
        found = found | fresh
    for seq in found:
        chain = table.links(seq)
        below = next((at for at, each in enumerate(chain[1:], 1) if each not in dead), None)
        meets = next((each for each in chain if each in dead), seq)
        yield _Survivor(
            seq,
            len(chain),
            meets,
            None if below is None else chain[below],
            0 if below is None else len(chain) - below,
        )


def _shortest(seq: int, body: bytes, texts: Iterable[_Text]) -> tuple[BodyRow, int]:
    """Return the shortest row for a body, against one of some texts or whole, and its depth."""
    best: tuple[int | None, tuple[int, bytes]] | None = None
    depth = 1
    for text in texts:
        if text.depth >= _DEPTH_MAX + len(body) // _DEPTH_BYTES:
            continue
        payload = delta.dump(delta.diff(text.body, body))
        squeezed = codec.squeeze(payload, codec.DELTA)
        if best is None or len(squeezed[1]) < len(best[1][1]):
            best, depth = (text.seq, squeezed), text.depth + 1
    if best is None or len(best[1][1]) * _WHOLE_SHARE > len(body):
        whole = codec.squeeze(body)
        if best is None or len(whole[1]) <= len(best[1][1]):
            best, depth = (None, whole), 1
    return body_row(seq, *best), depth
