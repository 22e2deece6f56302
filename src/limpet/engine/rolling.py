"""The roll: now and then the tail of a scope moves into a segment.

A roll is a change like any other. It is worked out from one moment of the scope and written if no
stored state went or changed since, so saves that came in between do not stop it. Nothing is lost if
it does not happen.
"""

import threading
import weakref
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Final, NamedTuple

from limpet.backends.support import logs
from limpet.core import segments
from limpet.core.deltas import delta
from limpet.core.deltas.delta import Delta
from limpet.core.limits import KIB, RETRY_S_MAX
from limpet.core.segments import SMALL_BYTES, Segment
from limpet.engine.editing import drafts_of, shared_by
from limpet.engine.records import changed
from limpet.engine.states import (
    BYTES_PER_DELTA,
    State,
    States,
    compare,
    ignoring_damage,
    payload_of,
    tail_row,
)
from limpet.model import ScopeKey
from limpet.protocol import Stamp
from limpet.storage import DAMAGED, WHOLE, Change, Reader, ScopeRecord, SegmentRow, TailRow

_SEGMENT_COUNT_MAX: Final = 1024
_SEGMENT_DELTA_BYTES: Final = 32 * KIB
_PACKED_BYTES: Final = 16 * KIB
_WAITING_MAX: Final = 1024  # scopes


class Limits(NamedTuple):
    """When a tail is rolled: by its snapshots, or by its bytes.

    A newest state of up to `newest_bytes` stays in the tail, whole: there it costs no read more.
    With `wholes` a state is stored whole now and then, so that few rows are read for one.
    """

    snapshots: int = 64
    stored_bytes: int = 64 * KIB
    newest_bytes: int = 0
    wholes: bool = True

    def is_due(self, record: ScopeRecord, size: int, times: int = 1) -> bool:
        """Return whether a tail is due; a roll writes the state, so large states wait longer.

        With `times` it is asked whether the tail is that many times as long.
        """
        if record.tail_bytes >= times * self.stored_bytes:
            return True
        if record.tail_count < times * self.snapshots:
            return False
        return record.tail_count >= times * min(size // BYTES_PER_DELTA, 4 * self.snapshots)


LIMITS: Final = Limits()
OBJECTS: Final = Limits(newest_bytes=32 * KIB, wholes=False)  # a tail is read as one


class Roll(NamedTuple):
    """What a roll writes: right in the epoch of the line that it was worked out for."""

    change: Change
    less_count: int
    less_bytes: int

    def at(self, reader: Reader, stamp: Stamp) -> tuple[Change | None, None]:
        """Return it as a change of the present moment, unless stored states went or changed."""
        record, planned = reader.record, self.change.before
        if record is None or planned is None:
            return None, None
        if (record.pk, record.epoch) != (planned.pk, planned.epoch):
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


def plan(reader: Reader, limits: Limits = LIMITS) -> Roll | int:
    """Work a roll out; else return how many bytes the tail must have before it is worth a try.

    What is damaged stays in the tail.
    """
    record = reader.record
    if record is None or not limits.is_due(record, 0):
        return 0  # another roll came first
    with ignoring_damage():
        states, last = States(reader), reader.segment(None)
        least = _shared_bytes(reader, states.tail)
        if record.tail_bytes < least:
            return least
        ground, drafts = 0 if last is None else last.last, drafts_of(reader, record)
        rows = [row for seq, row in states.tail.items() if seq > ground and seq not in drafts]
        rows = [row for row in rows if row.encoding != DAMAGED]
        stays = _staying(states, rows, limits)
        made = _made(states, rows if stays is None else rows[:-1], last)
        if made is not None:
            return _roll(states, record, made, stays)
    return 2 * record.tail_bytes


def _staying(states: States, rows: list[TailRow], limits: Limits) -> TailRow | None:
    """Return the newest row as it stays in the tail, if it does."""
    if not rows or not limits.newest_bytes:
        return None
    newest = rows[-1]
    if newest.base is not None:
        newest = tail_row(newest.seq, newest.nonce, states.get(newest.seq), None)
    return newest if len(newest.body) <= limits.newest_bytes else None


def _shared_bytes(reader: Reader, tail: Mapping[int, TailRow]) -> int:
    """Return how many bytes a tail shares with others: a roll stores them once more."""
    found = [reader.shared(name) for name in shared_by(tail, tail)]
    return sum(len(row.body) for row in found if row is not None)


class _Made(NamedTuple):
    """A segment, the rows of the tail that went into it, its newest state, and what it replaces."""

    row: SegmentRow
    moved: list[TailRow]
    newest: State
    replaces: int | None


def _roll(states: States, record: ScopeRecord, made: _Made, stays: TailRow | None) -> Roll:
    tail, moved, newest = states.tail, {row.seq for row in made.moved}, made.newest
    left = list[TailRow]()
    # A draft, or one that was kept later and is older than the newest segment, stays in the tail.
    for row in tail.values():
        if row.base in moved and stays is not None and row.seq == stays.seq:
            left.append(stays)
        elif row.base in moved and row.seq not in moved:
            with ignoring_damage():
                base = newest if newest.seq < row.seq else None
                left.append(tail_row(row.seq, row.nonce, states.get(row.seq), base))
    change = Change(
        record.key,
        record,
        record,
        tail=left,
        tail_gone=moved,
        segments=[made.row],
        segments_gone=() if made.replaces is None else [made.replaces],
        unshared=shared_by(tail, moved),
    )
    less = sum(len(tail[seq].body) for seq in [*moved, *(row.seq for row in left)])
    return Roll(change, len(moved), less - sum(len(row.body) for row in left))


def _is_full(last: Segment, count: int) -> bool:
    """Return whether a new segment is begun instead of one that takes the last one in."""
    first = last.frames[0]
    if first.length > 1:  # small states: nothing is gained but fewer segments
        return len(last.frames) > 1 or len(first.data) > _PACKED_BYTES
    too_large = last.delta_bytes > max(_SEGMENT_DELTA_BYTES, len(first.data))
    return last.count + count > _SEGMENT_COUNT_MAX or too_large


def _made(states: States, rows: list[TailRow], last: SegmentRow | None) -> _Made | None:
    """Return the segment that some rows of the tail become; None if none of them can be read."""
    has_nonces = any(row.nonce for row in rows)
    older, before = None, None
    if last is not None and has_nonces == bool(last.nonces):
        with ignoring_damage():
            found = states.segment(last.last)
            if not _is_full(found, len(rows)):
                before = State(last.last, last.nonces.get(last.last, ""), found.newest())
                older = found
    if all(
        row.base is None and row.encoding == WHOLE and len(row.body) <= SMALL_BYTES for row in rows
    ):
        moved, steps = rows, None
        newest = State(rows[-1].seq, rows[-1].nonce, rows[-1].body) if rows else None
    else:
        moved, steps, newest = _steps(states, rows, before)
    if not moved or newest is None:
        return None
    if steps is None:
        made = segments.pack([(row.seq, row.body) for row in reversed(rows)], older)
    else:
        made = segments.chain((newest.seq, newest.data), steps[::-1], older)
    nonces = {row.seq: row.nonce for row in moved} if has_nonces else {}
    replaces = None if older is None or last is None else last
    row = SegmentRow(
        made.oldest_seq,
        made.newest_seq,
        made.dump(),
        nonces if replaces is None else {**replaces.nonces, **nonces},
    )
    return _Made(row, moved, newest, None if replaces is None else replaces.last)


def _steps(
    states: States, rows: list[TailRow], state: State | None
) -> tuple[list[TailRow], list[tuple[int, Delta]], State | None]:
    """Return which rows can be read, the deltas from each to the one before, and the last state."""
    moved, steps = list[TailRow](), list[tuple[int, Delta]]()
    for row in rows:  # one state at a time is in memory
        with ignoring_damage():
            earlier = b"" if state is None else state.data
            if state is not None and row.base == state.seq:
                compare(state.seq, state.nonce, row.base_nonce)
                step = delta.parse(payload_of(row))
                data = segments.apply_all(earlier, [step])
                back = segments.inverse(earlier, step)
            else:
                data = states.get(row.seq)
                back = delta.diff(data, earlier)
            if state is not None:
                steps.append((state.seq, back))
            state = State(row.seq, row.nonce, data)
            moved.append(row)
    return moved, steps, state


class Roller:
    """Rolls one scope after the other in a daemon thread, which the first request starts.

    A scope waits once at most. What is not rolled is asked for again by the next save, so requests
    may be dropped: beyond a limit, at the end, and in a forked child, which has no such thread.
    """

    def __init__(self, roll: Callable[[ScopeKey], None]) -> None:
        self._roll = weakref.WeakMethod(roll)
        self._queue: SimpleQueue[ScopeKey | None] = SimpleQueue()
        self._waiting: set[ScopeKey] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = weakref.finalize(self, self._queue.put, None)

    def ask(self, key: ScopeKey) -> None:
        if key in self._waiting or len(self._waiting) >= _WAITING_MAX:
            return
        with self._lock:
            if self._thread is None:
                given = (self._queue, self._waiting, self._roll)
                thread = threading.Thread(
                    target=_work, args=given, name="limpet-rolls", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:
                    return  # the system allows no more, or the interpreter ends: asked again later
                self._thread = thread
        self._waiting.add(key)
        self._queue.put(key)

    def close(self) -> None:
        """Wait for the roll under way, and drop the others."""
        self._waiting.clear()
        self._stop()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(RETRY_S_MAX)


def _work(
    queue: "SimpleQueue[ScopeKey | None]",
    waiting: set[ScopeKey],
    method: "weakref.WeakMethod[Callable[[ScopeKey], None]]",
) -> None:
    while (key := queue.get()) is not None:
        roll = method()
        if roll is not None and key in waiting:
            waiting.discard(key)  # before it is read: a save from now on asks again
            try:
                roll(key)
            except Exception as cause:
                logs.warning("a roll failed: the states stay in the tail", error=repr(type(cause)))
        del roll  # an engine that nobody uses may go
