"""One SQLite file: connections for many threads, transactions, and forks.

Every connection is in WAL mode, so that a reader never blocks a writer, and syncs at each commit.
Writers, whether threads or processes, take turns by SQLite's own lock on the file. Those of one
process queue up before it, since a waiting one finds it free only by trying again and again.

Forks. A connection must not cross a fork: SQLite would believe in the child that it holds locks
which only the parent holds, and the parent might delete a log that the child still writes. So a
fork waits until no thread is inside SQLite, which takes as long as one transaction, and closes the
idle connections; parent and child then open new ones.
"""

import os
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from limpet.backends.sqlite.errors import NO_CODE, is_busy, primary_code, translated
from limpet.backends.sqlite.schema import create_private, make_ready
from limpet.backends.support.queue import Queue
from limpet.errors import InvalidInput
from limpet.protocol import Clock

T = TypeVar("T")

_BUSY_MS = 2  # SQLite's own waiting inside one attempt
_PAUSE_S_MIN = 0.0005
_PAUSE_S_MAX = 0.01
_VACUUM_PAGES = 1_000  # so that other writers get in between
_FORK_WAIT_S_MAX = 10.0


class SqliteFile:
    """A pool of connections to one file of ours, created or brought up to date when opened."""

    def __init__(self, path: str, *, clock: Clock, lock_wait_s: float, synchronous: str) -> None:
        """Open the file, or raise why it cannot be ours."""
        self._path = path
        self._clock = clock
        self._lock_wait_s = lock_wait_s
        self._synchronous = synchronous
        self._idle: list[sqlite3.Connection] = []
        self._watching: sqlite3.Connection | None = None
        self._watchings = 0
        self.renew_locks()
        self._closed = False
        with _creating:
            create_private(self._path)
        with _gate:
            self._prepare()
        _open_files.add(self)

    def read(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run statements that all see one moment of the store."""
        self._check_open()
        return self._transact("BEGIN", action)

    def write(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run statements as one step, durable when this returns, or not at all."""
        self._check_open()
        return self._in_turn(action)

    def compact(self) -> int:
        """Give free pages back to the file system, a few at a time; return the bytes."""
        self._check_open()
        before = self._bytes()
        while self._in_turn(_vacuum_some):
            pass
        with _gate:
            conn = self._take()
            try:
                # The pages are still in the log; if a reader needs it, the log is emptied later.
                conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except sqlite3.Error as cause:
                raise translated(self._path, cause) from cause
            finally:
                self._give_back(conn)
        return max(0, before - self._bytes())

    def version(self) -> tuple[int, int]:
        """Return a number that is another one after any commit, by whatever connection.

        It is compared on one connection, which the first of the two numbers: there is another one
        after a fork, and it begins to count anew.
        """
        with _gate, self._watch_lock:
            self._check_open()
            try:
                if self._watching is None:
                    self._watching = self._connect()
                    self._watchings += 1
                (number,) = self._watching.execute("PRAGMA data_version").fetchone()
                return self._watchings, number
            except sqlite3.Error as cause:
                raise translated(self._path, cause) from cause

    def renew_locks(self) -> None:
        """Make the locks, also in a child: a thread that had one at the fork is not there."""
        self._watch_lock = threading.Lock()  # of the connection that watches
        self._queue = Queue()

    def _bytes(self) -> int:
        names = (self._path, self._path + "-wal")
        return sum(os.stat(name).st_size for name in names if os.path.exists(name))

    def close(self) -> None:
        """Close the connections that are idle; those in use are closed when they are let go."""
        self._closed = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close the connections that nobody uses; more are opened when they are needed."""
        with self._watch_lock:  # nobody is in the middle of a look
            watching, self._watching = self._watching, None
            if watching is not None:
                watching.close()
        while self._idle:
            try:
                conn = self._idle.pop()
            except IndexError:
                return  # another thread closes as well
            conn.close()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidInput("the store is closed")

    def _in_turn(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Write, one thread of this process after the other."""
        deadline = self._clock.monotonic() + self._lock_wait_s  # of all the waiting
        return self._queue.pass_(
            self._lock_wait_s, lambda: self._transact("BEGIN IMMEDIATE", action, deadline)
        )

    def _transact(
        self,
        begin: str,
        action: Callable[[sqlite3.Connection], T],
        deadline: float | None = None,
    ) -> T:
        """Try until it is our turn among the threads and processes that use the file.

        SQLite's own waiting doubles its pauses up to a tenth of a second, which starves some
        writers for seconds when there are many; short pauses of random length are fair to all.
        """
        pause_s = _PAUSE_S_MIN
        while True:
            try:
                with _gate:
                    return self._attempt(begin, action)
            except _Busy as busy:
                now = self._clock.monotonic()
                deadline = now + self._lock_wait_s if deadline is None else deadline
                if now >= deadline:
                    raise translated(self._path, busy.cause) from busy.cause
            self._clock.sleep(pause_s * (0.5 + self._clock.jitter()))
            pause_s = min(pause_s * 1.5, _PAUSE_S_MAX)

    def _attempt(self, begin: str, action: Callable[[sqlite3.Connection], T]) -> T:
        conn = self._take()
        committing = False
        try:
            conn.execute(begin)
            result = _despite_damage(conn, begin, action)
            committing = True
            conn.execute("COMMIT")
            return result
        except (sqlite3.Error, UnicodeDecodeError) as cause:
            if is_busy(cause) and not committing:
                raise _Busy(cause) from None
            raise translated(self._path, cause, committing=committing) from cause
        finally:
            self._give_back(conn)

    def _take(self) -> sqlite3.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            conn = self._connect()
            conn.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            return conn

    def _give_back(self, conn: sqlite3.Connection) -> None:
        try:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
        except sqlite3.Error:
            conn.close()  # which rolls back as well
            return
        self._idle.append(conn)
        if self._closed:
            self.close_idle()

    def _connect(self) -> sqlite3.Connection:
        conn = None
        try:
            conn = sqlite3.connect(
                # Not created anew if somebody removes it while it is open.
                f"file:{quote(self._path)}?mode=rw",
                uri=True,
                timeout=self._lock_wait_s,
                isolation_level=None,  # transactions are begun and ended by us alone
                check_same_thread=False,  # a connection is used by one thread at a time
                cached_statements=128,
            )
            conn.execute("PRAGMA foreign_keys = ON")
            conn.execute("PRAGMA trusted_schema = OFF")
            conn.execute(f"PRAGMA synchronous = {self._synchronous}")
            conn.execute("PRAGMA fullfsync = ON")  # macOS: a plain fsync does not reach the disk
        except (sqlite3.Error, UnicodeDecodeError) as cause:
            if conn is not None:
                conn.close()
            raise translated(self._path, cause) from cause
        return conn

    def _prepare(self) -> None:
        conn = self._connect()
        try:
            make_ready(conn, self._path)
        except (sqlite3.Error, UnicodeDecodeError) as cause:
            raise translated(self._path, cause) from cause
        finally:
            conn.close()


class _Busy(Exception):
    """It is not our turn yet; nothing has happened."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


def _vacuum_some(conn: sqlite3.Connection) -> bool:
    """Give some free pages back; tell whether there are more."""
    conn.execute(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})").fetchall()
    (free,) = conn.execute("PRAGMA freelist_count").fetchone()
    return bool(free)


def _despite_damage(
    conn: sqlite3.Connection, begin: str, action: Callable[[sqlite3.Connection], T]
) -> T:
    """Run an action; if text in its way is not UTF-8, again with such text passed through.

    It can only be damage, and must fail the checksum of its own row, not the whole listing.
    """
    try:
        return action(conn)
    except sqlite3.OperationalError as cause:
        if primary_code(cause) != NO_CODE:
            raise
    conn.execute("ROLLBACK")
    conn.execute(begin)
    conn.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    try:
        return action(conn)
    finally:
        conn.text_factory = str


class _Gate:
    """Knows which threads are inside SQLite, and lets a fork wait until there is none.

    Made of single operations on a set and a flag, which threads see in one order, so that an
    interrupt (Ctrl-C) at any moment leaves at most a name in the set, which the same thread takes
    out the next time.
    """

    def __init__(self) -> None:
        self._inside: set[int] = set()
        self._forking = False
        self._fork = threading.Lock()

    def __enter__(self) -> None:
        me = threading.get_ident()
        self._inside.add(me)
        while self._forking:
            self._inside.discard(me)
            threading.Event().wait(_PAUSE_S_MIN)
            self._inside.add(me)

    def __exit__(self, *_: object) -> None:
        self._inside.discard(threading.get_ident())

    def shut(self) -> None:
        """Let nobody in any more, and wait for those inside."""
        # One fork at a time: closing connections is being inside as well.
        self._fork.acquire()
        self._forking = True
        # Bounded: a thread inside that does not come out must not keep the process from forking.
        for _ in range(int(_FORK_WAIT_S_MAX / _PAUSE_S_MIN)):
            others = self._inside & sys._current_frames().keys() - {threading.get_ident()}
            if not others:
                return
            threading.Event().wait(_PAUSE_S_MIN)

    def open(self) -> None:
        """Let everybody in again."""
        self._forking = False
        self._fork.release()


_gate = _Gate()
_creating = threading.Lock()
_open_files: "weakref.WeakSet[SqliteFile]" = weakref.WeakSet()


def _before_fork() -> None:
    _gate.shut()
    for file in list(_open_files):
        file.close_idle()


def _after_fork_in_child() -> None:
    global _gate, _creating
    _gate = _Gate()
    _creating = threading.Lock()
    for file in list(_open_files):
        file.renew_locks()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _gate.open(),
    after_in_child=_after_fork_in_child,
)
