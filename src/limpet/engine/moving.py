"""A scope as it is stored, moved from one storage to another: what copies and backups are made of.

It is read in parts, oldest first, in bounded memory: each has some segments with their snapshots,
the last one also the tail and the notes. Saves may come in between; a roll or a deletion begins it
again. What is read is verified: a state that was put back in an encrypted store is Corrupt.

A part becomes one change of the other scope: what differs, and nothing else. So it may be repeated
and interrupted, and the last part is what shows a new scope. Most scopes have one part only.
"""

from typing import Any, Final, NamedTuple

from limpet.core.deltas import delta
from limpet.core.ids import SEQ_MAX
from limpet.core.limits import MIB
from limpet.core.notes import NoteRow
from limpet.core.rows import Row
from limpet.core.segments import Segment
from limpet.engine.editing import shared_by
from limpet.engine.records import changed, head_of
from limpet.engine.states import States, compare, whole_row
from limpet.errors import Conflict, Corrupt
from limpet.protocol import Stamp
from limpet.storage import (
    SHARED,
    VERSION_BYTES,
    Change,
    Reader,
    ScopeRecord,
    SegmentRow,
    SharedRow,
    TailRow,
)

_PART_BYTES: Final = MIB
_NO_LEASE: Final[dict[str, Any]] = {"fence": None, "owner": None, "until": None}


class Changed(Exception):
    """Stored states went or changed since the first part: begin again."""


class Elsewhere(Exception):
    """The other scope was not copied from this one."""


class Part(NamedTuple):
    """What a scope has behind a seq, up to another: all that follows if that is None.

    All nonces are those of the rows. `wholes` are the rows of the tail that share a state, as they
    are without it. `in_tail` has the seqs of the whole tail.
    """

    record: ScopeRecord
    after: int
    last: int | None
    rows: dict[int, Row]
    segments: list[SegmentRow]
    tail: dict[int, TailRow]
    in_tail: frozenset[int]
    wholes: dict[int, TailRow]
    shared: list[SharedRow]
    notes: list[NoteRow]

    @property
    def size(self) -> int:
        bodies = [row.body for row in self.tail.values()]
        bodies += [each.blob for each in self.segments]
        return sum(map(len, bodies)) + sum(len(note.value) for note in self.notes)

    def covers(self, seq: int) -> bool:
        return self.after < seq <= (self.last or SEQ_MAX)


def read_part(reader: Reader, before: Part | None) -> Part | None:
    """Read the part that follows another, or the first one; None if the scope holds nothing.

    Raises:
        Corrupt: something in it is damaged, or missing, or was put back.
        Changed: it no longer follows.
    """
    record, after = reader.record, 0
    if before is not None:
        after = before.last or 0
        if record is None or (record.pk, record.epoch) != (before.record.pk, before.record.epoch):
            raise Changed
    if record is None or not record._replace(**_NO_LEASE).holds_anything:
        return None
    found, last = _segments(reader, after, _PART_BYTES)
    states = States(reader)
    in_tail = frozenset(states.tail)
    rows = {row.seq: row for row in reader.rows_between(after + 1, last or SEQ_MAX)}
    if last is None:
        rows |= {row.seq: row for seq in in_tail if seq <= after and (row := reader.row_at(seq))}
    else:
        rows = {seq: row for seq, row in rows.items() if seq not in in_tail}
    if last is None and record.head not in rows:
        head_of(reader)
    segments = [_genuine_segment(each, rows, in_tail) for each in found]
    held = {seq for each in segments for seq in each.nonces}
    rows_of_tail = [row for seq, row in rows.items() if seq not in held]
    rows = {seq: row._replace(state_nonce="") for seq, row in rows.items()}
    tail, wholes = dict[int, TailRow](), dict[int, TailRow]()
    for row in rows_of_tail:
        tail[row.seq] = _genuine(states, reader, row)
        if tail[row.seq].encoding == SHARED:
            wholes[row.seq] = whole_row(row.seq, row.nonce, states.payload(tail[row.seq]))
    shared = [each for name in shared_by(tail, tail) if (each := reader.shared(name))]
    notes = _notes(reader) if last is None else []
    if last is None and len(notes) != record.notes:
        raise Corrupt(f"notes are missing. found=`{len(notes)}` expected=`{record.notes}`")
    record = record._replace(**_NO_LEASE)
    return Part(record, after, last, rows, segments, tail, in_tail, wholes, shared, notes)


def version_of(reader: Reader) -> tuple[int, int] | None:
    """Return the version of a scope, which only an equal one has, and how many snapshots."""
    return None if reader.record is None else (reader.record.version, reader.count())


def is_unfinished(reader: Reader) -> bool:
    """Return whether a scope shows nothing: it is absent, or its last part was not written."""
    return reader.record is None or not reader.record.holds_anything


def _segments(
    reader: Reader, after: int, bytes_max: int = SEQ_MAX, until: int = SEQ_MAX
) -> tuple[list[SegmentRow], int | None]:
    """Return segments behind a seq, and the last seq of them if there are more."""
    found, size = list[SegmentRow](), 0
    while size <= bytes_max:
        row = reader.segment((found[-1].last if found else after) + 1)
        if row is None or row.last > until:
            return found, None
        found.append(row)
        size += len(row.blob)
    return found, found[-1].last


def _genuine_segment(row: SegmentRow, rows: dict[int, Row], in_tail: frozenset[int]) -> SegmentRow:
    """Return a segment with the nonces of its snapshots, or raise Corrupt."""
    sizes, nonces = Segment.parse(row.blob).sizes(), dict[int, str]()
    for seq, size in sizes.items():
        if seq in rows and seq not in in_tail:
            compare(seq, row.nonces.get(seq, "" if not row.nonces else None), rows[seq].written_by)
            _check_size(rows[seq], size)
            nonces[seq] = rows[seq].nonce
    return row._replace(nonces=nonces)


def _genuine(states: States, reader: Reader, row: Row) -> TailRow:
    """Return a state of the tail with the nonces of the snapshots, or raise Corrupt."""
    found = states.tail.get(row.seq)
    if found is None:
        raise Corrupt(f"the state of a snapshot is missing. seq=`{row.seq}`")
    compare(row.seq, found.nonce, row.written_by)
    payload = states.payload(found)
    if found.base is None:
        _check_size(row, len(payload))
        return found._replace(nonce=row.nonce, base_nonce="")
    _check_size(row, delta.size_of(delta.parse(payload)))
    base, below = reader.row_at(found.base), states.tail.get(found.base)
    segment = None if below else states.segment_row(found.base)
    if base is None or not (below or segment):
        raise Corrupt(f"what a state builds on is missing. seq=`{row.seq}`")
    nonce = below.nonce if below else segment.nonces.get(base.seq, "") if segment else ""
    compare(base.seq, nonce, found.base_nonce)
    return found._replace(nonce=row.nonce, base_nonce=base.nonce)


def _check_size(row: Row, size: int) -> None:
    if size != row.size:
        raise Corrupt(f"a state has another size. seq=`{row.seq}`")


def _notes(reader: Reader) -> list[NoteRow]:
    if reader.record is None or not reader.record.notes:
        return []
    found, after = reader.notes([""]), ""
    while on := reader.noted(after, 256):
        found += reader.notes(on)
        after = on[-1]
    return found


def difference(
    reader: Reader, stamp: Stamp, part: Part, *, mirror: bool
) -> tuple[Change | None, int]:
    """Return the change that makes a scope the same as a part, and how much it adds or changes.

    With `mirror` the scope becomes equal; else it is only brought further, and keeps other notes.

    Raises:
        Elsewhere: the scope has another origin.
        Conflict: it holds other snapshots, or newer notes.
    """
    record, is_end = reader.record, part.last is None
    if record is not None and record.pk != part.record.pk:
        raise Elsewhere
    rows, tail, segments, notes = _present(reader, part)
    mirror = mirror or is_unfinished(reader)
    if not mirror:
        _check_older(part, rows, notes)
    new = [row for seq, row in part.rows.items() if rows.get(seq) != row]
    touched = {row.seq for row in new}
    put = [
        each
        for each in part.segments
        if not touched.isdisjoint(each.nonces) or not _is_same(each, segments.get(each.last))
    ]
    stale = [
        seq
        for seq, each in part.tail.items()
        if seq in touched
        or not (_is_same(each, at := tail.get(seq)) or _is_same(part.wholes.get(seq), at))
    ]
    shares = part.wholes.keys() & stale and reader.has_shared(b"") is not None
    mine = part.tail if shares else part.tail | part.wholes
    tail_gone = [s for s in tail if s not in part.in_tail and (is_end or part.covers(s))]
    texts = [note for note in part.notes if notes.get((note.on, note.name)) != note]
    written = {(note.on, note.name) for note in part.notes}
    change = Change(
        part.record.key,
        record,
        None,
        new,
        rows_gone=[seq for seq, row in rows.items() if part.rows.get(seq) != row],
        tail=[mine[seq] for seq in stale],
        tail_gone=tail_gone,
        segments=put,
        segments_gone=segments.keys() - {e.last for e in part.segments if e not in put},
        notes=texts,
        notes_gone=notes.keys() - written if mirror else (),
        shared=part.shared if shares else (),
        unshared=shared_by(tail, {*tail_gone, *stale}),
    )
    count = len(written) if mirror else len(written | notes.keys())
    after = _after(part, change, tail, count, stamp, mirror)
    if record is not None and not any(change[3:4] + change[5:12]):
        names = ("head", "tip", "last", "floor", "notes", *(["version"] if mirror else []))
        if not is_end or all(getattr(record, n) == getattr(after, n) for n in names):
            return None, 0
    return change._replace(after=after), len(new) + len(texts)


def _after(
    part: Part, change: Change, tail: dict[int, TailRow], notes: int, stamp: Stamp, mirror: bool
) -> ScopeRecord:
    """Return the record of a scope after a change. A new one shows nothing until the last part."""
    record, source = change.before, part.record
    left = {seq: each for seq, each in tail.items() if seq not in change.tail_gone}
    left |= {each.seq: each for each in change.tail}
    facts: dict[str, Any] = {
        "tail_count": len(left),
        "tail_bytes": sum(len(row.body) for row in left.values()),
    }
    if part.last is not None:
        begun = ScopeRecord(source.key, source.pk, 0, last=source.last, floor=source.floor)
        return changed(record or begun, source.key, stamp, states_changed=True, **facts)
    after = source._replace(notes=notes, **facts)
    if record is None:
        return after
    after = after._replace(fence=record.fence, owner=record.owner, until=record.until)
    if mirror:
        return after
    after = after._replace(
        last=max(source.last, record.last), floor=max(source.floor, record.floor)
    )
    if record.trail[:VERSION_BYTES] in source.versions:
        return after
    # Others have changed it. No version that they may know comes back.
    fresh = changed(record, source.key, stamp, states_changed=True)
    return after._replace(version=fresh.version, trail=fresh.trail, epoch=fresh.epoch)


def _present(
    reader: Reader, part: Part
) -> tuple[
    dict[int, Row], dict[int, TailRow], dict[int, SegmentRow], dict[tuple[str, str], NoteRow]
]:
    """Return what a scope has where a part is."""
    if reader.record is None:
        return {}, {}, {}, {}
    tail, is_end = reader.tail(), part.last is None
    rows = {row.seq: row for row in reader.rows_between(part.after + 1, part.last or SEQ_MAX)}
    if is_end:
        older = (seq for seq in part.in_tail if seq <= part.after)
        rows |= {seq: row for seq in older if (row := reader.row_at(seq))}
    else:
        rows = {seq: row for seq, row in rows.items() if seq not in part.in_tail}
    segments, _ = _segments(reader, part.after, until=part.last or SEQ_MAX)
    notes = _notes(reader) if is_end else []
    by_address = {(note.on, note.name): note for note in notes}
    return rows, tail, {each.last: each for each in segments}, by_address


def _check_older(part: Part, rows: dict[int, Row], notes: dict[tuple[str, str], NoteRow]) -> None:
    """Raise Conflict if a scope holds what is not in a part, or is newer there."""
    name = f"{part.record.key.session_id}:{part.record.key.scope_id}"
    if not all(_leads_to(row, part.rows.get(row.seq), part.record) for row in rows.values()):
        raise Conflict(
            "the scope holds more snapshots than the source, or newer ones: saved here, or deleted"
            " in the source."
            f" Delete the scope in the target to copy it again. scope=`{name}`"
        )
    for note in part.notes:
        found = notes.get((note.on, note.name), note)
        if found.updated_at > note.updated_at:
            raise Conflict(f"the scope holds a newer note. scope=`{name}` name=`{note.name}`")


def _leads_to(row: Row, later: Row | None, record: ScopeRecord) -> bool:
    """Return whether a snapshot became another by updates, or was a draft that went since."""
    if later is None:
        return not row.kept and row.seq <= record.last
    return row.rev < later.rev or (row.rev, row.nonce) == (later.rev, later.nonce)


def _is_same(one: TailRow | SegmentRow | None, found: TailRow | SegmentRow | None) -> bool:
    """Return whether a state is stored as it should be; not every storage has nonces."""
    if one is None or found is None:
        return False
    at = 4 if isinstance(one, TailRow) else 3
    return one[:at] == found[:at] and (not found[at] or one[at:] == found[at:])
