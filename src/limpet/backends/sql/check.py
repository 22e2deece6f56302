"""Walking the tables for `check`, a bounded part at a time.

Table after table by integer keys. The order matters to `repair`: what owns is mended before what is
owned, so that one pass mends all that can be mended.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

from limpet.backends.sql.check_rows import Rows
from limpet.backends.sql.repair import DAMAGE
from limpet.backends.sql.transaction import Transaction
from limpet.core.ids import SEQ_MAX
from limpet.core.limits import MIB
from limpet.errors import Corrupt, InvalidInput
from limpet.model import Finding

_KEY_MIN = -SEQ_MAX - 1
_STATES_BYTES_MAX = 64 * MIB  # in one part, which with repair keeps other writers waiting

_WALKS: dict[str, Callable[[Rows, int], Iterator[Finding]]] = {
    "watermark": Rows.watermark,
    "owners": Rows.owner,
    "scopes": Rows.scope,
    "sessions": Rows.session,
    "snapshots": Rows.snapshot,
    "bodies": Rows.body,
    "labels": Rows.label,
    "notes": Rows.note,
}
ORDER = list(_WALKS)


class Trust(Enum):
    """What may be done with the rows."""

    MEND = "rows may be mended"
    LOOK = "rows may be inspected, but nothing may be written"
    STOP = "rows mean something that this version does not know"


class Place(NamedTuple):
    """Where to go on: with which key of which walk, and whether rows may be mended."""

    walk: str
    start: int
    trust: Trust

    def __str__(self) -> str:
        return f"{self.walk}:{self.start}:{self.trust.name}"

    @classmethod
    def first(cls, trust: Trust, walk: str = ORDER[0]) -> "Place":
        """Return where the tables begin."""
        return cls(walk, _KEY_MIN, trust)

    @classmethod
    def parse(cls, text: str) -> "Place":
        """Return the place that a text stands for."""
        try:
            walk, start, trust = text.split(":")
            return cls(ORDER[ORDER.index(walk)], int(start), Trust[trust])
        except (KeyError, ValueError):
            raise InvalidInput("the place is not one that check has given") from None

    def next_walk(self) -> "Place | None":
        """Return where the next table begins."""
        index = ORDER.index(self.walk) + 1
        return Place(ORDER[index], _KEY_MIN, self.trust) if index < len(ORDER) else None


Survive = Callable[[Exception, Place, int | None], list[Finding]]
"""Return what to say of an error at a key, or raise it."""


def walk_some(
    transaction: Transaction,
    place: Place,
    *,
    repair: bool,
    limit: int,
    survive: Survive,
    broken: tuple[type[Exception], ...] = (),
) -> tuple[list[Finding], Place | None]:
    """Inspect up to `limit` keys of one table; return findings and where to go on.

    `broken` are the errors of a driver that are handed to `survive`, beside those of damaged rows.
    """
    bad: tuple[type[Exception], ...] = (*broken, *DAMAGE)
    rows = Rows(transaction, repair=repair and place.trust is Trust.MEND)
    findings: list[Finding] = []
    start = place.start
    try:
        keys = _keys(transaction, place, limit)
    except bad as cause:
        return survive(cause, place, None), place.next_walk()
    for key in keys:
        try:
            if key < start:  # a damaged tree can lead around in circles
                raise Corrupt("keys are not in order")
            findings += _WALKS[place.walk](rows, key)
        except bad as cause:
            findings += survive(cause, place, key)
        start = max(start, key + 1)
        if rows.spent >= _STATES_BYTES_MAX:
            break
    else:
        if len(keys) < limit:
            return findings, place.next_walk()
    # A page without any progress must be the last: its successor would be the same.
    ahead = place.start < start <= SEQ_MAX
    return findings, place._replace(start=start) if ahead else place.next_walk()


def _keys(transaction: Transaction, place: Place, limit: int) -> list[int]:
    values = {"start": place.start, "limit": limit}
    return [int(key) for (key,) in transaction.all(f"check.walk_{place.walk}", values)]
