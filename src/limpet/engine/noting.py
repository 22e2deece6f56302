"""Notes and leases, which belong to the record of their scope: what is read and what is written."""

from collections.abc import Callable, Sequence

from limpet.core import commits
from limpet.core.commits import LeaseRow
from limpet.core.notes import NoteRow, check_expect, written_note
from limpet.engine.records import changed
from limpet.engine.states import ignoring_damage
from limpet.model import ANY
from limpet.protocol import Claim, Hold, NoteChange, NoteDelete, NoteWrite, Stamp
from limpet.storage import Change, Reader, ScopeRecord

Address = tuple[str, str]
"""The snapshot that a note is on, or "", and its name."""
Written = tuple[list[NoteRow], list[Address]]
"""The notes that are put, and the addresses of those that go."""


def page(
    reader: Reader, on: Sequence[str], name: str | None, after: str, limit: int
) -> list[NoteRow]:
    """Return notes for each of `on` in their order; of the first, names greater than `after`."""
    if name is not None:
        rows = {row.on: row for row in reader.notes(on, [name])}
        wanted = on if name > after else on[1:]
        return [rows[each] for each in wanted if each in rows][:limit]
    found = list[NoteRow]()
    for at, each in enumerate(on):
        if len(found) < limit:
            found += reader.note_page(each, "" if at else after, limit - len(found))
    return found


def write(
    reader: Reader, changes: Sequence[NoteChange], stamp: Stamp
) -> tuple[Change | None, Written]:
    """Decide several changes of the notes of one scope; return what is put and what goes."""
    found = _existing(reader, changes)  # before the record: one round trip for both
    record, key = reader.record, changes[0].scope
    fence = None if record is None else record.fence
    for each in changes:
        commits.check_fence(each.fence, fence, key)
    put, gone = list[NoteRow](), list[Address]()
    for each in changes:
        address = each.on or "", each.name
        if isinstance(each, NoteWrite):
            put.append(written_note(each, found.get(address)))
        elif address in found:
            check_expect(each, found[address])
            gone.append(address)
        else:
            check_expect(each, None)
    if not put and not gone:
        return None, (put, gone)
    new = sum((row.on, row.name) not in found for row in put)
    count = (0 if record is None else record.notes) + new - len(gone)
    after = changed(record, key, stamp, notes=count)
    return Change(key, record, after, notes=put, notes_gone=gone), (put, gone)


def continued(record: ScopeRecord, write: NoteWrite, stamp: Stamp) -> tuple[Change, Written] | None:
    """Return the change of a note that must not exist yet: the storage says whether it does.

    None if the general way has to decide.
    """
    if write.expect is not None or write.fence not in (None, record.fence):
        return None
    put = [written_note(write, None)]
    after = changed(record, write.scope, stamp, notes=record.notes + 1)
    return Change(write.scope, record, after, notes=put, new_note=True), (put, [])


def _existing(reader: Reader, changes: Sequence[NoteChange]) -> dict[Address, NoteRow | None]:
    """Return the notes that are there; None for one that may be damaged, and is only deleted."""
    on, names = {each.on or "" for each in changes}, {each.name for each in changes}
    if all(isinstance(each, NoteDelete) and each.expect is ANY for each in changes):
        with ignoring_damage():
            return {(row.on, row.name): row for row in reader.notes(on, names)}
        return dict.fromkeys(reader.note_addresses(on))
    return {(row.on, row.name): row for row in reader.notes(on, names)}


def lease(
    claim: Claim,
    rule: Callable[[Claim, LeaseRow | None, int], LeaseRow],
    reader: Reader,
    stamp: Stamp,
) -> tuple[Change | None, Hold]:
    record, now = reader.record, reader.now(claim.stamp.now)
    found = lease_of(record)
    made = rule(claim, found, now)
    if made == found:
        return None, made.hold(now)
    fence, owner, until = made
    after = changed(record, claim.scope, stamp, fence=fence, owner=owner, until=until)
    return Change(claim.scope, record, after), made.hold(now)


def release(reader: Reader, claim: Claim, stamp: Stamp) -> tuple[Change | None, None]:
    record = reader.record
    if record is None or record.fence != claim.key:
        return None, None
    after = changed(record, claim.scope, stamp, fence=None, owner=None, until=None)
    is_empty = not after.floor and not after.holds_anything  # nothing was ever minted in it
    return Change(claim.scope, record, None if is_empty else after), None


def lease_of(record: ScopeRecord | None) -> LeaseRow | None:
    if record is None or record.fence is None:
        return None
    return LeaseRow(record.fence, record.owner or "", record.until or 0)
