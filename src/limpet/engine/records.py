"""The record of a scope after a change, and whether a change whose answer was lost is in it."""

from typing import Any

import orjson

from limpet.core import commits, ids
from limpet.core.rows import Row
from limpet.errors import Corrupt, Unavailable
from limpet.model import ANY, Expect, ScopeKey
from limpet.protocol import AppendOffsets, Stamp
from limpet.storage import TRAIL_BYTES_MAX, VERSION_BYTES, Change, Reader, ScopeRecord, is_at


def changed(
    record: ScopeRecord | None,
    key: ScopeKey,
    stamp: Stamp,
    *,
    states_changed: bool = False,
    **fields: Any,
) -> ScopeRecord:
    """Return the next record of a scope, or its first one. Its version is the nonce, signed."""
    nonce = bytes.fromhex(stamp.nonce)
    version = int.from_bytes(nonce, signed=True)
    if record is None:
        pk = fields.get("last") or ids.place(stamp.now, 0, stamp.bits)
        return ScopeRecord(key, pk, version, trail=nonce, epoch=version, **fields)
    if states_changed:
        fields["epoch"] = version
    trail = (nonce + record.trail)[:TRAIL_BYTES_MAX]
    return record._replace(version=version, trail=trail, **fields)


def dump_offsets(offsets: AppendOffsets | None) -> bytes | None:
    """Return `ScopeRecord.offsets`; a copy, since orjson leaves 4 KB of unused room behind it."""
    return None if offsets is None else b"%b" % orjson.dumps(offsets)


def has_made(record: ScopeRecord, stamp: Stamp) -> bool:
    """Return whether a change with this stamp is among the last that were made."""
    return bytes.fromhex(stamp.nonce) in record.versions


def follows(record: ScopeRecord, after: ScopeRecord, before: ScopeRecord) -> bool | None:
    """Return whether a scope went from one record to another; None if its trail does not tell."""
    versions, since = record.versions, before.trail[:VERSION_BYTES]
    if since not in versions:
        return None
    at, made = versions.index(since), after.versions
    made = made[: made.index(since)]  # one, or two if notes joined a save
    return at >= len(made) and versions[at - len(made) : at] == made


def head_of(reader: Reader) -> Row | None:
    """Return the snapshot that a scope shows, or raise Corrupt."""
    record = reader.record
    if record is None or record.head is None:
        return None
    row = reader.row_at(record.head)
    if row is None:
        raise Corrupt(f"the head of a scope is missing. seq=`{record.head}`")
    return row


def check_expect(expect: Expect, reader: Reader, key: ScopeKey) -> None:
    """Raise Conflict unless the scope, or its head, has this revision."""
    record = reader.record
    if expect is not ANY and (record is None or record.revision != expect):
        commits.check_expect(expect, head_of(reader), key)


def is_stored(change: Change, reader: Reader, is_lost: bool) -> bool:
    """Return whether a change that was sent to the storage is stored, by the trail of its scope.

    Where that is too short to tell, a refusal is believed, unless an answer was lost.

    Several attempts of one change have the same version, but each was made for another one. If it
    is not stored, it never will be once another change of the scope is: both have the same guard.
    """
    before, after, record = change.before, change.after, reader.record
    if after is None:  # it removed the scope
        if record is not None and before is not None and record.pk != before.pk:
            raise in_doubt_of(change.key.session_id)
        return record is None
    if record is None or record.pk != after.pk:
        return False
    if before is None:
        return True
    found = follows(record, after, before)
    if found is not None:
        return found
    # Too many changes came since.
    if not change.rows:
        if is_lost:
            raise in_doubt_of(change.key.session_id)
        return False
    row = reader.row_by_nonce(change.rows[0].nonce)
    if row is not None and change.notes:  # or it is the same save without the notes that joined it
        note = change.notes[0]
        there = any(each.nonce == note.nonce for each in reader.notes([note.on], [note.name]))
        if not there and is_lost:
            raise in_doubt_of(change.key.session_id)
        return there
    if row is None and change.replace and is_lost:  # a later update may have replaced it
        raise in_doubt_of(change.key.session_id)
    return row is not None and row.revision == change.rows[0].revision


def may_be_stored(change: Change, record: ScopeRecord | None, is_lost: bool) -> bool:
    """Return whether a change that a scope does not show may have been stored, or may yet be.

    It may still come if nothing else did. If the scope was deleted since, the change may have been
    seen before that: where its answer was lost, that is in doubt, and it is not made once more.
    """
    if is_deleted(change, record):
        if is_lost:
            raise in_doubt_of(change.key.session_id)
        return True
    return is_at(record, change.before)


def is_deleted(change: Change, record: ScopeRecord | None) -> bool:
    """Return whether the scope that a change was made for was deleted since."""
    before = change.before
    return before is not None and (record is None or record.pk != before.pk)


def in_doubt_of(session_id: str) -> Unavailable:
    return Unavailable(
        f"the storage did not answer: the change may be stored. session=`{session_id}`",
        outcome_known=False,
    )
