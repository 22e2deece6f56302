"""Notes as the search takes them: a part of their scope."""

from collections.abc import Iterator

from limpet.core import codec
from limpet.model import ANY, Expect, Note
from limpet.protocol import NoteWrite
from simulation.history import nonce_of
from simulation.items import RepeatedItem, ScopeItem
from simulation.model import Noted, State
from simulation.search import Move


class WriteItem(RepeatedItem):
    """A note is written."""

    def applied(self, state: State) -> Iterator[State]:
        write: NoteWrite = self.op.given["write"]
        if _at(write.expect, state.note(write.on, write.name)):
            value = str(codec.decode(write.value))
            made = Noted(write.on, write.name, write.stamp.nonce, value)
            yield state.with_note(write.on, write.name, made)

    def once(self, state: State) -> Iterator[tuple[State, Move]]:
        after = next(self.applied(state), None)
        if after is None and self.op.outcome == "Conflict":
            yield state, Move.FREE
        elif after is not None and self.op.outcome != "Conflict":
            yield after, Move.OVER


def _at(expect: Expect, found: Noted | None) -> bool:
    if expect is ANY:
        return True
    return (
        found is None if expect is None else found is not None and found.nonce == nonce_of(expect)
    )


class EraseItem(RepeatedItem):
    """A note is deleted."""

    def applied(self, state: State) -> Iterator[State]:
        yield state.with_note(self.op.given["on"], self.op.given["name"])

    def once(self, state: State) -> Iterator[tuple[State, Move]]:
        (after,) = self.applied(state)
        if not self.op.ok or self.op.answer == len(state.notes) - len(after.notes):
            yield after, Move.OVER


class LookItem(ScopeItem):
    """Notes of a scope, or on a snapshot id, were listed."""

    def moves(self, state: State) -> Iterator[tuple[State, Move]]:
        on, name = self.op.given["on"], self.op.given["name"]
        there = (each for each in state.notes if each.on == on and name in (None, each.name))
        if [*map(_noted, self.op.answer)] == sorted(there, key=lambda each: each.name):
            yield state, Move.FREE


def _noted(seen: Note) -> Noted:
    return Noted(seen.snapshot_id, seen.name, nonce_of(seen.revision), str(seen.value))
