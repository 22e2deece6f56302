"""What replaces or removes stored states: update, overwrite, promotion, redaction, deletion.

No other snapshot reads back differently: a state that was built on one that goes or changes is
written again on another.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import orjson

from limpet.core import commits, segments
from limpet.core.commits import ScopeState
from limpet.core.rows import Row
from limpet.engine.records import changed
from limpet.engine.states import States, tail_row
from limpet.errors import Corrupt
from limpet.model import Pruned, ScopeKey
from limpet.protocol import AppendOffsets, Commit, Stamp
from limpet.storage import Change, Reader, ScopeRecord, SegmentRow, TailRow


class _Edit(NamedTuple):
    tail: dict[int, TailRow]
    tail_gone: set[int]
    segments: list[SegmentRow]
    segments_gone: list[int]


_NOTHING = _Edit({}, set(), [], [])


def _edited(
    states: States, dropped: set[int], replaced: Mapping[int, bytes], drafts: set[int]
) -> _Edit:
    """Return the stored states after some are dropped and others replaced.

    No state builds on one of `drafts`, which goes when the head moves.
    """
    tail, touched = states.tail, dropped | replaced.keys()
    rebased = dict[int, bytes]()
    for row in tail.values():
        if row.base in touched and row.seq not in touched:
            with suppress(Corrupt):  # it cannot be read, with or without what goes
                rebased[row.seq] = states.get(row.seq)
    edit = _Edit({}, {seq for seq in dropped if seq in tail}, [], [])
    ground = states.newest_segment_end()
    for last, seqs in _by_segment(states, touched).items():
        kept = {seq: replaced[seq] for seq in seqs if seq in replaced}
        made = segments.edit(states.segment(last), seqs & dropped, kept)
        edit.segments_gone.append(last)
        if made is not None:
            edit.segments.append(SegmentRow(made.oldest_seq, made.newest_seq, made.dump()))
        if last == ground:
            ground = None if made is None else made.newest_seq
    bases = [seq for seq in sorted(tail) if seq not in dropped and seq not in drafts]
    known = {**rebased, **replaced}
    for seq in sorted(rebased.keys() | (replaced.keys() & tail.keys())):
        base_seq = max((each for each in bases if each < seq), default=ground)
        base = None
        if base_seq is not None and base_seq < seq:
            with suppress(Corrupt):
                base = known[base_seq] if base_seq in known else states.get(base_seq)
        edit.tail[seq] = tail_row(seq, known[seq], base_seq, base)
    return edit


def _by_segment(states: States, seqs: set[int]) -> dict[int, set[int]]:
    """Return which of some seqs are in which segment, by its last seq."""
    found = dict[int, set[int]]()
    for seq in seqs:
        row = None if seq in states.tail else states.segment_row(seq)
        if row is not None:
            found.setdefault(row.last, set()).add(seq)
    return found


def _tail_sums(states: States, edit: _Edit) -> dict[str, int]:
    sizes = {seq: len(row.body) for seq, row in (states.tail | edit.tail).items()}
    left = [size for seq, size in sizes.items() if seq not in edit.tail_gone]
    return {"tail_count": len(left), "tail_bytes": sum(left)}


def replaced(
    reader: Reader,
    record: ScopeRecord,
    states: States,
    changes: Sequence[tuple[Row, bytes]],
    stamp: Stamp,
    offsets: AppendOffsets | None = None,
) -> Change:
    """Return the change that puts other versions of snapshots in their places."""
    others = {row.seq: state for row, state in changes if not _is_same(states, row, state)}
    kept = {row.seq for row, _ in changes if row.kept}
    head = None if record.head is None else reader.row_at(record.head)
    drafts = set() if head is None or head.kept or head.seq in kept else {head.seq}
    edit = _edited(states, set(), others, drafts) if others else _NOTHING
    fields = dict[str, object](_tail_sums(states, edit) if others else {})
    tip = max(kept, default=0)
    if tip >= (record.tip or 1):  # also a draft that is kept from now on
        fields |= {"tip": tip, "offsets": None if offsets is None else orjson.dumps(offsets)}
    after = changed(record, record.key, stamp, states_changed=True, **fields)
    return Change(
        record.key,
        record,
        after,
        [row for row, _ in changes],
        replace=True,
        tail=list(edit.tail.values()),
        segments=edit.segments,
        segments_gone=edit.segments_gone,
    )


def _is_same(states: States, row: Row, state: bytes) -> bool:
    try:
        return states.get(row.seq) == state
    except Corrupt:
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
    count, changes, states = 0, list[tuple[Row, bytes]](), States(reader)
    for commit in commits_:
        row = existing.get(commit.id or "")
        if row is None or not isinstance(commit.body, bytes):
            continue
        count += 1
        if row.nonce == commit.stamp.nonce:
            continue  # it is stored already
        scope = ScopeState(fence=record.fence)
        plan = commits.decide(commit, scope, row, same_body=lambda: False, newest_kept=lambda: None)
        changes.append((plan.row, commit.body))
    if not changes:
        return None, count
    with suppress(Corrupt):  # what is damaged may be replaced
        states.keep([row.seq for row, _ in changes])
    return replaced(reader, record, states, changes, stamp), count


def delete_snapshots(
    reader: Reader,
    key: ScopeKey,
    ids: Sequence[str],
    stamp: Stamp,
    *,
    spare_head: bool,
    fence: str | None,
) -> tuple[Change | None, Pruned]:
    record = reader.record
    commits.check_fence(fence, None if record is None else record.fence, key)
    if record is None or not ids:
        return None, Pruned(0, 0)
    head = None if record.head is None else reader.row_at(record.head)
    doomed = dict.fromkeys(ids)
    if spare_head and head is not None:
        doomed.pop(head.id, None)
    rows = reader.rows(list(doomed))
    notes = [(note.on, note.name) for note in reader.notes(doomed)]
    if not rows and not notes:
        return None, Pruned(0, 0)
    states, dropped = States(reader), {row.seq for row in rows}
    drafts = set() if head is None or head.kept else {head.seq}
    edit = _edited(states, dropped, {}, drafts) if rows else _NOTHING
    fields: dict[str, object] = {"notes": record.notes - len(notes)}
    if rows:
        fields |= _tail_sums(states, edit)
    if dropped & {record.head, record.tip}:
        newest = reader.newest_kept(dropped)
        uncovered = None if newest is None else newest.seq
        if record.tip in dropped:
            fields |= {"tip": uncovered, "offsets": None}
        if record.head in dropped:
            fields["head"] = uncovered
    after = changed(record, key, stamp, states_changed=bool(rows), **fields)
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
    )
    return change, Pruned(len(rows), sum(row.size for row in rows))
