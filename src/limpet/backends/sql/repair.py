"""Repairing rows: only what loses nothing that can still be read.

Everything here is repeatable and is called inside the transaction of one `check` step.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from limpet.backends.sql.tables import SUMMED_COLUMNS, add_session, sum_session, verified
from limpet.backends.sql.transaction import Transaction
from limpet.core import ids, rows
from limpet.core.encryption import Cipher
from limpet.errors import Corrupt
from limpet.model import ScopeKey

LOST_AND_FOUND = "lost+found"

# What reading a row of damaged bytes can raise: its types need not be those of its columns.
DAMAGE = (Corrupt, AttributeError, OverflowError, RecursionError, TypeError, ValueError)


class ScopeFacts(NamedTuple):
    """A row of `scopes`, its session's name, and what its columns should say."""

    has_session: int
    session_checksum: int | None
    session_pk: int
    session_id: str
    scope_id: str
    kind: str
    pk: int
    head_seq: int | None
    tip_seq: int | None
    next_seq: int
    floor: str
    fence: str | None
    lease_owner: str | None
    lease_until: int | None
    family: int | None
    checksum: int | None
    head_found: int
    newest: int | None
    newest_kept: int | None

    @property
    def key(self) -> ScopeKey:
        return ScopeKey(self.session_id, self.scope_id, self.kind)

    @property
    def summed(self) -> tuple[Any, ...]:
        start = self._fields.index("pk")
        return self[start : start + SUMMED_COLUMNS]

    @property
    def is_sound(self) -> bool:
        return rows.is_scope_sound(self.key, self.summed, self.checksum)

    @property
    def is_session_sound(self) -> bool:
        return rows.is_session_sound(self.session_id, self.session_pk, self.session_checksum)

    @property
    def head_is_wrong(self) -> bool:
        return self.head_seq is not None and not self.head_found

    @property
    def tip_is_wrong(self) -> bool:
        return self.tip_seq != self.newest_kept

    @property
    def next_seq_is_low(self) -> bool:
        """A seq could be given twice."""
        return self.newest is not None and self.next_seq <= self.newest

    @property
    def floor_is_wrong(self) -> bool:
        return self.floor != "" and ids.time_ms_of(self.floor) is None


def scope_facts(transaction: Transaction, pk: int) -> ScopeFacts:
    found = transaction.one("check.scope", (pk,))
    if found is None:  # an index has this key, but the table does not
        raise Corrupt("a row is not where its key says")
    return ScopeFacts._make(found)


def put_scope(transaction: Transaction, facts: ScopeFacts) -> bool:
    """Write a row with its right checksum; return False if another scope has its name."""
    # One with a key stays if it is right. Else the next `rekey` makes it: that is a decision.
    is_right = facts.checksum is not None and facts.is_sound
    checksum = facts.checksum if is_right else rows.scope_checksum(facts.key, facts.summed)
    return transaction.count("check.put_scope", facts._replace(checksum=checksum)._asdict()) == 1


def settle_scope(transaction: Transaction, facts: ScopeFacts, *, restored: bool = False) -> None:
    """Set the columns of a scope that are wrong, or all if it is restored, to what is known.

    A draft exists only as a head, so a head that is lost was the draft if there is one. Else the
    newest kept snapshot becomes the head, as when a head is deleted. It does so even if it is
    damaged: to show an older state as the current one would hide the damage.
    """
    settled = facts._replace(tip_seq=facts.newest_kept)
    if restored or facts.head_is_wrong:
        draft = newest_draft(transaction, facts.pk)
        settled = settled._replace(head_seq=facts.newest_kept if draft is None else draft)
    if restored or facts.next_seq_is_low:
        settled = settled._replace(next_seq=(facts.newest or 0) + 1)
    if restored or facts.floor_is_wrong:
        settled = settled._replace(floor=_greatest_minted(transaction, facts.pk))
    if restored:
        # Who holds a lease that is damaged is told that it was lost.
        group = _join_fork_group(transaction, facts.pk)
        settled = settled._replace(fence=None, lease_owner=None, lease_until=None, family=group)
    put_scope(transaction, settled)


def _join_fork_group(transaction: Transaction, pk: int) -> int | None:
    """Let the scopes that share states with one be a group of forks; return its key for the one."""
    found = [other for (other,) in transaction.all("check.fork_group_of", {"pk": pk})]
    group = [scope_facts(transaction, other) for other in found if other != pk]
    for facts in group:
        if facts.is_sound:
            put_scope(transaction, facts._replace(family=pk))
    return pk if group else None


# Rows that fail their checksum.

_NOT_FLIPPED = ("has_session", "session_checksum", "session_pk", "session_id", "pk")


def mend_scope(transaction: Transaction, facts: ScopeFacts, *, is_named: bool) -> str | None:
    """Write a right row for a scope whose row fails its checksum, if its name is known.

    Return what is believed and why, or None if nothing was written.
    """
    cause, before = _before(transaction, facts)
    if before is not None:
        return f"{cause}: so the checksum holds" if put_scope(transaction, before) else None
    if not is_named:
        return None
    settle_scope(transaction, facts, restored=True)
    if newest_draft(transaction, facts.pk) is not None:
        head = "the draft is the head, because a draft exists only as one"
    elif facts.newest_kept is None:
        head = "there is no head, because no kept snapshot is left"
    else:
        head = "the newest kept snapshot is the head, because snapshots have checksums of their own"
    return f"{head}; a lease has ended"


def _before(transaction: Transaction, facts: ScopeFacts) -> tuple[str, ScopeFacts | None]:
    """Return the row before one bit of it was flipped, or its session changed; and what it was.

    That the checksum holds for it is the proof.
    """
    for name in facts._fields[: facts._fields.index("head_found")]:
        if name not in _NOT_FLIPPED:
            for value in _one_bit_off(getattr(facts, name)):
                other = facts._replace(**{name: value})
                if other.is_sound:
                    return f"one bit of its {name} was flipped", other
    for pk, session_id in transaction.each("check.all_sessions"):
        other = facts._replace(session_pk=pk, session_id=session_id)
        if other.is_sound:
            return "it belongs to another session", other
    return "", None


def mend_sum(transaction: Transaction, facts: ScopeFacts, cipher: Cipher) -> bool:
    """Write the right checksum of a scope if one bit of the half with the key was flipped."""
    for value in _one_bit_off(facts.checksum):
        with suppress(Corrupt):
            rows.check_scope_sum(facts.key, facts.summed, value, cipher)
            return put_scope(transaction, facts._replace(checksum=value))
    return False


def mend_session(
    transaction: Transaction, pk: int, session_id: str, checksum: int | None
) -> str | None:
    """Write a right row for a session whose row fails its checksum, if its name is known.

    Return what is believed and why.
    """

    def put(name: str) -> bool:
        values = {"pk": pk, "session_id": name, "checksum": rows.session_checksum(name, pk)}
        return transaction.count("check.put_session", values) == 1

    for name in _one_bit_off(session_id):
        if rows.is_session_sound(name, pk, checksum):
            is_put = put(name)
            return "one bit of its name was flipped: so the checksum holds" if is_put else None
    scopes = transaction.all("check.scopes_of_session", (pk,))
    found = (scope_facts(transaction, scope) for (scope,) in scopes)
    if any(each.checksum is not None and each.is_sound for each in found) and put(session_id):
        return "its name is right, because the checksums of its scopes hold with it"
    return None


def _one_bit_off(value: object) -> Iterator[Any]:
    """Yield all values of the same type of which one bit is another."""
    if isinstance(value, int):
        for bit in range(64):
            flipped = value % 2**64 ^ 1 << bit
            yield flipped - 2**64 if flipped >= 2**63 else flipped
    elif isinstance(value, str):
        text = value.encode("utf-8", "surrogateescape")
        for bit in range(8 * len(text)):
            flipped = int.from_bytes(text) ^ 1 << bit
            with suppress(UnicodeDecodeError):
                yield flipped.to_bytes(len(text)).decode()


def newest_draft(transaction: Transaction, pk: int) -> int | None:
    for found in transaction.each("check.drafts", (pk,)):
        try:
            return verified(found).seq
        except DAMAGE:
            continue  # that it is a draft is then not known either
    return None


def _greatest_minted(transaction: Transaction, pk: int) -> str:
    """Return the greatest id of a scope that can have been minted in it, or "".

    A minted id is never ahead of the logical time of its commit. One that is was given by a caller,
    and as a floor it could be so far ahead that no greater id exists.
    """
    for name, saved_at in transaction.each("check.ids_downwards", (pk,)):
        time_ms = ids.time_ms_of(name)
        if time_ms is not None and time_ms <= saved_at // 1000:
            return str(name)
    return ""


def restore_scope(transaction: Transaction, pk: int) -> ScopeKey | None:
    """Make a scope again that snapshots or notes still name, under a new address.

    Its key is part of their checksums, so with that key they can be read again. Return the address,
    or None if it is taken.
    """
    key = ScopeKey(LOST_AND_FOUND, f"scope-{pk}")
    add_session(transaction, key.session_id)
    values = {"pk": pk, **key._asdict()}
    if not transaction.count("check.restore_scope", values):
        return None
    settle_scope(transaction, scope_facts(transaction, pk), restored=True)
    return key


def restore_session(transaction: Transaction, pk: int) -> str | None:
    """Make a session again that scopes still name, under a new id, or None if that is taken.

    The checksums of its scopes cover its name, so they are written again.
    """
    session_id = f"{LOST_AND_FOUND}/session-{pk}"
    values = {"pk": pk, "session_id": session_id}
    if not transaction.count("check.restore_session", values):
        return None
    sum_session(transaction, session_id, pk)
    for (scope,) in transaction.all("check.scopes_of_session", (pk,)):
        put_scope(transaction, scope_facts(transaction, scope))
    return session_id
