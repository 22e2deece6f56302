"""States as they are stored: how one is read, and in which form the next is written.

The newest snapshots of a scope form its *tail*, one row each. A state of up to 4 KB is stored
whole. A larger one is a delta on the newest kept state, but every 16th is whole (fewer of the large
ones), so that few deltas are applied to read the head. Nothing builds on a draft. Older snapshots
are in segments (`core.segments`).
"""

from collections.abc import Collection
from typing import Final

from limpet.core import codec
from limpet.core.deltas import delta
from limpet.core.deltas.delta import Delta
from limpet.core.limits import KIB
from limpet.core.rows import Row
from limpet.core.segments import SMALL_BYTES, Segment, apply_all
from limpet.errors import Corrupt
from limpet.storage import DAMAGED, WHOLE, ZSTD, Reader, SegmentRow, TailRow

_WHOLE_ZSTD_MIN: Final = 16 * KIB
_DELTA_ZSTD_MIN: Final = KIB
_LEVEL: Final = 1
_WHOLE_EVERY: Final = 16
BYTES_PER_DELTA: Final = 8 * KIB  # of a state: what one more delta may cost its readers


def is_whole_due(tail_count: int, size: int) -> bool:
    """Return whether the next state of a tail is stored whole even if a delta is smaller."""
    return tail_count > 0 and tail_count % max(_WHOLE_EVERY, size // BYTES_PER_DELTA) == 0


def whole_row(seq: int, state: bytes) -> TailRow:
    if len(state) < _WHOLE_ZSTD_MIN:
        return TailRow(seq, None, WHOLE, state)
    return TailRow(seq, None, ZSTD, codec.compress(state, _LEVEL))


def delta_row(seq: int, base: int, payload: bytes) -> TailRow:
    if len(payload) < _DELTA_ZSTD_MIN:
        return TailRow(seq, base, WHOLE, payload)
    return TailRow(seq, base, ZSTD, codec.compress(payload, _LEVEL))


def tail_row(seq: int, state: bytes, base_seq: int | None, base: bytes | None) -> TailRow:
    """Return a state in the shorter form: whole, or as a delta on another state if it is given."""
    if base_seq is None or base is None or len(state) <= SMALL_BYTES:
        return whole_row(seq, state)
    payload = delta.dump(delta.diff(base, state))
    return (
        delta_row(seq, base_seq, payload)
        if 2 * len(payload) < len(state)
        else whole_row(seq, state)
    )


def payload_of(row: TailRow) -> bytes:
    """Return what a row of the tail holds, or raise Corrupt."""
    if row.encoding == DAMAGED:
        raise Corrupt(f"a state fails its checksum. seq=`{row.seq}`")
    return codec.decompress(row.body, what="state") if row.encoding == ZSTD else row.body


def checked(row: Row, state: bytes) -> bytes:
    """Return the state of a snapshot, or raise Corrupt if it has not the size that is recorded."""
    if len(state) != row.size:
        raise Corrupt(f"a state has another size. seq=`{row.seq}`")
    return state


class States:
    """Reads the states of one moment of a scope."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._tail: dict[int, TailRow] | None = None
        self._found: dict[int, bytes] = {}
        self._segments: dict[int, Segment] = {}

    @property
    def tail(self) -> dict[int, TailRow]:
        if self._tail is None:
            self._tail = self._reader.tail()
        return self._tail

    def get(self, seq: int) -> bytes:
        """Return a state, or raise Corrupt."""
        found = self._found.get(seq)
        if found is not None:
            return found
        row = self._reader.tail_row(seq) if self._tail is None else self._tail.get(seq)
        steps = list[Delta]()
        while row is not None and row.base is not None:
            steps.append(delta.parse(payload_of(row)))
            if row.base >= seq:
                raise Corrupt(f"a state builds on a later one. seq=`{seq}`")
            seq = row.base
            row = None if seq in self._found else self.tail.get(seq)
        if row is not None:
            base = payload_of(row)
        else:
            base = self._found.get(seq) or self.segment(seq).state(seq)
        return apply_all(base, steps[::-1])

    def keep(self, seqs: Collection[int]) -> None:
        """Read states that will be asked for, and remember them; each segment is read once."""
        groups = dict[int, set[int]]()
        for seq in seqs:
            row = None if seq in self.tail else self.segment_row(seq)
            groups.setdefault(0 if row is None else row.last, set()).add(seq)
        for seq in groups.pop(0, ()):
            self._found[seq] = self.get(seq)
        for last, inside in groups.items():
            self._found |= self.segment(last).states(inside)

    def newest_segment_end(self) -> int | None:
        found = self._reader.segment(None)
        return None if found is None else found.last

    def segment_row(self, seq: int) -> SegmentRow | None:
        """Return the segment that holds a seq, if one does."""
        found = self._reader.segment(seq)
        return found if found is not None and found.first <= seq else None

    def segment(self, seq: int) -> Segment:
        found = self.segment_row(seq)
        if found is None:
            raise Corrupt(f"the state of a snapshot is missing. seq=`{seq}`")
        if found.last not in self._segments:
            self._segments[found.last] = Segment.parse(found.blob)
        return self._segments[found.last]
