"""Walking the tables by their keys, a bounded part at a time, for check and for rekey."""

from collections.abc import Callable
from typing import Any, NamedTuple

from limpet.backends.sql.transaction import Transaction
from limpet.core.ids import SEQ_MAX
from limpet.errors import Corrupt, InvalidInput

# Owners come before what they own, so that one pass of repair mends all that can be mended.
TABLES = ("scopes", "snapshots", "tails", "segments", "shared", "labels", "notes")


class Position(NamedTuple):
    """Behind which key of which table to go on, and whether rows may be repaired."""

    table: str = TABLES[0]
    after: Any = -SEQ_MAX - 1
    mends: bool = True

    def __str__(self) -> str:
        key = self.after.hex() if isinstance(self.after, bytes) else self.after
        return f"{self.table}:{key}:{'rw' if self.mends else 'ro'}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        try:
            table, key, mode = text.split(":")
            after = bytes.fromhex(key) if table == "shared" else int(key)
            return cls(TABLES[TABLES.index(table)], after, {"rw": True, "ro": False}[mode])
        except (KeyError, ValueError):
            raise InvalidInput("the position does not come from an earlier call") from None

    @property
    def following(self) -> "Position | None":
        """The beginning of the next table."""
        at = TABLES.index(self.table) + 1
        if at == len(TABLES):
            return None
        after = b"" if TABLES[at] == "shared" else -SEQ_MAX - 1
        return Position(TABLES[at], after, self.mends)


def _raised(cause: Exception, key: Any) -> None:
    raise cause


def walk(
    transaction: Transaction,
    position: Position,
    limit: int,
    visit: Callable[[Any], bool],
    survive: Callable[[Exception, Any], None] = _raised,
) -> Position | None:
    """Visit up to `limit` keys of a table, until a visit returns False; return where to go on.

    `survive` takes note of an error at a key (None: of the table), or raises it.
    """
    values = {"after": position.after, "limit": max(1, limit)}
    try:
        keys = [key for (key,) in transaction.all(f"walk_{position.table}", values)]
    except Exception as cause:
        survive(cause, None)
        return position.following
    after, is_over = position.after, len(keys) < max(1, limit)
    for key in keys:
        goes_on = True
        try:
            if type(key) is not type(after) or key <= after:
                raise Corrupt("keys are not in order")  # a damaged tree can lead around in circles
            after = key
            goes_on = visit(key)
        except Exception as cause:
            survive(cause, key)
        if not goes_on:
            is_over = False
            break
    # A page without any progress must be the last: its successor would be the same.
    return (
        position.following if is_over or after == position.after else position._replace(after=after)
    )
