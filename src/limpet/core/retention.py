"""Which snapshots a prune drops."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from limpet.core import limits, times
from limpet.errors import InvalidInput
from limpet.model import SnapshotInfo


@dataclass(frozen=True, slots=True)
class Retention:
    """Keep the newest `keep_last` and everything created after `cutoff`; drop the rest."""

    keep_last: int
    cutoff: datetime | None

    def droppable(
        self, newest_first: Iterable[SnapshotInfo], *, seen: int, head_id: str | None
    ) -> Iterator[SnapshotInfo]:
        """Yield what to drop of a page of history, after `seen` newer snapshots."""
        for rank, info in enumerate(newest_first, start=seen):
            old = self.cutoff is None or info.created_at < self.cutoff
            if rank >= self.keep_last and old and info.id != head_id:
                yield info


def check_retention(keep_last: object, older_than: object, *, now_us: int) -> Retention:
    """Return the policy of a prune, or raise InvalidInput; at least one limit must be given."""
    if keep_last is None and older_than is None:
        raise InvalidInput("prune needs keep_last or older_than, or both")
    count = limits.check_count("keep_last", keep_last)
    if older_than is None:
        return Retention(count or 0, None)
    if not isinstance(older_than, timedelta) or older_than < timedelta(0):
        raise InvalidInput("older_than must be a timedelta, such as timedelta(days=30)")
    try:
        cutoff = times.from_us(now_us) - older_than
    except OverflowError:
        cutoff = datetime.min.replace(tzinfo=UTC)  # nothing is that old
    return Retention(count or 0, cutoff)
