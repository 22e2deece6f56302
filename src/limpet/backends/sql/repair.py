"""Repairing rows: only what loses nothing that can still be read.

Everything here is repeatable and is called inside the transaction of one `check` step.
"""

from typing import NamedTuple

from limpet.backends.sql.tables import verified
from limpet.backends.sql.transaction import Transaction
from limpet.core import ids
from limpet.errors import Corrupt
from limpet.model import ScopeKey

LOST_AND_FOUND = "lost+found"

# What reading a row of damaged bytes can raise: its types need not be those of its columns.
DAMAGE = (Corrupt, AttributeError, OverflowError, RecursionError, TypeError, ValueError)


class ScopeFacts(NamedTuple):
    """A row of `scopes`, its session's name, and what its columns should say."""

    has_session: int
    session_id: str | None
    session_pk: int
    scope_id: str
    kind: str
    head_seq: int | None
    tip_seq: int | None
    next_seq: int
    floor: str
    head_found: int
    newest: int | None
    newest_kept: int | None

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


def settle_scope(
    transaction: Transaction, pk: int, facts: ScopeFacts, *, restored: bool = False
) -> None:
    """Set the columns of a scope that are wrong, or all if it is restored, to what is known.

    A draft exists only as a head, so a head that is lost was the draft if there is one. Else the
    newest kept snapshot becomes the head, as when a head is deleted. It does so even if it is
    damaged: to show an older state as the current one would hide the damage.
    """
    head_seq = facts.head_seq
    if restored or facts.head_is_wrong:
        draft = newest_draft(transaction, pk)
        head_seq = facts.newest_kept if draft is None else draft
    values = {
        "pk": pk,
        "head_seq": head_seq,
        "tip_seq": facts.newest_kept,
        "next_seq": max(facts.next_seq, (facts.newest or 0) + 1),
        "floor": facts.floor,
    }
    if restored or facts.floor_is_wrong:
        values["floor"] = _greatest_minted(transaction, pk)
    transaction.do("check.move_scope", values)


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
    transaction.do("add_session", {"session_id": key.session_id})
    values = {"pk": pk, **key._asdict()}
    if not transaction.count("check.restore_scope", values):
        return None
    facts = ScopeFacts._make(transaction.one("check.scope", (pk,)))
    settle_scope(transaction, pk, facts, restored=True)
    return key


def restore_session(transaction: Transaction, pk: int) -> str | None:
    """Make a session again that scopes still name, under a new id, or None if that is taken."""
    session_id = f"{LOST_AND_FOUND}/session-{pk}"
    values = {"pk": pk, "session_id": session_id}
    return session_id if transaction.count("check.restore_session", values) else None
