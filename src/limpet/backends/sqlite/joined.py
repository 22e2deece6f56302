"""Writes of several threads in one transaction, so that they share one sync of the disk.

Threads that write to one file queue up, since SQLite can only poll its lock. The queue only saves
time: a thread that has waited long enough goes on as if there were none, as the first one may hang,
may have been interrupted, or may be waiting for a thread behind it.

The first one runs the writes of all that wait behind it.
Each write is a savepoint: one that is refused leaves nothing in the others, and each caller gets
its own answer, after the commit. If that fails nothing was stored, and each caller tries alone. A
caller whose leader was interrupted (Ctrl-C) cannot know whether it is stored: LostAnswer.
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
_POLL_S = 0.005
_LATE_S = 1.0  # that a leader may take to report that it failed


class _Batch:
    """What one thread does for several. `is_undone` if it is certain that nothing was stored."""

    __slots__ = ("is_over", "is_undone")

    def __init__(self) -> None:
        self.is_over = self.is_undone = False


class _Write:
    """One write that waits, and its result. The thread that acquires `claim` runs it."""

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
        self.waiting: deque[_Write] = deque()

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
        write = _Write(action, argument, self._clock.monotonic() + self._wait_s)
        try:
            self.waiting.append(write)
            with self.queued():
                while write in self.waiting:
                    self._lead(write)
                while not write.is_done:
                    # Its leader failed, or was interrupted, or needs longer than one waits in line.
                    is_over = write.batch is not None and write.batch.is_over
                    is_undone = write.batch is not None and write.batch.is_undone
                    if is_undone or write.claim.acquire(blocking=False):
                        return self._alone(write)  # type: ignore[no-any-return]
                    if is_over or self._clock.monotonic() > write.deadline_s + _LATE_S:
                        raise LostAnswer
                    self._clock.sleep(_POLL_S)
        finally:
            with suppress(ValueError):  # interrupted while it waited: nobody must do it later
                if not write.is_done:
                    self.waiting.remove(write)
        return write.result()  # type: ignore[no-any-return]

    def _alone(self, write: _Write) -> Any:
        return self._transact(WRITE, write.action, write.argument, write.deadline_s)

    def _lead(self, own: _Write) -> None:
        """Run what waits, in one transaction; each that is not done then tries alone."""
        batch, writes = _Batch(), list[_Write]()
        try:
            with suppress(IndexError):  # until none is left
                while len(writes) < _TOGETHER_MAX:
                    write = self.waiting.popleft()
                    write.batch = batch
                    if write.claim.acquire(blocking=False):
                        writes.append(write)
            if writes == [own]:
                own.answer = self._alone(own)
                own.is_done = True
            elif writes:
                self._run(writes, batch)
        finally:
            batch.is_over = True

    def _run(self, writes: list[_Write], batch: _Batch) -> None:
        deadline_s = min(write.deadline_s for write in writes)
        try:
            self._transact(WRITE, _run_each, writes, deadline_s)
        except LimpetError as error:
            batch.is_undone = getattr(error, "outcome_known", True)
            return
        for write in writes:
            write.is_done = True


def _run_each(conn: Connection, writes: list[_Write]) -> None:
    for write in writes:
        conn.execute("SAVEPOINT write")
        try:
            write.answer = write.action(conn, write.argument)
        except (sqlite3.Error, UnicodeDecodeError):
            raise  # the transaction may be lost
        except Exception as error:
            write.error = error
            conn.execute("ROLLBACK TO write")
        conn.execute("RELEASE write")
