"""Leases as the search takes them: a part of their scope.

A lease may be judged to have lapsed at any step, so that the only thing between an old holder and
the head is the fence.
"""

from collections.abc import Iterator

from simulation.items import RepeatedItem, ScopeItem
from simulation.model import State
from simulation.search import Move


class ClaimItem(RepeatedItem):
    """A lease is claimed; or another one was found to hold."""

    def applied(self, state: State) -> Iterator[State]:
        yield state._replace(fence=self.op.given["claim"].key)

    def once(self, state: State) -> Iterator[tuple[State, Move]]:
        key = self.op.answer.key if self.op.ok else self.op.given["claim"].key
        if key == self.op.given["claim"].key:
            yield state._replace(fence=key), Move.OVER
        elif key == state.fence:
            yield state, Move.FREE


class RenewItem(ScopeItem):
    """A lease was renewed, or was not held any more."""

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        if self.op.ok == (state.fence == self.op.given["claim"].key):
            yield state, Move.FREE


class ReleaseItem(RepeatedItem):
    """A lease is given back, if it is held."""

    def applied(self, state: State) -> Iterator[State]:
        is_held = state.fence == self.op.given["claim"].key
        yield state._replace(fence=None) if is_held else state

    def once(self, state: State) -> Iterator[tuple[State, Move]]:
        yield from ((after, Move.OVER) for after in self.applied(state))
