"""Writes of several threads in one transaction, so that they share one sync of the disk.

Threads that write to one file queue up. Whoever comes first takes along all who wait behind it.
Each write is a savepoint: one that is refused leaves nothing in the others, and each caller gets
its own answer, after the commit. If that fails nothing was stored, and each caller tries alone. A
caller whose leader was interrupted (Ctrl-C) cannot tell what became of its write, and tries alone
as well; its `alone` must find out whether it was stored.
"""

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol, TypeVar

from limpet.backends.sqlite.transaction import SqliteTransaction
from limpet.errors import LimpetError, Unavailable
from limpet.protocol import Clock

T = TypeVar("T")

_TOGETHER_MAX = 64
_LOOK_S = 0.005


class File(Protocol):
    """What is needed of a file."""

    def deadline_s(self) -> float:
        """Return until when to wait for other writers."""
        ...

    def queued(self, *, waits: bool = True) -> AbstractContextManager[bool]:
        """Wait to be the first of the threads that write; say whether it is."""
        ...

    def transaction(
        self, *, write: bool, deadline_s: float | None
    ) -> AbstractContextManager[SqliteTransaction]: ...


class _Batch:
    """What one thread does for several."""

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False


class _Turn:
    """One write that waits, and what came of it. Who acquires `claim` runs it, and nobody else."""

    __slots__ = ("action", "answer", "batch", "claim", "error", "is_done")

    def __init__(self, action: Callable[[SqliteTransaction], Any]) -> None:
        self.action = action
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

    def run(self, action: Callable[[SqliteTransaction], T], alone: Callable[[], T]) -> T:
        """Run an action in a transaction, maybe in that of another thread; return its result.

        `alone` does the same in a transaction of its own, and finds out whether it was done before.
        """
        deadline_s = self._file.deadline_s()
        turn = _Turn(action)
        try:
            self.waiting.append(turn)
            with self._file.queued():
                while turn in self.waiting:
                    self._lead(turn, deadline_s)
                while not turn.is_done:
                    # Its leader failed, or was interrupted, or needs longer than one waits in line.
                    if turn.claim.acquire(blocking=False) or (turn.batch and turn.batch.is_over):
                        return alone()
                    if self._clock.monotonic() > deadline_s:
                        return self._in_doubt(alone)
                    self._clock.sleep(_LOOK_S)
        finally:
            with suppress(ValueError):  # interrupted while it waited: nobody must do it later
                if not turn.is_done:
                    self.waiting.remove(turn)
        return turn.result()  # type: ignore[no-any-return]

    def _in_doubt(self, alone: Callable[[], T]) -> T:
        try:
            return alone()
        except Unavailable as error:
            raise Unavailable(str(error), outcome_known=False) from error

    def _lead(self, own: _Turn, deadline_s: float) -> None:
        """Run what waits, in one transaction; what is not done then was not stored."""
        batch, turns = _Batch(), list[_Turn]()
        try:
            with suppress(IndexError):  # until none is left
                while len(turns) < _TOGETHER_MAX:
                    turn = self.waiting.popleft()
                    turn.batch = batch
                    if turn.claim.acquire(blocking=False):
                        turns.append(turn)
            self._run(turns, own, deadline_s)
        finally:
            batch.is_over = True

    def _run(self, turns: list[_Turn], own: _Turn, deadline_s: float) -> None:
        if turns == [own]:
            with self._file.transaction(write=True, deadline_s=deadline_s) as transaction:
                own.answer = own.action(transaction)
            own.is_done = True
            return
        try:
            with self._file.transaction(write=True, deadline_s=deadline_s) as transaction:
                for turn in turns:
                    _run_one(turn, transaction)
        except LimpetError:
            return  # each tries alone
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
