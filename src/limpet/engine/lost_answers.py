"""What is known of a change whose answer was lost, by what its scope shows later."""

from limpet.engine.records import follows
from limpet.errors import Unavailable
from limpet.storage import Change, Reader, ScopeRecord


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
    if row is None and change.replace and is_lost:  # a later update may have replaced it
        raise in_doubt_of(change.key.session_id)
    return row is not None and row.revision == change.rows[0].revision


def may_be_stored(change: Change, record: ScopeRecord | None, is_lost: bool) -> bool:
    """Return whether a change that a scope does not show may have been stored, or may yet be.

    It may still come if nothing else did. If the scope was deleted since, the change may have been
    seen before that: where its answer was lost, that is in doubt, and it is not made once more.
    """
    before = change.before
    if before is None:
        return record is None
    is_deleted = record is None or record.pk != before.pk
    if is_deleted and is_lost:
        raise in_doubt_of(change.key.session_id)
    return record is None or is_deleted or record.version == before.version


def in_doubt_of(session_id: str) -> Unavailable:
    return Unavailable(
        f"the storage did not answer: the change may be stored. session=`{session_id}`",
        outcome_known=False,
    )
