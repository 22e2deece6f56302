"""How a commit becomes a change: the general way, and the quick one.

`decide` reads what the rules of `core.commits` need. `continued` makes the change of a save behind
the head that this process wrote last: everything is known then, and nothing is read.
"""

from typing import NamedTuple

import orjson

from limpet.core import commits, ids
from limpet.core.commits import ScopeState
from limpet.core.deltas import delta
from limpet.core.deltas.chain import extended
from limpet.core.deltas.delta import Delta
from limpet.core.rows import Row
from limpet.core.segments import SMALL_BYTES, apply_all
from limpet.engine.editing import replaced
from limpet.engine.records import changed
from limpet.engine.states import States, delta_row, is_whole_due, tail_row, whole_row
from limpet.errors import Corrupt, InvalidInput
from limpet.model import ANY, HEAD
from limpet.protocol import Append, AppendOffsets, Commit, Copy
from limpet.storage import Change, Reader, ScopeRecord, TailRow

_STEPS_MAX = 64


class Known(NamedTuple):
    """What this process knows of a scope that it changed last; true as long as its version is.

    `base` is a state from which `steps` lead to that of the tip; None if that is not known.
    """

    record: ScopeRecord
    head: Row | None
    base: bytes | None
    steps: tuple[Delta, ...] = ()

    def state(self) -> bytes | None:
        """Return the state of the tip, if it is known."""
        return None if self.base is None else apply_all(self.base, self.steps)

    @property
    def cost(self) -> int:
        steps = sum(len(step.literal) + 200 for step in self.steps)
        return 2000 + len(self.base or b"") + steps


class Saved(NamedTuple):
    """A snapshot, and what is known of its scope after the commit; None if nothing was written."""

    row: Row
    known: Known | None = None


def can_continue(commit: Commit, known: Known) -> bool:
    """Return whether a commit may take the quick way; the general way knows all the rules."""
    head, record = known.head, known.record
    if head is None or not head.kept or record.head != record.tip:
        return False
    if not commit.keep or not commit.head or commit.replaces is not None:
        return False
    if commit.forked_from is not None or commit.new_scope or commit.again or commit.past_damage:
        return False
    if commit.fence not in (None, record.fence) or commit.expect not in (ANY, head.revision):
        return False
    # Any other id that is taken is refused by the storage.
    return commit.id is None or commit.id not in (head.id, commit.parent)


def continued(commit: Commit, known: Known) -> tuple[Change, Saved] | None:
    """Return the change of a save behind the head; None if more has to be known."""
    record, head = known.record, known.head
    if head is None or not can_continue(commit, known):
        return None
    now, nonce, bits = commit.stamp
    seq = ids.place(now, record.last, bits)
    stored = _next_row(commit, known, seq)
    if stored is None:
        return None
    entry, size, offsets, base, steps = stored
    id = ids.mint(now, bits, record.floor) if commit.id is None else commit.id
    row = Row(
        seq,
        id,
        0,
        nonce,
        True,
        head.id if commit.parent is HEAD else commit.parent,
        None,
        head.status if commit.status is None else commit.status,
        commit.labels,
        commit.metadata,
        now if commit.created_at is None else commit.created_at,
        now,
        ids.place_us(seq),
        size,
    )
    after = changed(
        record,
        commit.scope,
        commit.stamp,
        head=seq,
        tip=seq,
        last=seq,
        floor=id if commit.id is None else record.floor,
        tail_count=record.tail_count + 1,
        tail_bytes=record.tail_bytes + len(entry.body),
        offsets=None if offsets is None else orjson.dumps(offsets),
    )
    change = Change(commit.scope, record, after, [row], tail=[entry])
    return change, Saved(row, Known(after, row, base, steps))


_Next = tuple[TailRow, int, AppendOffsets | None, bytes | None, tuple[Delta, ...]]
"""A tail row, the size of its state, its offsets, and the base and steps of `Known`."""


def _next_row(commit: Commit, known: Known, seq: int) -> _Next | None:
    record, body = known.record, commit.body
    if isinstance(body, bytes):
        size, state = len(body), None
        if size > SMALL_BYTES and not is_whole_due(record.tail_count, size):
            state = known.state()
            if state is None:
                return None
        entry = tail_row(seq, body, record.tip, state)
        return entry, size, commit.append_offsets, body, ()
    if not isinstance(body, Append) or record.offsets is None or known.head is None:
        return None
    found = extended(orjson.loads(record.offsets), known.head.size, body)
    if found is None:
        return None
    step, offsets = found
    size = known.head.size + len(step.literal)
    if size > body.state_bytes_max:
        return None
    if size <= SMALL_BYTES or is_whole_due(record.tail_count, size):
        before = known.state()
        if before is None:
            return None
        state = delta.apply(before, step)
        return whole_row(seq, state), size, offsets, state, ()
    if record.tip is None:
        return None
    base, steps = known.base, (*known.steps, step)
    if base is not None and len(steps) > _STEPS_MAX:
        base, steps = apply_all(base, steps), ()
    return delta_row(seq, record.tip, delta.dump(step)), size, offsets, base, steps


def decide(reader: Reader, commit: Commit) -> tuple[Change | None, Saved]:
    """Return the change of a commit by the rules, or raise the error for which it is refused."""
    record = reader.record
    if commit.again and record is not None:
        stored = reader.row_by_nonce(commit.stamp.nonce)
        if stored is not None:
            return None, Saved(stored)
    states = States(reader)
    existing = None
    if commit.id is not None and record is not None:
        existing = next(iter(reader.rows([commit.id])), None)
    origin, source = _source(reader, commit)
    head = _head(reader, commit)
    plan = commits.decide(
        commit,
        _scope_state(record, head, commit),
        existing,
        source=source,
        same_body=lambda: existing is not None and states.get(existing.seq) == commit.body,
        newest_kept=lambda: _tip_id(reader),
    )
    if plan.is_stored:
        return None, Saved(plan.row)
    state, offsets = _state(commit, states, head, origin, source)
    row = plan.row._replace(size=len(state))
    if existing is not None and record is not None:
        change = replaced(reader, record, states, [(row, state)], commit.stamp, offsets)
        return change, Saved(row, _known(change.after, row, state))
    change = _added(reader, commit, states, plan, row, state, offsets)
    return change, Saved(row, _known(change.after, row, state))


def _added(
    reader: Reader,
    commit: Commit,
    states: States,
    plan: commits.Plan,
    row: Row,
    state: bytes,
    offsets: AppendOffsets | None,
) -> Change:
    """Return the change that adds a new snapshot."""
    record = reader.record
    entry = _entry(states, record, row.seq, state)
    gone = [] if plan.covers is None else [plan.covers.seq]
    covered = [found for seq in gone if (found := reader.tail_row(seq)) is not None]
    count = 0 if record is None else record.tail_count
    size = 0 if record is None else record.tail_bytes
    fields: dict[str, object] = {
        "last": row.seq,
        "floor": plan.floor,
        "tail_count": count + 1 - len(covered),
        "tail_bytes": size + len(entry.body) - sum(len(each.body) for each in covered),
    }
    if commit.head:
        fields["head"] = row.seq
    if row.kept:
        fields |= {"tip": row.seq, "offsets": None if offsets is None else orjson.dumps(offsets)}
    after = changed(record, commit.scope, commit.stamp, states_changed=bool(gone), **fields)
    return Change(commit.scope, record, after, [row], rows_gone=gone, tail=[entry], tail_gone=gone)


def _known(record: ScopeRecord | None, row: Row, state: bytes) -> Known | None:
    if record is None or record.head != row.seq or record.tip != row.seq:
        return None
    return Known(record, row, state)


def _scope_state(record: ScopeRecord | None, head: Row | None, commit: Commit) -> ScopeState:
    now, _, bits = commit.stamp
    seq = ids.place(now, 0 if record is None else record.last, bits)
    if record is None:
        return ScopeState(None, "", None, seq, ids.place_us(seq))
    taken = record.holds_anything
    return ScopeState(head, record.floor, record.fence, seq, ids.place_us(seq), taken)


def _source(reader: Reader, commit: Commit) -> tuple[Reader | None, Row | None]:
    """Return the snapshot that a fork begins at, if the commit depends on it."""
    ref = commit.forked_from
    if ref is None or (commit.source is None and not isinstance(commit.body, Copy)):
        return None, None
    origin = reader.other(ref.scope)
    return origin, next(iter(origin.rows([ref.id])), None)


def _head(reader: Reader, commit: Commit) -> Row | None:
    record = reader.record
    try:
        return None if record is None or record.head is None else reader.row_at(record.head)
    except Corrupt:
        if commits.needs_head(commit):
            raise
        return None


def _tip_id(reader: Reader) -> str | None:
    record = reader.record
    row = None if record is None or record.tip is None else reader.row_at(record.tip)
    return None if row is None else row.id


def _state(
    commit: Commit,
    states: States,
    head: Row | None,
    origin: Reader | None,
    source: Row | None,
) -> tuple[bytes, AppendOffsets | None]:
    if isinstance(commit.body, Append):
        return commits.appended(commit.body, None if head is None else states.get(head.seq))
    if isinstance(commit.body, bytes):
        return commit.body, commit.append_offsets
    if origin is None or source is None:
        raise InvalidInput("a copy needs the snapshot that it is forked from")
    return States(origin).get(source.seq), None


def _entry(states: States, record: ScopeRecord | None, seq: int, state: bytes) -> TailRow:
    if record is None or record.tip is None or len(state) <= SMALL_BYTES:
        return whole_row(seq, state)
    if is_whole_due(record.tail_count, len(state)):
        return whole_row(seq, state)
    try:
        return tail_row(seq, state, record.tip, states.get(record.tip))
    except Corrupt:
        return whole_row(seq, state)  # no save fails because an older state is damaged
