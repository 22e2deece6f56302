"""Listings as the search takes them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from limpet.model import SnapshotInfo
from limpet.protocol import Query
from simulation import model
from simulation.history import Op
from simulation.items import Facts, ScopeItem, shows
from simulation.model import Snap, State
from simulation.search import Move


class ListItem(ScopeItem):
    """A listing that reads the scope once: of its history, or of all scopes by an id."""

    def __init__(
        self, op: Op, key: int, facts: Facts, query: Query, seen: Sequence[SnapshotInfo]
    ) -> None:
        super().__init__(op, key, facts)
        self.query = query
        self.seen = seen

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the same, if that is what was listed."""
        wanted = list(self.wanted(state))
        if len(wanted) == len(self.seen) and all(map(shows, self.seen, wanted)):
            yield state, Move.FREE

    def wanted(self, state: State) -> Iterator[Snap]:
        """Yield what the query asks for."""
        query = self.query
        for snap in model.visible(state):
            if query.id in (None, snap.id) and (not query.labels or snap.has(query.labels)):
                yield snap


class IdsItem(ScopeItem):
    """A listing of ids, in their own order."""

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the same, if that is what was listed."""
        if self.op.answer == sorted(snap.id for snap in model.visible(state)):
            yield state, Move.FREE


class _Progress(NamedTuple):
    """A listing under way: what it must still explain."""

    last_seq: int  # given when it began
    missing: frozenset[int]  # there all the time, and not listed
    found: tuple[Snap | None, ...]  # for each that was listed, as what it was there


class PagesItem(ListItem):
    """A listing that reads the scope again for each page, or for each minute of a label.

    So each snapshot is judged by itself: listed, it was there at some moment of the listing; not
    listed, it was not. Only a gap is not excused: what is older than something listed, and was
    there, is listed too.
    """

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the beginning of the listing, or its end once it is explained."""
        progress: Any = state.opened(self.key)
        if progress is None:
            first = _Progress(state.last_seq, self._unlisted(state, 0), (None,) * len(self.seen))
            yield state.with_open(self.key, self.observe(state, first)), Move.FREE_GOES_ON
        elif self._explained(progress):
            yield state.with_open(self.key, None), Move.FREE

    def _unlisted(self, state: State, after: int) -> frozenset[int]:
        names = {each.id for each in self.seen}
        wanted = (snap for snap in self.wanted(state) if snap.id not in names)
        return frozenset(snap.seq for snap in wanted if snap.seq > after)

    def observe(self, state: State, payload: Any) -> Any:
        """Return what is still to be explained, now that the scope has changed."""
        progress: _Progress = payload
        wanted = list(self.wanted(state))
        missing = progress.missing & {snap.seq for snap in wanted}
        if not self.query.labels:
            missing |= self._unlisted(state, progress.last_seq)
        found = tuple(
            known or next((snap for snap in wanted if shows(seen, snap)), None)
            for seen, known in zip(self.seen, progress.found, strict=True)
        )
        return _Progress(progress.last_seq, missing, found)

    def _explained(self, progress: _Progress) -> bool:
        found = [snap for snap in progress.found if snap is not None]
        if len(found) < len(self.seen):
            return False
        newest = max((snap.seq for snap in found), default=0)
        if any(seq <= progress.last_seq or seq < newest for seq in progress.missing):
            return False
        return all(a.seq > b.seq for a, b in pairwise(found))
