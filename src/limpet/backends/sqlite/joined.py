"""Writes of several threads in one transaction, so that they share one sync of the disk.

Threads that write to one file queue up. Whoever comes first takes along all who wait behind it.
Each write is a savepoint: one that is refused leaves nothing in the others, and each caller gets
its own answer, after the commit. If that fails nothing was stored, and each caller tries alone. A
caller whose leader was interrupted (Ctrl-C) cannot tell what became of its write: LostAnswer.
"""

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol, TypeVar

from limpet.backends.sqlite.transaction import SqliteTransaction
from limpet.errors import LimpetError
from limpet.protocol import Clock
from limpet.storage import LostAnswer

T = TypeVar("T")

_TOGETHER_MAX = 64
_LOOK_S = 0.005
_LATE_S = 1.0  # that a leader may be late to say that it failed


class File(Protocol):
    """What is needed of a file."""

    def deadline_s(self) -> float:
        """Return until when to wait for other writers."""
        ...

    def queued(self) -> AbstractContextManager[bool]:
        """Wait to be the first of the threads that write; say whether it is."""
        ...

    def transaction(
        self, *, write: bool, deadline_s: float | None
    ) -> AbstractContextManager[SqliteTransaction]: ...


class _Batch:
    """What one thread does for several. `is_undone` if it is certain that nothing was stored."""

    __slots__ = ("is_over", "is_undone")

    def __init__(self) -> None:
        self.is_over = self.is_undone = False


class _Turn:
    """One write that waits, and what came of it. Who acquires `claim` runs it, and nobody else."""

    __slots__ = ("action", "answer", "batch", "claim", "deadline_s", "error", "is_done")

    def __init__(self, action: Callable[[SqliteTransaction], Any], deadline_s: float) -> None:
        self.action = action
        self.deadline_s = deadline_s
        self.claim = threading.Lock()
        self.batch: _Batch | None = None
        self.is_done = False
        self.answer: Any = None
        self.error: Exception | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.answer


class Joined:
    """Runs writes, those of several threads together."""

    def __init__(self, file: File, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self.waiting: deque[_Turn] = deque()

    def run(self, action: Callable[[SqliteTransaction], T]) -> T:
        """Run an action in a transaction, maybe in that of another thread; return its result.

        Raises:
            LostAnswer: that thread was interrupted, or takes too long.
        """
        turn = _Turn(action, self._file.deadline_s())
        try:
            self.waiting.append(turn)
            with self._file.queued():
                while turn in self.waiting:
                    self._lead(turn)
                while not turn.is_done:
                    # Its leader failed, or was interrupted, or needs longer than one waits in line.
                    is_over = turn.batch is not None and turn.batch.is_over
                    is_undone = turn.batch is not None and turn.batch.is_undone
                    if is_undone or turn.claim.acquire(blocking=False):
                        return self._alone(turn)  # type: ignore[no-any-return]
                    if is_over or self._clock.monotonic() > turn.deadline_s + _LATE_S:
                        raise LostAnswer
                    self._clock.sleep(_LOOK_S)
        finally:
            with suppress(ValueError):  # interrupted while it waited: nobody must do it later
                if not turn.is_done:
                    self.waiting.remove(turn)
        return turn.result()  # type: ignore[no-any-return]

    def _alone(self, turn: _Turn) -> Any:
        with self._file.transaction(write=True, deadline_s=turn.deadline_s) as transaction:
            return turn.action(transaction)

    def _lead(self, own: _Turn) -> None:
        """Run what waits, in one transaction; each that is not done then tries alone."""
        batch, turns = _Batch(), list[_Turn]()
        try:
            with suppress(IndexError):  # until none is left
                while len(turns) < _TOGETHER_MAX:
                    turn = self.waiting.popleft()
                    turn.batch = batch
                    if turn.claim.acquire(blocking=False):
                        turns.append(turn)
            if turns == [own]:
                own.answer = self._alone(own)
                own.is_done = True
            else:
                self._run(turns, batch)
        finally:
            batch.is_over = True

    def _run(self, turns: list[_Turn], batch: _Batch) -> None:
        deadline_s = min((turn.deadline_s for turn in turns), default=0)
        try:
            with self._file.transaction(write=True, deadline_s=deadline_s) as transaction:
                for turn in turns:
                    _run_one(turn, transaction)
        except LimpetError as error:
            batch.is_undone = getattr(error, "outcome_known", True)
            return
        for turn in turns:
            turn.is_done = True


def _run_one(turn: _Turn, transaction: SqliteTransaction) -> None:
    transaction.conn.execute("SAVEPOINT turn")
    try:
        turn.answer = turn.action(transaction)
    except (sqlite3.Error, UnicodeDecodeError):
        raise  # the transaction may be lost
    except Exception as error:
        turn.error = error
        transaction.conn.execute("ROLLBACK TO turn")
    transaction.conn.execute("RELEASE turn")
