"""Walking the tables for `check`, a bounded part at a time.

Table after table by integer keys. The order matters to `repair`: owners are repaired before what
they own, so that one pass repairs all that can be repaired.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

from limpet.backends.sql.check_rows import RowInspector
from limpet.backends.sql.repair import DAMAGE
from limpet.backends.sql.transaction import Transaction
from limpet.core.encryption import Ciphers
from limpet.core.ids import SEQ_MAX
from limpet.core.limits import MIB
from limpet.errors import Corrupt, InvalidInput
from limpet.model import Finding

_KEY_MIN = -SEQ_MAX - 1
_STATES_BYTES_MAX = 64 * MIB  # in one part, which with repair keeps other writers waiting

_WALKS: dict[str, Callable[[RowInspector, int], Iterator[Finding]]] = {
    "watermark": RowInspector.watermark,
    "owners": RowInspector.owner,
    "scopes": RowInspector.scope,
    "sessions": RowInspector.session,
    "snapshots": RowInspector.snapshot,
    "bodies": RowInspector.body,
    "labels": RowInspector.label,
    "notes": RowInspector.note,
}
ORDER = list(_WALKS)


class RowAccess(Enum):
    """What may be done with the rows."""

    REPAIR = "rows may be repaired"
    READ = "rows may be inspected, but nothing may be written"
    NONE = "rows mean something that this version does not know"


class CheckPosition(NamedTuple):
    """Where to go on: with which key of which walk, and whether rows may be repaired."""

    walk: str
    start: int
    access: RowAccess

    def __str__(self) -> str:
        return f"{self.walk}:{self.start}:{self.access.name}"

    @classmethod
    def first(cls, access: RowAccess, walk: str = ORDER[0]) -> "CheckPosition":
        return cls(walk, _KEY_MIN, access)

    @classmethod
    def parse(cls, text: str) -> "CheckPosition":
        try:
            walk, start, access = text.split(":")
            return cls(ORDER[ORDER.index(walk)], int(start), RowAccess[access])
        except (KeyError, ValueError):
            raise InvalidInput("the position does not come from an earlier call of check") from None

    def next_walk(self) -> "CheckPosition | None":
        index = ORDER.index(self.walk) + 1
        return CheckPosition(ORDER[index], _KEY_MIN, self.access) if index < len(ORDER) else None


Survive = Callable[[Exception, CheckPosition, int | None], list[Finding]]
"""Return what to say of an error at a key, or raise it."""


def _raise(cause: Exception, position: CheckPosition, key: int | None) -> list[Finding]:
    raise cause


def walk_some(
    transaction: Transaction,
    ciphers: Ciphers,
    position: CheckPosition,
    *,
    repair: bool,
    limit: int,
    survive: Survive = _raise,
    broken: tuple[type[Exception], ...] = (),
) -> tuple[list[Finding], CheckPosition | None]:
    """Inspect up to `limit` keys of one table; return findings and where to go on.

    `broken` are the errors of a driver that are handed to `survive`, as those of damaged rows are.
    """
    bad: tuple[type[Exception], ...] = (*broken, *DAMAGE)
    mends = repair and position.access is RowAccess.REPAIR
    rows = RowInspector(transaction, ciphers, repair=mends)
    findings: list[Finding] = []
    start = position.start
    try:
        keys = _keys(transaction, position, limit)
    except bad as cause:
        return survive(cause, position, None), position.next_walk()
    for key in keys:
        try:
            if key < start:  # a damaged tree can lead around in circles
                raise Corrupt("keys are not in order")
            findings += _WALKS[position.walk](rows, key)
        except bad as cause:
            findings += survive(cause, position, key)
        start = max(start, key + 1)
        if rows.spent >= _STATES_BYTES_MAX:
            break
    else:
        if len(keys) < limit:
            return findings, position.next_walk()
    # A page without any progress must be the last: its successor would be the same.
    ahead = position.start < start <= SEQ_MAX
    return findings, position._replace(start=start) if ahead else position.next_walk()


def _keys(transaction: Transaction, position: CheckPosition, limit: int) -> list[int]:
    values = {"start": position.start, "limit": limit}
    return [int(key) for (key,) in transaction.all(f"check.walk_{position.walk}", values)]
