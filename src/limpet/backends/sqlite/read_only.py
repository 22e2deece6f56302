"""A SQLite file that is only read: a backup, or a file on a read-only mount.

None of its bytes change. A file with a log (`-wal`) is in use, or its last user was killed: it is
read under SQLite's locks, which live in a file next to it. A file without one is opened as one that
nobody changes (`immutable`), which needs no lock and creates no file. SQLite would not notice
that another process does change it, so that is looked for after each transaction.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from limpet.backends.sqlite.file import SqliteFile, User
from limpet.backends.sqlite.in_place import Connection
from limpet.backends.sqlite.schema import check_file, is_ready
from limpet.backends.sqlite.transaction import SqliteTransaction
from limpet.errors import Corrupt, Unavailable, Unsupported

A = TypeVar("A")
T = TypeVar("T")


class FileChanged(Unavailable):
    """Another process changed a file while it was read as one that nobody changes."""


class ReadOnlyFile(SqliteFile):
    """A file of which each transaction has a connection of its own."""

    def write(self, action: Callable[[Connection, A], T], argument: A) -> T:
        raise self._refusal()

    def _make_ready(self) -> None:
        check_file(self._path)
        with self.transaction() as transaction:
            if is_ready(transaction.conn, self._path):
                return
        raise Unsupported(
            "the file was written by an older version of limpet: open it once without mode=ro, or "
            f"a copy of it. path=`{self._path}`"
        )

    @contextmanager
    def transaction(
        self, *, write: bool = False, several: bool = True, deadline_s: float | None = None
    ) -> Iterator[SqliteTransaction]:
        if write:
            raise self._refusal()
        before = self._unlogged()
        try:
            with super().transaction() as transaction:
                yield transaction
        except Corrupt:
            if before == self._unlogged():
                raise
        except Unavailable as cause:
            if before is not None or os.access(os.path.dirname(self._path), os.W_OK):
                raise
            raise Unavailable(
                "the file has a log (-wal), for which SQLite needs a folder that it can write to: "
                f"copy both of them to one. path=`{self._path}`"
            ) from cause
        if before is not None and before != self._unlogged():
            raise FileChanged(
                "another process changed the file while it was read: try again. "
                f"path=`{self._path}`"
            )

    def _refusal(self) -> Unsupported:
        return Unsupported(
            "the store is open for reading only (mode=ro), so nothing was written. "
            f"path=`{self._path}`"
        )

    def _unlogged(self) -> tuple[int, ...] | None:
        """Return what shows a change of a file without a log; None if there is a log."""
        log = _stat(self._path + "-wal")
        return None if log is not None and log.st_size else _facts(_stat(self._path))

    def _connect(self, busy_ms: int | None = None) -> Connection:
        conn = super()._connect(busy_ms)
        conn.execute("PRAGMA query_only = ON")
        if self._unlogged() is not None:
            conn.log = None  # an empty one, which others may remove
        return conn

    def _uri_options(self) -> str:
        return "mode=ro" if self._unlogged() is None else "mode=ro&immutable=1"

    def _give_back(self, user: User, conn: Connection) -> None:
        conn.close()  # another may be opened in the other way
        self._running.discard(user.ref)

    def version(self) -> tuple[int, int]:
        self.in_place.check()
        return hash(_facts(_stat(self._path))), hash(_facts(_stat(self._path + "-wal")))


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _facts(found: os.stat_result | None) -> tuple[int, ...]:
    return () if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)
