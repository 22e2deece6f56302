"""What replaces or removes stored states: update, overwrite, promotion, redaction, deletion.

No other snapshot reads back differently: a state that was built on one that goes or changes is
written again on another. What is damaged stops none of it: it can be deleted and replaced, and what
cannot be read stays as it is.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from limpet.core import commits, segments
from limpet.core.commits import ScopeState
from limpet.core.encryption import WrongKeys
from limpet.core.rows import Row
from limpet.engine.records import changed, check_expect, dump_offsets
from limpet.engine.states import State, States, ignoring_damage, tail_row
from limpet.errors import Corrupt
from limpet.model import Expect, Pruned, ScopeKey
from limpet.protocol import AppendOffsets, Commit, Stamp
from limpet.storage import NAME_BYTES, SHARED, Change, Reader, ScopeRecord, SegmentRow, TailRow


class Version(NamedTuple):
    """Another version of a snapshot: its row until now, its next row, and its state."""

    before: Row
    row: Row
    state: bytes


class _Edit(NamedTuple):
    tail: dict[int, TailRow]
    tail_gone: set[int]
    segments: list[SegmentRow]
    segments_gone: list[int]


_NOTHING = _Edit({}, set(), [], [])


def _edited(
    states: States, dropped: set[int], replaced: Mapping[int, State], drafts: set[int]
) -> _Edit:
    """Return the stored states after some are dropped and others replaced.

    No state builds on one of `drafts`, which goes when the head moves.
    """
    tail, touched = states.tail, dropped | replaced.keys()
    known = dict(replaced)
    for row in tail.values():
        if row.base in touched and row.seq not in touched:
            state = _readable(states, row.seq)
            if state is not None:  # else it cannot be read, with or without what goes
                known[row.seq] = state
    edit = _Edit({}, {seq for seq in dropped if seq in tail}, [], [])
    ground = None
    with ignoring_damage():
        ground = states.newest_segment_end()
    for old, seqs in _by_segment(states, touched - tail.keys()):
        try:
            segment = states.segment(old.last)
            # One that was lost before the tail was rolled over it is in no segment.
            kept = {seq: replaced[seq].data for seq in seqs - dropped if segment.holds(seq)}
            made = segments.edit(segment, seqs & dropped, kept)
        except WrongKeys:
            raise
        except Corrupt:
            continue  # it stays for `check`: what it holds can no longer be read
        for seq in kept:
            del known[seq]
        edit.segments_gone.append(old.last)
        if made is not None:
            nonces = {seq: nonce for seq, nonce in old.nonces.items() if seq not in dropped}
            if nonces:
                nonces |= {seq: replaced[seq].nonce for seq in kept}
            edit.segments.append(SegmentRow(made.oldest_seq, made.newest_seq, made.dump(), nonces))
        if old.last == ground:
            ground = None if made is None else made.newest_seq
    bases = [seq for seq in sorted(tail) if seq not in dropped and seq not in drafts]
    for seq in sorted(known):  # also those whose segment is damaged, or does not hold them
        base_seq = max((each for each in bases if each < seq), default=ground)
        base = None
        if base_seq is not None and base_seq < seq:
            base = known.get(base_seq) or replaced.get(base_seq) or _readable(states, base_seq)
        edit.tail[seq] = tail_row(seq, known[seq].nonce, known[seq].data, base)
    return edit


def _readable(states: States, seq: int) -> State | None:
    """Return a state, None if it is damaged."""
    with ignoring_damage():
        return states.state(seq)
    return None


def _by_segment(states: States, seqs: set[int]) -> list[tuple[SegmentRow, set[int]]]:
    """Return which of some seqs are in which segment."""
    found = dict[int, tuple[SegmentRow, set[int]]]()
    for seq in seqs:
        with ignoring_damage():
            row = states.segment_row(seq)
            if row is not None:
                found.setdefault(row.last, (row, set()))[1].add(seq)
    return list(found.values())


def _tail_sums(states: States, edit: _Edit) -> dict[str, int]:
    sizes = {seq: len(row.body) for seq, row in (states.tail | edit.tail).items()}
    left = [size for seq, size in sizes.items() if seq not in edit.tail_gone]
    return {"tail_count": len(left), "tail_bytes": sum(left)}


def _unshared(states: States, edit: _Edit) -> list[bytes]:
    return shared_by(states.tail, edit.tail_gone | edit.tail.keys())


def shared_by(tail: Mapping[int, TailRow], seqs: Collection[int]) -> list[bytes]:
    """Return the names of the shared states that some rows of a tail have."""
    rows = (tail[seq] for seq in seqs if seq in tail)
    return [row.body[:NAME_BYTES] for row in rows if row.encoding == SHARED]


def drafts_of(reader: Reader, record: ScopeRecord, kept: Collection[int] = ()) -> set[int]:
    """Return the seq of the head if it is a draft, or may be one."""
    if record.head is None or record.head == record.tip or record.head in kept:
        return set()
    with ignoring_damage():
        head = reader.row_at(record.head)
        if head is not None and head.kept:
            return set()
    return {record.head}


def replaced(
    reader: Reader,
    record: ScopeRecord,
    states: States,
    versions: Sequence[Version],
    stamp: Stamp,
    offsets: AppendOffsets | None = None,
) -> Change:
    """Return the change that puts other versions of snapshots in their places."""
    rows, others = list[Row](), dict[int, State]()
    for before, row, state in versions:
        is_same = _is_same(states, before, state)
        rows.append(row._replace(state_nonce=before.written_by if is_same else ""))
        if not is_same:
            others[row.seq] = State(row.seq, row.nonce, state)
    kept = {row.seq for row in rows if row.kept}
    edit = _edited(states, set(), others, drafts_of(reader, record, kept)) if others else _NOTHING
    fields = dict[str, object](_tail_sums(states, edit) if others else {})
    tip = max(kept, default=0)
    if tip >= (record.tip or 1):  # also a draft that is kept from now on
        fields |= {"tip": tip, "offsets": dump_offsets(offsets)}
    after = changed(record, record.key, stamp, states_changed=True, **fields)
    return Change(
        record.key,
        record,
        after,
        rows,
        replace=True,
        tail=list(edit.tail.values()),
        segments=edit.segments,
        segments_gone=edit.segments_gone,
        unshared=_unshared(states, edit) if others else (),
    )


def _is_same(states: States, before: Row, state: bytes) -> bool:
    with ignoring_damage():
        return states.of(before) == state
    return False


def replace_all(
    reader: Reader, key: ScopeKey, commits_: Sequence[Commit], stamp: Stamp
) -> tuple[Change | None, int]:
    """Decide several updates in place; return how many of the snapshots exist."""
    record = reader.record
    commits.check_fence(commits_[0].fence, None if record is None else record.fence, key)
    if record is None:
        return None, 0
    existing = {row.id: row for row in reader.rows([each.id or "" for each in commits_])}
    count, versions, states = 0, list[Version](), States(reader)
    for commit in commits_:
        row = existing.get(commit.id or "")
        if row is None or not isinstance(commit.body, bytes):
            continue
        count += 1
        if row.nonce == commit.stamp.nonce:
            continue  # it is stored already
        scope = ScopeState(fence=record.fence)
        plan = commits.decide(commit, scope, row, same_body=lambda: False, newest_kept=lambda: None)
        versions.append(Version(row, plan.row, commit.body))
    if not versions:
        return None, count
    with ignoring_damage():  # what is damaged may be replaced
        states.keep({each.before.seq: each.before.written_by for each in versions})
    return replaced(reader, record, states, versions, stamp), count


def delete_snapshots(
    reader: Reader,
    stamp: Stamp,
    *,
    key: ScopeKey,
    ids: Sequence[str],
    spare_head: bool,
    expect: Expect,
    fence: str | None,
) -> tuple[Change | None, Pruned]:
    record = reader.record
    commits.check_fence(fence, None if record is None else record.fence, key)
    check_expect(expect, reader, key)
    if record is None or not ids:
        return None, Pruned(0, 0)
    doomed = dict.fromkeys(ids)
    sizes = dict(reader.seqs_and_sizes(list(doomed)))
    if spare_head and record.head in sizes:
        del sizes[record.head]
        del doomed[_id_at(reader, record.head, ids)]
    notes, dropped = reader.note_addresses(doomed), set(sizes)
    if not dropped and not notes:
        return None, Pruned(0, 0)
    states = States(reader)
    edit = _edited(states, dropped, {}, drafts_of(reader, record)) if dropped else _NOTHING
    fields: dict[str, object] = {"notes": record.notes - len(notes)}
    if dropped:
        fields |= _tail_sums(states, edit)
    if dropped & {record.head, record.tip}:
        uncovered = reader.newest_kept(dropped)
        if record.tip in dropped:
            fields |= {"tip": uncovered, "offsets": None}
        if record.head in dropped:
            fields["head"] = uncovered
    after = changed(record, key, stamp, states_changed=bool(dropped), **fields)
    change = Change(
        key,
        record,
        after,
        rows_gone=dropped,
        tail=list(edit.tail.values()),
        tail_gone=edit.tail_gone,
        segments=edit.segments,
        segments_gone=edit.segments_gone,
        notes_gone=notes,
        unshared=_unshared(states, edit) if dropped else (),
    )
    return change, Pruned(len(sizes), sum(sizes.values()))


def _id_at(reader: Reader, seq: int | None, ids: Sequence[str]) -> str:
    """Return which of some ids a seq has; its row may be damaged."""
    with ignoring_damage():
        row = None if seq is None else reader.row_at(seq)
        if row is not None:
            return row.id
    return next(id for id in ids if any(at == seq for at, _ in reader.seqs_and_sizes([id])))
