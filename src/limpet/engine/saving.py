"""How a commit becomes a change: in general, and without reading anything.

`decide` reads what the rules of `core.commits` need. `continued` makes the change of a save behind
the head that this process wrote last: everything is known then, and nothing is read.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeAlias, TypeVar

import orjson

from limpet.core import commits, ids
from limpet.core.commits import ScopeState
from limpet.core.deltas import delta
from limpet.core.deltas.delta import Delta, extended
from limpet.core.encryption import WrongKeys
from limpet.core.rows import Row
from limpet.core.segments import SMALL_BYTES, apply_all
from limpet.engine.editing import Version, replaced, shared_by
from limpet.engine.records import changed, dump_offsets, has_made, head_of
from limpet.engine.states import (
    State,
    States,
    delta_row,
    ignoring_damage,
    is_shared,
    is_whole_due,
    shared_name,
    shared_row,
    shared_tail,
    tail_row,
    whole_row,
)
from limpet.errors import Corrupt, InvalidInput, Unavailable
from limpet.model import ANY, HEAD
from limpet.protocol import Append, AppendOffsets, Commit, Copy, Stamp
from limpet.storage import (
    NAME_BYTES,
    SHARED,
    TRAIL_BYTES_MAX,
    Change,
    Reader,
    ScopeRecord,
    SharedRow,
    TailRow,
)

T = TypeVar("T")
Decide: TypeAlias = Callable[[Reader, Stamp], tuple[Change | None, T]]
"""Decides what to write to a scope, and what to return; pure, and may be called again."""

_STEPS_MAX = 64
_NOTHING = ((),) * 5  # tail_gone, segments, segments_gone, notes, notes_gone
_FIELDS = ScopeRecord._fields
_LEASE_AND_NOTES = slice(_FIELDS.index("fence"), _FIELDS.index("tail_count"))
_new = tuple.__new__  # the same as Row(…), without a call of Python code
_KNOWN_BYTES = 2000  # what a record and a row take, about
_STEP_BYTES = 200


class Known(NamedTuple):
    """What this process knows of a scope that it changed last; true as long as its version is.

    `base` is a state from which `steps` lead to that of the tip; None if that is not known. `cost`
    is what all of it takes in memory, about.
    """

    record: ScopeRecord
    head: Row | None
    base: bytes | None
    steps: tuple[Delta, ...] = ()
    cost: int = _KNOWN_BYTES

    def state(self) -> bytes | None:
        """Return the state of the tip, if it is known."""
        return None if self.base is None else apply_all(self.base, self.steps)


def known_of(record: ScopeRecord, head: Row, state: bytes | None) -> Known:
    return Known(record, head, state, (), _KNOWN_BYTES + len(state or b""))


class Saved(NamedTuple):
    """A snapshot, and what is known of its scope after the commit; None if nothing was written."""

    row: Row
    known: Known | None = None


def continued(commit: Commit, known: Known, *, wholes: bool = True) -> tuple[Change, Saved] | None:
    """Return the change of a save behind the head; None if the general way has to decide.

    `wholes` as in `rolling.Limits`.
    """
    record, head = known.record, known.head
    if head is None or not head.kept or record.head != record.tip:
        return None
    if not commit.keep or not commit.head or commit.replaces is not None:
        return None
    if commit.forked_from is not None or commit.new_scope or commit.again or commit.past_damage:
        return None
    if commit.fence is not None and commit.fence != record.fence:
        return None
    if commit.expect is not ANY and commit.expect != head.revision:
        return None
    # Any other id that is taken is refused by the storage.
    if commit.id is not None and commit.id in (head.id, commit.parent):
        return None
    if commit.parent is not HEAD and commit.parent != head.id and _is_compared(commit.body):
        return None  # on another branch the state builds on its parent
    now, nonce, bits = commit.stamp
    seq = ids.place(now, record.last, bits)
    stored = _next_row(commit, known, head, seq, wholes=wholes)
    if stored is None:
        return None
    entry, size, offsets, base, steps, cost = stored
    id, floor = commit.id, record.floor
    if id is None:
        id = floor = ids.mint(now, bits, floor, record.pk)
    parent_id = head.id if commit.parent is HEAD else commit.parent
    status = head.status if commit.status is None else commit.status
    created_at = now if commit.created_at is None else commit.created_at
    facts = (status, commit.labels, commit.metadata, created_at, now, seq >> ids.PLACE_BITS, size)
    row = _new(Row, (seq, id, 0, nonce, True, parent_id, None, *facts, ""))
    version = bytes.fromhex(nonce)
    tail = (record.tail_count + 1, record.tail_bytes + len(entry.body))
    lease_and_notes: Any = record[_LEASE_AND_NOTES]
    place = (record.key, record.pk, int.from_bytes(version, signed=True), seq, seq, seq, floor)
    trail = (version + record.trail)[:TRAIL_BYTES_MAX]
    after = _new(
        ScopeRecord, (*place, *lease_and_notes, *tail, dump_offsets(offsets), trail, record.epoch)
    )
    written = (commit.scope, record, after, (row,), False, (), (entry,))
    change = _new(Change, (*written, *_NOTHING, parent_id != head.id, (), (), False))
    return change, _new(Saved, (row, _new(Known, (after, row, base, steps, cost))))


_Next = tuple[TailRow, int, AppendOffsets | None, bytes | None, tuple[Delta, ...], int]
"""A tail row, the size of its state, its offsets; and the base, the steps and the cost of `Known`.
"""


def _next_row(commit: Commit, known: Known, head: Row, seq: int, *, wholes: bool) -> _Next | None:
    record, body, nonce = known.record, commit.body, commit.stamp.nonce
    if isinstance(body, bytes):
        size = len(body)
        if size <= SMALL_BYTES or (wholes and is_whole_due(record.tail_count, size)):
            entry = whole_row(seq, nonce, body)
        elif (state := known.state()) is not None:
            entry = tail_row(seq, nonce, body, State(head.seq, head.written_by, state))
        else:
            return None
        return entry, size, commit.append_offsets, body, (), _KNOWN_BYTES + size
    if not isinstance(body, Append) or record.offsets is None:
        return None
    found = extended(orjson.loads(record.offsets), head.size, body)
    if found is None:
        return None
    step, offsets = found
    size = head.size + len(step.literal)
    if size > body.state_bytes_max:
        return None
    if size <= SMALL_BYTES or (wholes and is_whole_due(record.tail_count, size)):
        before = known.state()
        if before is None:
            return None
        state = delta.apply(before, step)
        return whole_row(seq, nonce, state), size, offsets, state, (), _KNOWN_BYTES + size
    base, steps = known.base, (*known.steps, step)
    cost = known.cost + len(step.literal) + _STEP_BYTES
    if base is not None and len(steps) > _STEPS_MAX:
        base, steps, cost = apply_all(base, steps), (), _KNOWN_BYTES + size
    entry = delta_row(seq, nonce, delta.dump(step), head.seq, head.written_by)
    return entry, size, offsets, base, steps, cost


def decider(commit: Commit, *, wholes: bool) -> Decide[Saved]:
    """Return `decide` for a commit, with the stamp of each attempt."""
    return lambda reader, stamp: decide(reader, commit._replace(stamp=stamp), wholes=wholes)


def decide(reader: Reader, commit: Commit, *, wholes: bool = True) -> tuple[Change | None, Saved]:
    """Return the change of a commit by the rules, or raise the error for which it is refused.

    `wholes` as in `rolling.Limits`.
    """
    origin, source = _source(reader, commit)  # before the record: one round trip for both
    record = reader.record
    if commit.again and record is not None:
        stored = reader.row_by_nonce(commit.stamp.nonce)
        if stored is not None:
            return None, Saved(stored)
        if has_made(record, commit.stamp):
            raise Unavailable(
                "this write was stored before, and others have replaced or deleted what it stored: "
                f"it is not made again. session=`{commit.scope.session_id}`",
                outcome_known=False,
            )
    states = States(reader)
    existing = None
    if commit.id is not None and record is not None:
        existing = next(iter(reader.rows([commit.id])), None)
    head = _head(reader, commit)
    plan = commits.decide(
        commit,
        _scope_state(record, head, commit),
        existing,
        source=source,
        same_body=lambda: existing is not None and _is_body(states, existing, commit),
        newest_kept=lambda: _tip_id(reader, commit),
    )
    if plan.is_stored:
        return None, Saved(plan.row)
    if existing is None and origin is not None and source is not None and _shares(commit, source):
        forked = _forked(reader, commit, plan, head, (origin, source))
        if forked is not None:
            return forked
    state, offsets = _state(commit, states, head, origin, source)
    row = plan.row._replace(size=len(state))
    if existing is not None and record is not None:
        versions = [Version(existing, row, state)]
        change = replaced(reader, record, states, versions, commit.stamp, offsets)
        row = change.rows[0]
    else:
        entry = _entry(reader, states, head, row, state, wholes=wholes)
        change = _added(reader, commit, plan, head, row, entry, offsets)
    return change, Saved(row, _known(change.after, row, state))


def _shares(commit: Commit, source: Row) -> bool:
    """Return whether a fork shares the state of its source instead of a copy."""
    ref = commit.forked_from
    if ref is None or isinstance(commit.body, Append):
        return False
    if isinstance(commit.body, bytes) and not is_shared(len(commit.body)):
        return False
    return is_shared(source.size) and ref.scope.session_id == commit.scope.session_id


def _forked(
    reader: Reader,
    commit: Commit,
    plan: commits.Plan,
    head: Row | None,
    origin: tuple[Reader, Row],
) -> tuple[Change, Saved] | None:
    """Return the change that adds a fork; None if its state is too much of another.

    Only the first fork of a state stores it. A copy need not even read it.
    """
    there, source = origin
    begun = there.tail_row(source.seq)  # a fork of a fork shares what that one began with
    if begun is None or begun.encoding != SHARED:
        begun = TailRow(source.seq, None, SHARED, shared_name(source))
    name, base = begun.body[:NAME_BYTES], None
    shared = list[SharedRow]()
    is_there = reader.has_shared(name)
    if is_there is None:
        return None
    if not is_there:
        base = States(there).of(source)
        shared = [shared_row(name, base)]
    body, row, offsets = commit.body, plan.row._replace(size=source.size), None
    entry: TailRow | None = TailRow(row.seq, None, SHARED, begun.body, row.nonce)
    state = base
    if isinstance(body, bytes):
        base, state, row = base or States(reader).shared(name), body, plan.row
        offsets = commit.append_offsets
        entry = None if base is None else shared_tail(row.seq, row.nonce, name, base, body)
    if entry is None:
        return None
    change = _added(reader, commit, plan, head, row, entry, offsets)._replace(shared=shared)
    return change, Saved(row, _known(change.after, row, state))


def _added(
    reader: Reader,
    commit: Commit,
    plan: commits.Plan,
    head: Row | None,
    row: Row,
    entry: TailRow,
    offsets: AppendOffsets | None,
) -> Change:
    """Return the change that adds a new snapshot."""
    record = reader.record
    gone = [] if plan.covers is None else [plan.covers.seq]
    covered = {seq: found for seq in gone if (found := reader.tail_row(seq)) is not None}
    count = 0 if record is None else record.tail_count
    size = 0 if record is None else record.tail_bytes
    fields: dict[str, object] = {
        "last": row.seq,
        "floor": plan.floor,
        "tail_count": count + 1 - len(covered),
        "tail_bytes": size + len(entry.body) - sum(len(each.body) for each in covered.values()),
    }
    if commit.head:
        fields["head"] = row.seq
    if row.kept:
        fields |= {"tip": row.seq, "offsets": dump_offsets(offsets)}
    # With a kept head that is the newest, nothing can ever come between it and this one.
    is_next = head is not None and record is not None and head.seq == record.tip
    return Change(
        commit.scope,
        record,
        changed(record, commit.scope, commit.stamp, states_changed=bool(gone), **fields),
        [row],
        rows_gone=gone,
        tail=[entry],
        tail_gone=gone,
        apart=not is_next or head is None or head.id != row.parent_id,
        unshared=shared_by(covered, gone),
    )


def _known(record: ScopeRecord | None, row: Row, state: bytes | None) -> Known | None:
    if record is None or record.head != row.seq or record.tip != row.seq:
        return None
    return known_of(record, row, state)


def _scope_state(record: ScopeRecord | None, head: Row | None, commit: Commit) -> ScopeState:
    now, _, bits = commit.stamp
    seq = ids.place(now, 0 if record is None else record.last, bits)
    if record is None:
        return ScopeState(None, "", None, seq, ids.place_us(seq), line=seq)
    taken, saved_at = record.holds_anything, ids.place_us(seq)
    return ScopeState(head, record.floor, record.fence, seq, saved_at, taken, record.pk)


def _source(reader: Reader, commit: Commit) -> tuple[Reader | None, Row | None]:
    """Return the snapshot that a fork begins at, if the commit depends on it."""
    ref = commit.forked_from
    if ref is None or (commit.source is None and not isinstance(commit.body, Copy)):
        return None, None
    origin = reader.other(ref.scope)
    return origin, next(iter(origin.rows([ref.id])), None)


def _head(reader: Reader, commit: Commit) -> Row | None:
    try:
        return head_of(reader)
    except Corrupt as cause:
        # The damaged row stays where it is, and is no longer shown.
        is_needed = commits.needs_head(commit) or isinstance(commit.body, Append)
        if is_needed or isinstance(cause, WrongKeys):
            raise
        return None


def _tip_id(reader: Reader, commit: Commit) -> str | None:
    record = reader.record
    with ignoring_damage() if commit.past_damage else nullcontext():
        row = None if record is None or record.tip is None else reader.row_at(record.tip)
        return None if row is None else row.id
    return None


def _is_body(states: States, existing: Row, commit: Commit) -> bool:
    try:
        return states.of(existing) == commit.body
    except Corrupt as cause:
        if isinstance(cause, WrongKeys) or not commit.overwrite:
            raise
        return False


def _state(
    commit: Commit,
    states: States,
    head: Row | None,
    origin: Reader | None,
    source: Row | None,
) -> tuple[bytes, AppendOffsets | None]:
    if isinstance(commit.body, Append):
        return commits.appended(commit.body, None if head is None else states.of(head))
    if isinstance(commit.body, bytes):
        return commit.body, commit.append_offsets
    if origin is None or source is None:
        raise InvalidInput("a copy needs the snapshot that it is forked from")
    return States(origin).of(source), None


def _is_compared(body: bytes | Append | Copy) -> bool:
    return isinstance(body, bytes) and len(body) > SMALL_BYTES


def _entry(
    reader: Reader, states: States, head: Row | None, row: Row, state: bytes, *, wholes: bool
) -> TailRow:
    record = reader.record
    if record is None or record.tip is None or len(state) <= SMALL_BYTES:
        return whole_row(row.seq, row.nonce, state)
    if wholes and is_whole_due(record.tail_count, len(state)):
        return whole_row(row.seq, row.nonce, state)
    base = record.tip
    try:
        if row.parent_id is not None and head is not None and row.parent_id != head.id:
            found = next(iter(reader.rows([row.parent_id])), None)
            base = found.seq if found is not None and found.kept else base
        return tail_row(row.seq, row.nonce, state, states.state(base))
    except Corrupt:  # no save fails because an older state is damaged
        return whole_row(row.seq, row.nonce, state)
