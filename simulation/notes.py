"""Notes: each is a register of its own, and is judged by itself."""

from collections.abc import Iterator
from typing import NamedTuple

from limpet.model import ANY, Expect, Note
from limpet.protocol import NoteWrite
from simulation.history import FOREVER, Op, nonce_of
from simulation.search import Move


class NoteState(NamedTuple):
    """What a note says (nonce and value), None if there is none, and who has removed it."""

    now: tuple[str, str] | None = None
    wiped: frozenset[int] = frozenset()


class NoteItem:
    """An operation on one note: a write, a delete, a read, or a delete of what it is on."""

    def __init__(self, op: Op, key: int, late: bool, value: str | None = None) -> None:
        self.op = op
        self.key = key
        self.begin = op.begin
        self.required = not op.open_ended
        self.late = late
        self.value = value

    @property
    def end(self) -> int:
        """When it has happened, if it does; a call without an answer may still arrive."""
        return self.op.end if self.required or not self.late else FOREVER

    def moves(self, state: NoteState) -> Iterator[tuple[NoteState, Move]]:
        """Yield what may come of it."""
        raise NotImplementedError


class WriteItem(NoteItem):
    """A note is written."""

    def moves(self, state: NoteState) -> Iterator[tuple[NoteState, Move]]:
        """Yield the note as written, if it was at what the write expects."""
        write: NoteWrite = self.op.given["write"]
        if not _at(write.expect, state):
            if self.op.outcome == "Conflict":
                yield state, Move.FREE
            return
        if self.op.outcome in ("Conflict", "refused"):
            return
        yield state._replace(now=(write.stamp.nonce, str(self.value))), Move.OVER


def _at(expect: Expect, state: NoteState) -> bool:
    if expect is ANY:
        return True
    found = None if state.now is None else state.now[0]
    return found is None if expect is None else found == nonce_of(expect)


class EraseItem(NoteItem):
    """A note is deleted; `counts` says that the number returned is exact."""

    counts = False

    def moves(self, state: NoteState) -> Iterator[tuple[NoteState, Move]]:
        """Yield the absence of the note."""
        found = 0 if state.now is None else 1
        if not self.counts or not self.op.ok or self.op.answer == found:
            yield state._replace(now=None), Move.OVER


class SweepItem(NoteItem):
    """The scope, the session or the snapshot id that the note is on is deleted.

    A note that is written while that goes on may go with it, so it may do so more than once. With
    `spare_head` it need not, as the snapshot may have been spared. What a deletion of a scope with
    `expect` has left when it was killed goes with the next write of the scope.
    """

    @property
    def end(self) -> int:
        """When it has happened, if it does."""
        is_finished_later = not self.required and self.op.given.get("expect", ANY) is not ANY
        return FOREVER if is_finished_later else super().end

    def moves(self, state: NoteState) -> Iterator[tuple[NoteState, Move]]:
        """Yield the absence of the note, or the end of the deletion."""
        done = self.key in state.wiped
        if state.now is not None or not done:
            yield NoteState(None, state.wiped | {self.key}), Move.GOES_ON
        if (done or self.op.given.get("spare_head")) and self.required:
            yield state._replace(wiped=state.wiped - {self.key}), Move.OVER


class LookItem(NoteItem):
    """A note was read, or was not there."""

    def __init__(self, op: Op, key: int, late: bool, seen: Note | None) -> None:
        super().__init__(op, key, late)
        self.seen = None if seen is None else (nonce_of(seen.revision), str(seen.value))

    def moves(self, state: NoteState) -> Iterator[tuple[NoteState, Move]]:
        """Yield the same, if that is what the note says."""
        if state.now == self.seen:
            yield state, Move.FREE
