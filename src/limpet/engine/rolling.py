"""The roll: now and then the tail of a scope moves into a segment.

A roll is a change like any other. It is worked out from one moment of the scope and written if no
stored state went or changed since, so saves that came in between do not stop it. Nothing is lost if
it does not happen.
"""

from typing import Final, NamedTuple

from limpet.core import segments
from limpet.core.deltas import delta
from limpet.core.deltas.delta import Delta
from limpet.core.limits import KIB
from limpet.core.segments import SMALL_BYTES, Segment
from limpet.engine.records import changed
from limpet.engine.states import BYTES_PER_DELTA, States, payload_of, tail_row
from limpet.protocol import Stamp
from limpet.storage import WHOLE, Change, Reader, ScopeRecord, SegmentRow, TailRow

_SEGMENT_COUNT_MAX: Final = 1024
_SEGMENT_DELTA_BYTES: Final = 32 * KIB
_PACKED_BYTES: Final = 16 * KIB


class Limits(NamedTuple):
    """When a tail is rolled: by its snapshots, or by its bytes."""

    snapshots: int = 64
    stored_bytes: int = 64 * KIB

    def is_due(self, record: ScopeRecord, size: int) -> bool:
        """Return whether a tail is due; a roll writes the state, so large states wait longer."""
        count = max(self.snapshots, min(size // BYTES_PER_DELTA, 4 * self.snapshots))
        return record.tail_bytes >= self.stored_bytes or record.tail_count >= count


LIMITS: Final = Limits()


class Roll(NamedTuple):
    """What a roll writes, and the epoch in which it is right."""

    epoch: int
    change: Change
    less_count: int
    less_bytes: int

    def at(self, reader: Reader, stamp: Stamp) -> tuple[Change | None, None]:
        """Return it as a change of the present moment, unless stored states went or changed."""
        record = reader.record
        if record is None or record.epoch != self.epoch:
            return None, None
        after = changed(
            record,
            record.key,
            stamp,
            states_changed=True,
            tail_count=record.tail_count - self.less_count,
            tail_bytes=record.tail_bytes - self.less_bytes,
        )
        return self.change._replace(before=record, after=after), None


def plan(reader: Reader) -> Roll | None:
    """Work a roll out; None if there is nothing to move. Raises Corrupt if a state is damaged."""
    record = reader.record
    if record is None or record.tip is None:
        return None
    states = States(reader)
    tail, last = states.tail, reader.segment(None)
    ground = 0 if last is None else last.last
    is_draft = record.head != record.tip and record.head in tail and not _is_kept(reader, record)
    drafts = {record.head} if is_draft else set()
    moved = sorted((seq for seq in tail if seq not in drafts and seq > ground), reverse=True)
    if not moved or moved[0] != record.tip:
        return None
    older = None if last is None else Segment.parse(last.blob)
    if older is not None and _is_full(older, len(moved)):
        older = None
    made, newest = _segment(states, moved, older)
    # A draft, or one that was kept later and is older than the newest segment, stays in the tail.
    left = [_restated(states, seq, record.tip, newest) for seq in tail if seq not in moved]
    change = Change(
        record.key,
        record,
        record,
        tail=left,
        tail_gone=moved,
        segments=[SegmentRow(made.oldest_seq, made.newest_seq, made.dump())],
        segments_gone=() if older is None or last is None else [last.last],
    )
    less = sum(len(row.body) for row in tail.values()) - sum(len(row.body) for row in left)
    return Roll(record.epoch, change, len(moved), less)


def _is_kept(reader: Reader, record: ScopeRecord) -> bool:
    row = None if record.head is None else reader.row_at(record.head)
    return row is not None and row.kept


def _restated(states: States, seq: int, newest_seq: int, newest: bytes) -> TailRow:
    return tail_row(
        seq, states.get(seq), *((newest_seq, newest) if newest_seq < seq else (None, None))
    )


def _is_full(last: Segment, count: int) -> bool:
    """Return whether a new segment is begun instead of one that takes the last one in."""
    first = last.frames[0]
    if first.length > 1:  # small states: nothing is gained but fewer segments
        return len(last.frames) > 1 or len(first.data) > _PACKED_BYTES
    too_large = last.delta_bytes > max(_SEGMENT_DELTA_BYTES, len(first.data))
    return last.count + count > _SEGMENT_COUNT_MAX or too_large


def _segment(states: States, moved: list[int], older: Segment | None) -> tuple[Segment, bytes]:
    """Return the states of some seqs, the newest first, as a segment; and the newest state."""
    tail = states.tail
    rows = [tail[seq] for seq in moved]
    if all(
        row.base is None and row.encoding == WHOLE and len(row.body) <= SMALL_BYTES for row in rows
    ):
        return segments.pack([(row.seq, row.body) for row in rows], older), rows[0].body
    before, state = (None, b"") if older is None else (older.newest_seq, older.newest())
    steps = list[tuple[int, Delta]]()
    for row in reversed(rows):  # one state at a time is in memory
        earlier = state
        if row.base is not None and row.base == before:
            step = delta.parse(payload_of(row))
            state = segments.apply_all(earlier, [step])
            back = segments.inverse(earlier, step)
        else:
            state = payload_of(row) if row.base is None else states.get(row.seq)
            back = delta.diff(state, earlier)
        if before is not None:
            steps.append((before, back))
        before = row.seq
    return segments.chain((moved[0], state), steps[::-1], older), state
