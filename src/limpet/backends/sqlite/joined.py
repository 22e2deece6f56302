"""Writes of several threads in one transaction, so that they share one sync of the disk.

Threads that write to one file queue up, since SQLite can only poll its lock. The queue only saves
time: a thread that has waited long enough goes on as if there were none, as the first one may hang,
may have been interrupted, or may be waiting for a thread behind it.

The first one runs the writes of all that wait behind it.
Each write is a savepoint: one that is refused leaves nothing in the others, and each caller gets
its own answer, after the commit. If that fails nothing was stored, and each caller tries alone. A
caller whose leader was interrupted (Ctrl-C) cannot tell what became of its write: LostAnswer.
"""

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from limpet.backends.sqlite.in_place import Connection
from limpet.backends.sqlite.transaction import WRITE
from limpet.errors import LimpetError
from limpet.protocol import Clock
from limpet.storage import LostAnswer

A = TypeVar("A")
T = TypeVar("T")

_QUEUE_S_MAX = 1.0
_TOGETHER_MAX = 64
_LOOK_S = 0.005
_LATE_S = 1.0  # that a leader may be late to say that it failed


class _Batch:
    """What one thread does for several. `is_undone` if it is certain that nothing was stored."""

    __slots__ = ("is_over", "is_undone")

    def __init__(self) -> None:
        self.is_over = self.is_undone = False


class _Turn:
    """One write that waits, and what came of it. Who acquires `claim` runs it, and nobody else."""

    __slots__ = ("action", "answer", "argument", "batch", "claim", "deadline_s", "error", "is_done")

    def __init__(
        self, action: Callable[[Connection, Any], Any], argument: Any, deadline_s: float
    ) -> None:
        self.action, self.argument = action, argument
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
    """Runs writes, those of several threads together. `transact` is `SqliteFile.run`."""

    def __init__(self, transact: Callable[..., Any], clock: Clock, wait_s: float) -> None:
        self._transact = transact
        self._clock = clock
        self._wait_s = wait_s  # for other writers
        self.lock = threading.RLock()  # of the first thread in the queue
        self.waiting: deque[_Turn] = deque()

    @contextmanager
    def queued(self) -> Iterator[None]:
        """Wait to be the first of the threads that write, mostly. Reentrant."""
        lock, has = self.lock, False
        try:
            has = lock.acquire(timeout=min(self._wait_s, _QUEUE_S_MAX))
            if not has and self._wait_s and self.lock is lock:
                self.lock = threading.RLock()  # an interrupt may have left the other one locked
            yield
        finally:
            if has:
                lock.release()

    def run(self, action: Callable[[Connection, A], T], argument: A) -> T:
        """Run an action in a transaction, maybe in that of another thread; return its result.

        Raises:
            LostAnswer: that thread was interrupted, or takes too long.
        """
        turn = _Turn(action, argument, self._clock.monotonic() + self._wait_s)
        try:
            self.waiting.append(turn)
            with self.queued():
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
        return self._transact(WRITE, turn.action, turn.argument, turn.deadline_s)

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
            elif turns:
                self._run(turns, batch)
        finally:
            batch.is_over = True

    def _run(self, turns: list[_Turn], batch: _Batch) -> None:
        deadline_s = min(turn.deadline_s for turn in turns)
        try:
            self._transact(WRITE, _run_each, turns, deadline_s)
        except LimpetError as error:
            batch.is_undone = getattr(error, "outcome_known", True)
            return
        for turn in turns:
            turn.is_done = True


def _run_each(conn: Connection, turns: list[_Turn]) -> None:
    for turn in turns:
        conn.execute("SAVEPOINT turn")
        try:
            turn.answer = turn.action(conn, turn.argument)
        except (sqlite3.Error, UnicodeDecodeError):
            raise  # the transaction may be lost
        except Exception as error:
            turn.error = error
            conn.execute("ROLLBACK TO turn")
        conn.execute("RELEASE turn")
