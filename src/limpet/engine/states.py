"""States as they are stored: how one is read, and in which form the next is written.

The newest snapshots of a scope form its *tail*, one row each. A state of up to 4 KB is stored
whole. A larger one is a delta on the newest kept state, but in tables every 16th is whole (fewer of
the large ones), so that few rows are read for the head. Nothing builds on a draft. Older snapshots
are in segments (`core.segments`). A fork of a large state in its session begins with the name of
that state, which all such forks share.

Each state has the nonce of the write that made it. The row of a snapshot and what builds on a state
name the nonce that they expect, so that no older version of a state can take its place.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeAlias

from limpet.backends.support.recent import Recent
from limpet.core import codec
from limpet.core.deltas import delta
from limpet.core.deltas.delta import Delta
from limpet.core.encryption import WrongKeys
from limpet.core.limits import KIB
from limpet.core.rows import Row
from limpet.core.segments import SMALL_BYTES, Segment, apply_all
from limpet.errors import Corrupt
from limpet.model import ScopeKey
from limpet.storage import (
    DAMAGED,
    NAME_BYTES,
    SHARED,
    WHOLE,
    ZSTD,
    Reader,
    SegmentRow,
    SharedRow,
    TailRow,
)

_WHOLE_ZSTD_MIN: Final = 16 * KIB
_DELTA_ZSTD_MIN: Final = KIB
_SHARED_MIN: Final = 4 * KIB
_LEVEL: Final = 1
_WHOLE_EVERY: Final = 16
BYTES_PER_DELTA: Final = 8 * KIB  # of a state: what one more delta may cost its readers

SegmentCache: TypeAlias = Recent[tuple[ScopeKey, int, int, int], Segment]
"""Segments by their scope and what they are made of: last seq, size and checksum."""


class State(NamedTuple):
    """A state that another one may build on: its seq, its nonce, and its bytes."""

    seq: int
    nonce: str
    data: bytes


def is_whole_due(tail_count: int, size: int) -> bool:
    """Return whether the next state of a tail is stored whole even if a delta is smaller."""
    return tail_count > 0 and tail_count % max(_WHOLE_EVERY, size // BYTES_PER_DELTA) == 0


def whole_row(seq: int, nonce: str, state: bytes) -> TailRow:
    if len(state) < _WHOLE_ZSTD_MIN:
        return tuple.__new__(TailRow, (seq, None, WHOLE, state, nonce, ""))
    return TailRow(seq, None, ZSTD, codec.compress(state, _LEVEL), nonce)


def delta_row(seq: int, nonce: str, payload: bytes, base: int, base_nonce: str) -> TailRow:
    if len(payload) < _DELTA_ZSTD_MIN:
        return tuple.__new__(TailRow, (seq, base, WHOLE, payload, nonce, base_nonce))
    return TailRow(seq, base, ZSTD, codec.compress(payload, _LEVEL), nonce, base_nonce)


def tail_row(seq: int, nonce: str, state: bytes, base: State | None) -> TailRow:
    """Return a state in the shorter form: whole, or as a delta on another state if it is given."""
    if base is None or len(state) <= SMALL_BYTES:
        return whole_row(seq, nonce, state)
    payload = delta.dump(delta.diff(base.data, state))
    if 4 * len(payload) < 3 * len(state):
        return delta_row(seq, nonce, payload, base.seq, base.nonce)
    return whole_row(seq, nonce, state)


def is_shared(size: int) -> bool:
    """Return whether forks of a state of this size share it; smaller ones are copied."""
    return size > _SHARED_MIN


def shared_name(source: Row) -> bytes:
    """Return the name of the state of a snapshot: an update of the snapshot has another."""
    return source.seq.to_bytes(8) + bytes.fromhex(source.nonce)


def shared_row(name: bytes, state: bytes) -> SharedRow:
    return SharedRow(name, codec.compress(state, _LEVEL))


def shared_tail(seq: int, nonce: str, name: bytes, shared: bytes, state: bytes) -> TailRow | None:
    """Return a state that is made of a shared one; None if it is too much of another."""
    payload = delta.dump(delta.diff(shared, state))
    if 2 * len(payload) >= len(state):
        return None
    return TailRow(seq, None, SHARED, name + codec.compress(payload, _LEVEL), nonce)


def payload_of(row: TailRow) -> bytes:
    """Return what a row of the tail holds, or raise Corrupt."""
    if row.encoding == DAMAGED:
        raise Corrupt(f"a state fails its checksum. seq=`{row.seq}`")
    return codec.decompress(row.body, what="state") if row.encoding == ZSTD else row.body


@contextmanager
def ignoring_damage() -> Iterator[None]:
    """Leave the block where what it reads is damaged; not if it needs other keys."""
    try:
        yield
    except WrongKeys:
        raise
    except Corrupt:
        pass


def compare(seq: int, nonce: str | None, expected: str) -> None:
    """Raise Corrupt unless a state has the nonce that is expected of it, if both are known."""
    if nonce != expected and nonce != "" and expected:
        raise Corrupt(f"a state is not the one that belongs here: it was put back. seq=`{seq}`")


def checked(row: Row, state: bytes) -> bytes:
    """Return the state of a snapshot, or raise Corrupt if it has not the size that is recorded."""
    if len(state) != row.size:
        raise Corrupt(f"a state has another size. seq=`{row.seq}`")
    return state


class States:
    """Reads the states of one moment of a scope."""

    def __init__(self, reader: Reader, cache: SegmentCache | None = None) -> None:
        self._reader = reader
        self._cache = cache
        self._tail: dict[int, TailRow] | None = None
        self._found: dict[int, State] = {}
        self._segments: dict[int, tuple[SegmentRow, Segment | None]] = {}

    @property
    def tail(self) -> dict[int, TailRow]:
        if self._tail is None:
            self._tail = self._reader.tail()
        return self._tail

    def of(self, row: Row) -> bytes:
        """Return the state of a snapshot, or raise Corrupt."""
        return checked(row, self.get(row.seq, row.written_by))

    def get(self, seq: int, nonce: str = "") -> bytes:
        """Return the state of a seq that has this nonce, or raise Corrupt."""
        steps = list[Delta]()
        row = self._reader.tail_row(seq) if self._tail is None else self._tail.get(seq)
        while (found := self._found.get(seq)) is None and row is not None:
            compare(seq, row.nonce, nonce)
            if row.base is None:
                return apply_all(self.payload(row), steps[::-1])
            steps.append(delta.parse(payload_of(row)))
            if row.base >= seq:
                raise Corrupt(f"a state builds on a later one. seq=`{seq}`")
            seq, nonce = row.base, row.base_nonce
            row = self.tail.get(seq)
        if found is None:
            return apply_all(self._in_segment({seq: nonce})[seq], steps[::-1])
        compare(seq, found.nonce, nonce)
        return apply_all(found.data, steps[::-1])

    def state(self, seq: int) -> State:
        """Return a state to build on, with the nonce that it is stored with."""
        row = self._reader.tail_row(seq) if self._tail is None else self._tail.get(seq)
        if row is not None:
            return State(seq, row.nonce, self.get(seq))
        found = self.segment_row(seq)
        return State(seq, "" if found is None else found.nonces.get(seq, ""), self.get(seq))

    def payload(self, row: TailRow) -> bytes:
        """Return what a row of the tail holds, also if it is shared, or raise Corrupt."""
        if row.encoding != SHARED:
            return payload_of(row)
        name, rest = row.body[:NAME_BYTES], row.body[NAME_BYTES:]
        state = self.shared(name)
        if state is None:
            raise Corrupt(f"the state that a fork shares is missing. seq=`{row.seq}`")
        return apply_all(state, [delta.parse(codec.decompress(rest, what="state"))] if rest else [])

    def shared(self, name: bytes) -> bytes | None:
        found = self._reader.shared(name)
        return None if found is None else codec.decompress(found.body, what="state")

    def keep(self, wanted: Mapping[int, str]) -> None:
        """Read states that will be asked for, and remember them; each segment is read once."""
        groups = dict[int, dict[int, str]]()
        for seq, nonce in wanted.items():
            row = None if seq in self.tail else self.segment_row(seq)
            groups.setdefault(0 if row is None else row.last, {})[seq] = nonce
        for seq, nonce in groups.pop(0, {}).items():
            self._found[seq] = State(seq, nonce, self.get(seq, nonce))
        for inside in groups.values():
            for seq, data in self._in_segment(inside).items():
                self._found[seq] = State(seq, inside[seq], data)

    def _in_segment(self, wanted: Mapping[int, str]) -> dict[int, bytes]:
        """Return states of one segment, by seq."""
        segment = self.segment(seq := next(iter(wanted)))
        row = self.segment_row(seq)
        nonces = {} if row is None else row.nonces
        if nonces:
            for each, nonce in wanted.items():
                compare(each, nonces.get(each), nonce)
        found = segment.states(wanted)
        if self._cache is not None and row is not None:  # again: it costs more, once it was read
            self._cache.put(self._content(row), segment)
        return found

    def newest_segment_end(self) -> int | None:
        found = self._reader.segment(None)
        return None if found is None else found.last

    def segment_row(self, seq: int) -> SegmentRow | None:
        """Return the segment that holds a seq, if one does."""
        for row, _ in self._segments.values():
            if row.first <= seq <= row.last:
                return row
        found = self._reader.segment(seq)
        if found is None or found.first > seq:
            return None
        self._segments[found.last] = found, None
        return found

    def segment(self, seq: int) -> Segment:
        """Return the segment that holds a seq, or raise Corrupt."""
        row = self.segment_row(seq)
        if row is None:
            raise Corrupt(f"the state of a snapshot is missing. seq=`{seq}`")
        _, parsed = self._segments[row.last]
        if parsed is None:
            known = None if self._cache is None else self._cache.get(self._content(row))
            parsed = Segment.parse(row.blob) if known is None else known
            self._segments[row.last] = row, parsed
        return parsed

    def _content(self, row: SegmentRow) -> tuple[ScopeKey, int, int, int]:
        key = self._reader.record.key  # type: ignore[union-attr]  # else it had no segments
        return key, row.last, len(row.blob), codec.checksum_of(row.blob)
