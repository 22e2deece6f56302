"""Is there an order of the operations, each at one moment of its own time, that explains them?

The search of Wing and Gong: take operations one by one, each before all that began after it ended,
and ask a model whether it could have given that answer; go back where it could not. What was
reached before, with the same state, is not tried again.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from enum import Enum
from typing import Generic, Protocol, TypeVar

from simulation.history import FOREVER, Op

S = TypeVar("S", bound=Hashable)

CONFIGURATIONS_MAX = 200_000


class TooMany(Exception):
    """A history is too tangled to be judged; no verdict is better than a wrong one."""


class Move(Enum):
    """Whether an item is over with a move. A free one is made at once.

    Free is what changes nothing for the others, and is never worse when it comes earlier.
    """

    OVER = "over"
    GOES_ON = "goes on"
    FREE = "over, and free"
    FREE_GOES_ON = "goes on, and free"


_FREE = (Move.FREE, Move.FREE_GOES_ON)


class Item(Protocol[S]):
    """An operation as the search sees it.

    `required` items must happen; the others may, until `end`.
    """

    op: Op
    begin: int
    required: bool

    @property
    def end(self) -> int:
        """When it has taken place, if it does."""
        ...

    def moves(self, state: S) -> Iterator[tuple[S, Move]]:
        """Yield the states that the item may lead to now, and how."""
        ...


class _Place(Generic[S]):
    """How far a search has come: what is done, the latest beginning of it, and the state then."""

    __slots__ = ("done", "key", "latest", "path", "state")

    def __init__(self, done: int, latest: int, state: S, path: tuple[int, ...]) -> None:
        self.done = done
        self.latest = latest
        self.state = state
        self.path = path
        self.key = (done, latest, state)


class Search(Generic[S]):
    """One search. `deepest` is the longest explanation found, for the report."""

    def __init__(self, items: Sequence[Item[S]], settle: Callable[[S], S]) -> None:
        self._items = sorted(items, key=lambda item: item.begin)
        self._ends = [item.end for item in self._items]
        self._settle = settle
        self._all = sum(1 << at for at, item in enumerate(self._items) if item.required)
        self.deepest: tuple[int, ...] = ()
        self.blocked: list[Item[S]] = []

    def explains(self, start: S) -> bool:
        """Return whether some order explains everything."""
        seen: set[tuple[int, int, S]] = set()
        stack: list[_Place[S]] = [_Place(0, 0, start, ())]
        while stack:
            place = self._take_what_is_free(stack.pop())
            if place.done & self._all == self._all:
                return True
            if place.key in seen:
                continue
            seen.add(place.key)
            if len(seen) > CONFIGURATIONS_MAX:
                raise TooMany(f"more than {CONFIGURATIONS_MAX} configurations")
            candidates = self._candidates(place)
            if len(place.path) >= len(self.deepest):
                self.deepest = place.path
                self.blocked = [self._items[at] for at in candidates]
            # The last one pushed is tried first: whatever ended first is likely to come first.
            for at in sorted(candidates, key=lambda at: -self._ends[at]):
                for state, move in self._items[at].moves(place.state):
                    following = self._after(place, at, state, move)
                    if following.key not in seen:
                        stack.append(following)
        return False

    def _after(self, place: "_Place[S]", at: int, state: S, move: Move) -> "_Place[S]":
        latest = max(place.latest, self._items[at].begin)
        if state is not place.state:
            state = self._settle(state)
        if move in (Move.OVER, Move.FREE):
            return _Place(place.done | 1 << at, latest, state, (*place.path, at))
        return _Place(place.done, latest, state, place.path)

    def _take_what_is_free(self, place: "_Place[S]") -> "_Place[S]":
        """Make all moves that are free."""
        again = True
        while again:
            again = False
            candidates = self._candidates(place)
            # What began after the end of one that may or may not take place decides that it does
            # not: no such move is free.
            ends = [self._ends[at] for at in candidates if not self._items[at].required]
            limit = min(ends, default=FOREVER)
            for at in candidates:
                item = self._items[at]
                if not item.required or item.begin > limit:
                    continue
                for state, move in item.moves(place.state):
                    if move in _FREE:
                        place = self._after(place, at, state, move)
                        again = True
                        break
                if again:
                    break
        return place

    def _candidates(self, place: "_Place[S]") -> list[int]:
        """Return those that may be next: nothing that is still to come ended before they began."""
        limit = FOREVER
        found = []
        done = place.done
        first = (~done & (done + 1)).bit_length() - 1  # all before it are done
        for at in range(first, len(self._items)):
            if done >> at & 1:
                continue
            item = self._items[at]
            if item.begin > limit:
                break
            if item.required:
                limit = min(limit, self._ends[at])
                found.append(at)
            elif self._ends[at] > place.latest:
                found.append(at)
        return [at for at in found if self._items[at].begin <= limit]

    def explanation(self) -> list[Op]:
        """Return the operations of the longest explanation, in its order."""
        return [self._items[at].op for at in self.deepest]
