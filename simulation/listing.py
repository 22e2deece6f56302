"""Listings as the search takes them: they read one thing after the other, while others write."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from limpet.model import SnapshotInfo
from limpet.protocol import Query
from simulation import model
from simulation.history import FOREVER, Op
from simulation.items import Facts, ScopeItem, shows
from simulation.model import Snap, State
from simulation.search import Move


class _Progress(NamedTuple):
    """A listing under way: what it must still explain."""

    last_seq: int  # given when it began
    missing: frozenset[int]  # there all the time, and not listed
    found: tuple[Snap | None, ...]  # for each that was listed, as what it was there


class ListItem(ScopeItem):
    """A listing: of history, or (`query.labels`, `query.id`) through the index.

    It reads one after the other, so each snapshot is judged by itself: listed, it was there at some
    moment of the listing; not listed, it was not. Only a gap is not excused: what is older than
    something listed, and was there, is listed too.
    """

    def __init__(
        self, op: Op, key: int, facts: Facts, query: Query, seen: Sequence[SnapshotInfo | str]
    ) -> None:
        super().__init__(op, key, facts)
        self.query = query
        self.seen = seen
        self.names = {each if isinstance(each, str) else each.id for each in seen}
        self.by_index = bool(query.labels) or query.id is not None
        self.ordered = query.scope is not None and not any(isinstance(e, str) for e in seen)
        # A list of ids may name what a writer has left behind in a scope that was deleted, and
        # what was deleted and saved again meanwhile may be listed at its new seq, without others
        # (docs/format.md, not promised: 3, and listings).
        self.left_behind: frozenset[str] = frozenset()
        self.saved_again: frozenset[str] = frozenset()

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        """Yield the beginning of the listing, or its end once it is explained."""
        progress: Any = state.opened(self.key)
        if progress is None:
            first = _Progress(state.last_seq, self._unlisted(state, 0), (None,) * len(self.seen))
            yield state.with_open(self.key, self.observe(state, first)), Move.FREE_GOES_ON
        elif self._explained(state, progress):
            yield state.with_open(self.key, None), Move.FREE

    def _wanted(self, state: State) -> Iterator[Snap]:
        query = self.query
        for snap in model.visible(state):
            if query.id in (None, snap.id) and (not query.labels or snap.has(query.labels)):
                yield snap

    def _unlisted(self, state: State, after: int) -> frozenset[int]:
        return frozenset(
            snap.seq
            for snap in self._wanted(state)
            if snap.seq > after and snap.id not in self.names and self._due(snap)
        )

    def _due(self, snap: Snap) -> bool:
        """Return whether the listing must show a snapshot that is there.

        Through the index a snapshot may be missing until its writer has been acknowledged, or the
        next writer of the scope has come (docs/format.md, not promised: 11).
        """
        if not self.by_index or self.op.settled:
            return True
        return self.facts.acks.get(snap.nonce, FOREVER) < self.begin

    def observe(self, state: State, payload: Any) -> Any:
        """Return what is still to be explained, now that the scope has changed."""
        progress: _Progress = payload
        wanted = list(self._wanted(state))
        there = {snap.seq for snap in wanted}
        missing = progress.missing & there
        if not self.by_index:
            missing |= self._unlisted(state, progress.last_seq)
        found = tuple(
            known or next((snap for snap in wanted if self._is(seen, snap)), None)
            for seen, known in zip(self.seen, progress.found, strict=True)
        )
        return _Progress(progress.last_seq, missing, found)

    def _is_saved_again(self, snap: Snap, progress: _Progress) -> bool:
        return snap.seq > progress.last_seq and snap.id in self.saved_again

    def _is_left_behind(self, seen: SnapshotInfo | str) -> bool:
        return isinstance(seen, str) and seen in self.left_behind

    def _is(self, seen: SnapshotInfo | str, snap: Snap) -> bool:
        return seen == snap.id if isinstance(seen, str) else shows(seen, snap)

    def _explained(self, state: State, progress: _Progress) -> bool:
        found = [snap for snap in progress.found if snap is not None]
        pairs = zip(self.seen, progress.found, strict=True)
        if any(snap is None and not self._is_left_behind(seen) for seen, snap in pairs):
            return False
        # A history-only save does not see to the copy of the head before it, so a listing that
        # began before that head may show the one without the other (docs/format.md, 9).
        early = [s for s in found if not s.aside and not self._is_saved_again(s, progress)]
        for seq in progress.missing:
            absent = next(snap for snap in state.snaps if snap.seq == seq)
            if seq <= progress.last_seq or any(self.is_below(absent, snap) for snap in early):
                return False
        if not self.ordered:
            return True
        return all(not self.is_below(a, b) for a, b in pairwise(found))
