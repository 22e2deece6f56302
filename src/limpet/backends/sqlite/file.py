"""One SQLite file: its connections, its transactions, and forks of the process.

Every connection is in WAL mode, so that readers never block a writer, and syncs at each commit.
Writers, whether threads or processes, wait for SQLite's own lock on the file. The threads of one
process queue up in front of it, since SQLite can only poll that lock.

Forks. A connection must not cross a fork: SQLite in the child would believe that it holds locks
that only the parent holds, and the parent might delete a log that the child still writes. So a fork
closes the idle connections first, and waits a little for transactions that run in other threads.
Where one runs for longer, the child cannot use that file.
"""

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeVar

from limpet.backends.sqlite.errors import is_busy, is_full, translated
from limpet.backends.sqlite.in_place import Connection, InPlace, stat_of
from limpet.backends.sqlite.joined import Joined
from limpet.backends.sqlite.schema import (
    NEWEST,
    check_file,
    create_private,
    is_ready,
    make_ready,
    upgraded,
)
from limpet.backends.sqlite.transaction import READ, WRITE
from limpet.backends.support.backoff import Backoff
from limpet.backends.support.forks import renew_after_fork
from limpet.errors import CLOSED, Corrupt, InvalidInput, Unavailable, Unsupported
from limpet.protocol import Clock

A = TypeVar("A")
T = TypeVar("T")

_BUSY_MS = 2  # SQLite's own waiting inside one attempt
_PAUSE_S_MIN = 0.0005
_PAUSE_S_MAX = 0.01
_VACUUM_PAGES = 1_000  # so that other writers get in between
_FORK_WAIT_S_MAX = 2.0
_READS_MAX = 10  # of a file that is changed meanwhile


class SqliteFile:
    """A pool of connections to one file, which is created or migrated when it is opened."""

    def __init__(self, path: str, *, clock: Clock, lock_wait_s: float, synchronous: str) -> None:
        self._path = path
        self._clock = clock
        self._lock_wait_s = lock_wait_s
        self._synchronous = synchronous
        self._idle: list[Connection] = []
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        # Weak: an interrupt (Ctrl-C) may keep a user from being taken out again. (A connection
        # that is lost lives on until the garbage collector comes.)
        self._running: set[weakref.ref[User]] = set()
        self._runs_across_fork = False
        self._version_conn: Connection | None = None
        self._version_conns = 0
        self._closed = False
        self.in_place = InPlace()  # wherever it is, as long as it is not open
        self._renew_locks()
        with self._no_fork():
            self._make_ready()
        self.in_place = InPlace(path)
        with _forks.lock:
            _forks.files.add(self)
        renew_after_fork(self)

    def _make_ready(self) -> None:
        with _forks.creating:
            create_private(self._path)
        try:
            with closing(self._connect()) as conn:
                make_ready(conn, self._path)
        except (sqlite3.Error, UnicodeDecodeError) as cause:
            raise translated(self._path, cause) from cause

    # Transactions

    def run(
        self,
        begin: str | None,
        action: Callable[[Connection, A], T],
        argument: A,
        deadline_s: float | None = None,
    ) -> T:
        """Call an action in a transaction: READ, WRITE, or None for one statement that reads.

        It sees one moment of the store. With WRITE it is one step, durable when this returns, or
        not made at all; it may run in the transaction of another thread. A caller that gives a
        deadline has queued already. What has begun when the file is closed is still done.

        Raises:
            LostAnswer: the thread that wrote for this one was interrupted.
        """
        lock = None
        if deadline_s is None:
            if begin == WRITE:
                lock = self.joined.lock
                if self.joined.waiting or not lock.acquire(blocking=False):
                    return self.joined.run(action, argument)
            elif self._closed:
                raise InvalidInput(CLOSED)
        user, conn, committing = User(), None, False
        # All in one block: a connection lost to an interrupt would keep its lock for a while.
        try:
            conn = self._take(user, begin, deadline_s)
            result = action(conn, argument)
            self.in_place.check(conn)
            if begin is not None:
                committing = True
                conn.execute("COMMIT")
            return result
        except (sqlite3.Error, UnicodeDecodeError) as cause:
            raise self._translated(cause, conn, committing) from cause
        finally:
            if conn is not None:
                self._give_back(user, conn)
            if lock is not None:
                lock.release()

    def run_apart(self, action: Callable[[Connection, A], T], argument: A) -> T:
        """Call an action in a transaction that writes, and that no other write shares."""
        if self._closed:
            raise InvalidInput(CLOSED)
        deadline_s = self._clock.monotonic() + self._lock_wait_s
        with self.joined.queued():
            return self.run(WRITE, action, argument, deadline_s)

    def one(self, statement: str, values: Any) -> Any:
        """Return the first row of one statement that reads, in less time than `run`."""
        user, conn = User(), None
        try:
            conn = self._take(user, None)
            found = conn.execute(statement, values).fetchone()
            self.in_place.check(conn)
            return found
        except (sqlite3.Error, UnicodeDecodeError) as cause:
            raise self._translated(cause, conn) from cause
        finally:
            if conn is not None:
                self._give_back(user, conn)

    def _translated(
        self, cause: Exception, conn: Connection | None, committing: bool = False
    ) -> Exception:
        """Return our error for SQLite's, or raise what it comes from, if that is known."""
        if not committing:
            self.in_place.check(conn)
            with suppress(sqlite3.Error):
                if conn is not None:
                    self.check_version(conn)
        return translated(self._path, cause, committing=committing)

    def check_version(self, conn: Connection) -> None:
        """Raise Unsupported if a newer version of limpet has migrated the file."""
        (version,) = conn.execute("PRAGMA user_version").fetchone()
        if version > NEWEST:
            raise upgraded(self._path, version)

    def _take(
        self, user: "User", statement: str | None, deadline_s: float | None = None
    ) -> Connection:
        """Take a connection and begin; try again while another one or a process holds the lock.

        SQLite's own waiting doubles its pauses up to a tenth of a second, which starves some
        writers for seconds when there are many; short pauses of random length are fair to all.
        """
        backoff: Backoff | None = None
        while True:
            user.thread_id = threading.get_ident()
            user.ref = weakref.ref(user, self._running.discard)
            with _forks.lock:
                self._running.add(user.ref)
                conn = self._idle.pop() if self._idle else None
            if conn is None:
                conn = self._connect(_BUSY_MS)
            try:
                if statement is not None:
                    conn.execute(statement)
                if statement == READ:
                    # The moment that is read is chosen here, where it can be tried again.
                    conn.execute("PRAGMA data_version").fetchone()
                return conn
            except (sqlite3.Error, UnicodeDecodeError) as cause:
                if conn.in_transaction and not is_busy(cause):
                    return conn  # damage: the statement that meets it reports it
                self._give_back(user, conn)
                if backoff is None:
                    now_s = self._clock.monotonic()
                    left_s = self._lock_wait_s if deadline_s is None else deadline_s - now_s
                    backoff = Backoff(
                        self._clock, first_s=_PAUSE_S_MIN, longest_s=_PAUSE_S_MAX, wait_s=left_s
                    )
                if not is_busy(cause) or not backoff.sleep():
                    raise
            except BaseException:  # an interrupt: its lock must not last as long as the traceback
                self._give_back(user, conn)
                raise

    def _give_back(self, user: "User", conn: Connection) -> None:
        try:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            conn.text_factory = str
            self._idle.append(conn)
        except sqlite3.Error:
            conn.close()  # which rolls back as well
        finally:
            self._running.discard(user.ref)
        if self._closed:
            self._close_idle()

    # Connections

    def _connect(self, busy_ms: int | None = None) -> Connection:
        if _forks.unusable and os.path.realpath(self._path) in _forks.unusable:
            raise Unavailable(
                "the process was forked during a transaction of another thread, so SQLite cannot "
                f"lock the file in this child; open it in a new process. path=`{self._path}`"
            )
        # A connection to another file under this path would take the log of ours for its own, and
        # one to an empty file would remove it.
        for each in list(self._connections):
            self.in_place.check(each)
        self.in_place.check()
        conn = None
        try:
            conn = sqlite3.connect(
                f"file:{_in_uri(self._path)}?{self._uri_options()}",
                uri=True,
                timeout=self._lock_wait_s,
                isolation_level=None,  # transactions are begun and ended by us alone
                check_same_thread=False,  # a connection is used by one thread at a time
                cached_statements=128,
                factory=Connection,
            )
            conn.execute("PRAGMA trusted_schema = OFF")
            conn.execute(f"PRAGMA synchronous = {self._synchronous}")
            conn.execute("PRAGMA fullfsync = ON")  # macOS: a plain fsync does not reach the disk
            # What is deleted is zeroed in its page; `compact` gives pages back that are free.
            conn.execute("PRAGMA secure_delete = FAST")
            if busy_ms is not None:
                conn.execute(f"PRAGMA busy_timeout = {busy_ms}")
            self._connections.add(conn)
            conn.find_log(self._path)
            self.in_place.check(conn)
        except (sqlite3.Error, UnicodeDecodeError, Unavailable) as cause:
            if conn is not None:
                conn.close()
            self.in_place.check()
            if isinstance(cause, Unavailable):
                raise
            raise translated(self._path, cause) from cause
        return conn

    def _uri_options(self) -> str:
        return "mode=rw"  # not created again if it is removed while the store is open

    def compact(self) -> int:
        """Give free pages back to the file system, a few at a time; return the bytes."""
        before = self._bytes()
        free, pages, is_stuck = 1, _VACUUM_PAGES, False
        while free:
            try:
                free, is_stuck = self.run_apart(_vacuum, pages), False
            except Unavailable as error:
                if not is_full(error) or is_stuck:
                    raise
                pages, is_stuck = max(1, pages // 8), pages == 1
                self.empty_log()
        self.empty_log()
        return max(0, before - self._bytes())

    def empty_log(self) -> None:
        """Copy the pages in the log to the file; if a reader needs it, it is emptied later."""
        with self._no_fork():
            try:
                with closing(self._connect()) as conn:
                    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except sqlite3.Error as cause:
                raise translated(self._path, cause) from cause

    def _bytes(self) -> int:
        names = (self._path, self._path + "-wal")
        return sum(os.stat(name).st_size for name in names if os.path.exists(name))

    def version(self) -> tuple[int, int]:
        """Return a number that changes with every commit, by any connection or process.

        It belongs to one connection, which the first of the two numbers identifies: after a fork
        there is another one.
        """
        with self._no_fork(), self._version_lock:
            if self._closed:
                raise InvalidInput(CLOSED)
            try:
                if self._version_conn is None:
                    self._version_conn = self._connect()
                    self._version_conns += 1
                (number,) = self._version_conn.execute("PRAGMA data_version").fetchone()
                self.in_place.check(self._version_conn)
                return self._version_conns, number
            except sqlite3.Error as cause:
                raise translated(self._path, cause) from cause

    def __del__(self) -> None:
        # From Python 3.13 on sqlite3 warns of each connection, though the store has warned already.
        for conn in [*getattr(self, "_idle", []), getattr(self, "_version_conn", None)]:
            if conn is not None:
                conn.close()

    def close(self) -> None:
        """Close the connections that are idle; the others are closed when their calls end."""
        self._closed = True
        self._close_idle()

    def _close_idle(self, version_wait_s: float = -1) -> None:
        if self._version_lock.acquire(timeout=version_wait_s):
            try:
                conn, self._version_conn = self._version_conn, None
                if conn is not None:
                    conn.close()
            finally:
                self._version_lock.release()
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return  # another thread closes as well

    # Forks

    @contextmanager
    def _no_fork(self) -> Iterator[None]:
        """Let a fork wait until the block ends: a connection is used inside."""
        user = User()
        user.thread_id = threading.get_ident()
        user.ref = weakref.ref(user, self._running.discard)
        try:
            with _forks.lock:
                self._running.add(user.ref)
            yield
        finally:
            self._running.discard(user.ref)

    def is_used_by_others(self) -> bool:
        thread_id = threading.get_ident()
        used = [each() for each in list(self._running)]
        return any(each is not None and each.thread_id != thread_id for each in used)

    def before_fork(self) -> None:
        self._runs_across_fork = bool(self._running)
        self._close_idle(version_wait_s=0)

    def after_fork(self) -> None:
        if self._runs_across_fork:
            _forks.unusable.add(os.path.realpath(self._path))
            # To close them here would disturb the parent.
            _forks.abandoned += [self._idle, self._version_conn]
            self._idle, self._version_conn = [], None
        self._running = set()
        self._renew_locks()

    def _renew_locks(self) -> None:
        self._version_lock = threading.Lock()
        self.joined = Joined(self.run, self._clock, self._lock_wait_s)


class ReadOnlyFile(SqliteFile):
    """A file that is only read: a backup, or a file on a read-only mount. None of its bytes change.

    Each transaction has a connection of its own. A file with a log (`-wal`) is in use, or its last
    user was killed: it is read under SQLite's locks, which live in a file next to it. Another is
    opened as one that nobody changes (`immutable`), which needs no lock and creates no file. SQLite
    would not notice that a process does change it, so that is checked after each transaction.
    """

    def _make_ready(self) -> None:
        check_file(self._path)
        if self.run(READ, is_ready, self._path):
            return
        raise Unsupported(
            "the file was written by an older version of limpet: open it once without mode=ro, or "
            f"a copy of it. path=`{self._path}`"
        )

    def run(
        self,
        begin: str | None,
        action: Callable[[Connection, A], T],
        argument: A,
        deadline_s: float | None = None,
    ) -> T:
        if begin == WRITE:
            raise Unsupported(
                "the store is open for reading only (mode=ro), so nothing was written. "
                f"path=`{self._path}`"
            )
        for _ in range(_READS_MAX):
            before = self._unlogged()
            try:
                result = super().run(READ, action, argument)
            except Corrupt:
                if before == self._unlogged():
                    raise
                continue  # it was changed while it was read
            except Unavailable as cause:
                if before is not None or os.access(os.path.dirname(self._path), os.W_OK):
                    raise
                raise Unavailable(
                    "the file has a log (-wal), for which SQLite needs a folder that it can write "
                    f"to: copy both of them to one. path=`{self._path}`"
                ) from cause
            if before is None or before == self._unlogged():
                return result
        raise Unavailable(
            f"another process changed the file while it was read: try again. path=`{self._path}`"
        )

    def one(self, statement: str, values: Any) -> Any:
        return self.run(READ, lambda conn, _: conn.execute(statement, values).fetchone(), None)

    def _unlogged(self) -> tuple[int, ...] | None:
        """Return what shows a change of a file without a log; None if there is a log."""
        log = stat_of(self._path + "-wal")
        return None if log is not None and log.st_size else _facts(stat_of(self._path))

    def _connect(self, busy_ms: int | None = None) -> Connection:
        conn = super()._connect(busy_ms)
        conn.execute("PRAGMA query_only = ON")
        if self._unlogged() is not None:
            conn.log = None  # an empty one, which others may remove
        return conn

    def _uri_options(self) -> str:
        return "mode=ro" if self._unlogged() is None else "mode=ro&immutable=1"

    def _give_back(self, user: "User", conn: Connection) -> None:
        conn.close()  # another may be opened in the other way
        self._running.discard(user.ref)

    def version(self) -> tuple[int, int]:
        self.in_place.check()
        return hash(_facts(stat_of(self._path))), hash(_facts(stat_of(self._path + "-wal")))


def _facts(found: os.stat_result | None) -> tuple[int, ...]:
    return () if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)


class User:
    """One call that uses a connection, and its thread. It has no `__init__`, which takes time."""

    __slots__ = ("__weakref__", "ref", "thread_id")

    thread_id: int
    ref: "weakref.ref[User]"


def _vacuum(conn: Connection, pages: int) -> int:
    """Give back some free pages; return how many are left."""
    conn.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
    (free,) = conn.execute("PRAGMA freelist_count").fetchone()
    return int(free)


def _in_uri(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


class _Forks:
    """What the files of this process share: one fork at a time, and none amid a transaction."""

    def __init__(self) -> None:
        self.files: weakref.WeakSet[SqliteFile] = weakref.WeakSet()
        self.unusable: set[str] = set()
        self.abandoned: list[object] = []
        self.after_fork()
        renew_after_fork(self)
        os.register_at_fork(before=self._before_fork, after_in_parent=lambda: self.lock.release())

    def after_fork(self) -> None:
        self.lock = threading.RLock()  # reentrant: a signal handler may fork
        self.creating = threading.Lock()

    def _before_fork(self) -> None:
        self.lock.acquire()  # no transaction begins until the fork is done
        files = list(self.files)
        for _ in range(int(_FORK_WAIT_S_MAX / _PAUSE_S_MIN)):
            if not any(file.is_used_by_others() for file in files):
                break
            threading.Event().wait(_PAUSE_S_MIN)
        for file in files:
            file.before_fork()


_forks = _Forks()
