"""One SQLite file: connections for many threads, transactions, migrations, and errors by code.

Every connection is in WAL mode, so that a reader never blocks a writer, and syncs at each commit.
Writers of one process queue for a lock; writers of several processes wait on SQLite's own.
"""

import ctypes
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from holdfast.backends import _sql
from holdfast.errors import Corrupt, HoldfastError, InvalidInput, Unavailable, Unsupported
from holdfast.protocol import Clock

T = TypeVar("T")

APPLICATION_ID = 0x48464153  # "HFAS", which `file` and others find in the header
VERSION_MIN = (3, 37, 0)  # STRICT tables

_PREPARE_TRIES_MAX = 1_000
_BUSY_MS = 2  # SQLite's own waiting inside one attempt
_PAUSE_S_MIN = 0.0005
_PAUSE_S_MAX = 0.01
_NO_CODE = sqlite3.SQLITE_INTERNAL

_open_files: "weakref.WeakSet[SqliteFile]" = weakref.WeakSet()


class SqliteFile:
    """A pool of connections to one file of ours, created or brought up to date when opened."""

    def __init__(self, path: str, *, clock: Clock, lock_wait_s: float, synchronous: str) -> None:
        """Open the file, or raise why it cannot be ours."""
        if sqlite3.sqlite_version_info < VERSION_MIN:
            raise Unsupported(f"SQLite is too old. found=`{sqlite3.sqlite_version}` min=`3.37`")
        # Absolute, so that a later change of directory does not lead to another file.
        self._path = os.path.abspath(path)
        self._clock = clock
        self._lock_wait_s = lock_wait_s
        self._synchronous = synchronous
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._turn = threading.Lock()
        _create_private(self._path)
        self._prepare()
        _open_files.add(self)

    def read(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run statements that all see one moment of the store."""
        return self._with_connection("BEGIN", action)

    def write(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run statements as one step, durable when this returns, or not at all."""
        # Threads of this process queue here: fairer, and cheaper than polling SQLite's lock.
        if not self._turn.acquire(timeout=self._lock_wait_s):
            raise Unavailable(f"other writers hold the file. waited_s=`{self._lock_wait_s:g}`")
        try:
            return self._with_connection("BEGIN IMMEDIATE", action)
        finally:
            self._turn.release()

    def close(self) -> None:
        """Close the connections that are idle; those in use are closed when they are let go."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def abandon(self) -> None:
        """Begin anew in the child of a fork.

        SQLite forbids the use of a connection across a fork, even to close it: it is kept alive
        for ever instead. Locks may have been held by threads that do not exist here.
        """
        for conn in self._idle:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(conn))
        self._idle = []
        self._turn = threading.Lock()

    def _with_connection(self, begin: str, action: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise InvalidInput("the store is closed")
        try:
            conn = self._idle.pop()
        except IndexError:
            conn = self._connect_to_wait()
        try:
            return self._transact(conn, begin, action)
        finally:
            # A connection that could not end its transaction must not be used again.
            if conn.in_transaction:
                conn.close()
            else:
                self._idle.append(conn)
            if self._closed:
                self.close()

    def _transact(
        self, conn: sqlite3.Connection, begin: str, action: Callable[[sqlite3.Connection], T]
    ) -> T:
        """Try until it is our turn among the processes that use the file.

        SQLite's own waiting doubles its pauses up to a tenth of a second, which starves some
        writers for seconds when there are many; short pauses of random length are fair to all.
        """
        deadline = None
        pause_s = _PAUSE_S_MIN
        while True:
            try:
                return self._attempt(conn, begin, action)
            except _Busy as busy:
                now = self._clock.monotonic()
                deadline = now + self._lock_wait_s if deadline is None else deadline
                if now >= deadline:
                    raise self._translated(busy.cause) from busy.cause
            self._clock.sleep(pause_s * (0.5 + self._clock.jitter()))
            pause_s = min(pause_s * 1.5, _PAUSE_S_MAX)

    def _attempt(
        self, conn: sqlite3.Connection, begin: str, action: Callable[[sqlite3.Connection], T]
    ) -> T:
        committing = False
        try:
            conn.execute(begin)
            result = _despite_damage(conn, action)
            committing = True
            conn.execute("COMMIT")
            return result
        except sqlite3.Error as cause:
            _roll_back(conn)
            if _primary(cause) == sqlite3.SQLITE_BUSY and not committing:
                raise _Busy(cause) from None
            raise self._translated(cause, committing=committing) from cause
        except BaseException:
            _roll_back(conn)
            raise

    def _connect(self) -> sqlite3.Connection:
        conn = None
        try:
            conn = sqlite3.connect(
                self._path,
                timeout=self._lock_wait_s,
                isolation_level=None,  # transactions are begun and ended by us alone
                check_same_thread=False,  # a connection is used by one thread at a time
                cached_statements=128,
            )
            conn.execute("PRAGMA foreign_keys = ON")
            conn.execute("PRAGMA trusted_schema = OFF")
            conn.execute(f"PRAGMA synchronous = {self._synchronous}")
            conn.execute("PRAGMA fullfsync = ON")  # macOS: a plain fsync does not reach the disk
        except sqlite3.Error as cause:
            if conn is not None:
                conn.close()
            raise self._translated(cause) from cause
        return conn

    def _connect_to_wait(self) -> sqlite3.Connection:
        """Return a connection for `_transact`, which waits in its own way."""
        conn = self._connect()
        conn.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        return conn

    def _prepare(self) -> None:
        """Make an empty file ours, or check that it is, and bring its tables up to date."""
        conn = self._connect()
        try:
            for _ in range(_PREPARE_TRIES_MAX):
                if self._is_ready(conn):
                    return
                try:
                    self._make_ready(conn)
                except sqlite3.OperationalError as cause:
                    _roll_back(conn)
                    if _primary(cause) != sqlite3.SQLITE_BUSY:
                        raise
                    # Somebody else is making it ready. A change of journal mode does not wait for
                    # its turn, but a transaction does.
                    conn.execute("BEGIN IMMEDIATE")
                    conn.execute("ROLLBACK")
            raise Unavailable("others kept the file from being made ready")
        except sqlite3.Error as cause:
            raise self._translated(cause) from cause
        finally:
            conn.close()

    def _is_ready(self, conn: sqlite3.Connection) -> bool:
        (application,) = conn.execute("PRAGMA application_id").fetchone()
        (version,) = conn.execute("PRAGMA user_version").fetchone()
        (tables,) = conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if application != APPLICATION_ID and (tables or application or version):
            raise InvalidInput(f"the file is a database of somebody else. path=`{self._path}`")
        newest = _sql.load_migrations("sqlite")[-1][0]
        if version > newest:
            raise Unsupported(
                f"the file was written by a newer version of holdfast. path=`{self._path}` "
                f"found=`{version}` known=`{newest}`"
            )
        return bool(version == newest)

    def _make_ready(self, conn: sqlite3.Connection) -> None:
        # The order matters: auto_vacuum cannot be chosen once the first page is written.
        conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
        (mode,) = conn.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise Unsupported(f"the file system cannot do SQLite's WAL mode. path=`{self._path}`")
        conn.execute("BEGIN IMMEDIATE")
        (version,) = conn.execute("PRAGMA user_version").fetchone()
        for number, name, script in _sql.load_migrations("sqlite"):
            if number > version:
                for statement in _statements(script):
                    conn.execute(statement)
                conn.execute(
                    "INSERT INTO schema_migrations (version, name) VALUES (?, ?)", (number, name)
                )
                conn.execute(f"PRAGMA user_version = {number:d}")
        conn.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
        conn.execute("COMMIT")

    def _translated(self, cause: sqlite3.Error, *, committing: bool = False) -> HoldfastError:
        """Return our error for SQLite's, chosen by code."""
        code = _primary(cause)
        where = f"path=`{self._path}` sqlite=`{getattr(cause, 'sqlite_errorname', 'unknown')}`"
        match code:
            case sqlite3.SQLITE_NOTADB:
                return InvalidInput(f"the file is not a SQLite database. {where}")
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_ERROR | sqlite3.SQLITE_SCHEMA:
                return Corrupt(f"the database is damaged. {where}")
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return Unavailable(f"other writers hold the file. {where}")
            case sqlite3.SQLITE_FULL:
                return Unavailable(f"the disk is full. {where}")
            case sqlite3.SQLITE_READONLY:
                return Unavailable(f"the file cannot be written. {where}")
            case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
                return Unavailable(f"the file cannot be opened. {where}")
            case sqlite3.SQLITE_TOOBIG:
                return InvalidInput(f"a value is too large for SQLite. {where}")
        # A sync that fails during COMMIT leaves it open whether the pages reached the disk.
        return Unavailable(f"SQLite did not answer. {where}", outcome_known=not committing)


class _Busy(Exception):
    """It is not our turn yet; nothing has happened."""

    def __init__(self, cause: sqlite3.Error) -> None:
        self.cause = cause


def _despite_damage(conn: sqlite3.Connection, action: Callable[[sqlite3.Connection], T]) -> T:
    """Run an action; if text in its way is not UTF-8, again with such text passed through.

    It can only be damage, and must fail the checksum of its own row, not the whole listing.
    """
    try:
        return action(conn)
    except sqlite3.OperationalError as cause:
        if _primary(cause) != _NO_CODE:
            raise
    conn.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    try:
        return action(conn)
    finally:
        conn.text_factory = str


def _primary(cause: sqlite3.Error) -> int:
    # Errors of the Python module itself have no code: a connection closed under a call, say.
    return getattr(cause, "sqlite_errorcode", _NO_CODE) & 0xFF


def _roll_back(conn: sqlite3.Connection) -> None:
    if conn.in_transaction:
        try:
            conn.execute("ROLLBACK")
        except sqlite3.Error:
            # Still in a transaction: its user closes the connection, which rolls back as well.
            return


def _statements(script: str) -> list[str]:
    """Split a migration at the semicolons that end its statements."""
    statements, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return statements


def _create_private(path: str) -> None:
    """Create the file if it is missing, readable by its owner alone: states hold secrets."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise InvalidInput(f"the folder does not exist. folder=`{folder}`")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o600))
    except OSError as cause:
        raise Unavailable(f"the file cannot be opened. path=`{path}`") from cause


def _after_fork() -> None:
    for file in list(_open_files):
        file.abandon()


os.register_at_fork(after_in_child=_after_fork)
