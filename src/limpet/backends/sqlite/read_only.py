"""A SQLite file that is only read: a backup, or a file on a read-only mount.

None of its bytes change. A file with a log (`-wal`) is in use, or its last user was killed: it is
read under SQLite's locks, which live in a file next to it. A file without one is opened as one that
nobody changes (`immutable`), which needs no lock and creates no file. SQLite would not notice
that another process does change it, so that is looked for after each transaction.
"""

import os
from collections.abc import Callable
from typing import Any, TypeVar

from limpet.backends.sqlite.file import SqliteFile, User
from limpet.backends.sqlite.in_place import Connection, stat_of
from limpet.backends.sqlite.schema import check_file, is_ready
from limpet.backends.sqlite.transaction import READ, WRITE
from limpet.errors import Corrupt, Unavailable, Unsupported

A = TypeVar("A")
T = TypeVar("T")

_READS_MAX = 10


class ReadOnlyFile(SqliteFile):
    """A file of which each transaction has a connection of its own."""

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

    def _give_back(self, user: User, conn: Connection) -> None:
        conn.close()  # another may be opened in the other way
        self._running.discard(user.ref)

    def version(self) -> tuple[int, int]:
        self.in_place.check()
        return hash(_facts(stat_of(self._path))), hash(_facts(stat_of(self._path + "-wal")))


def _facts(found: os.stat_result | None) -> tuple[int, ...]:
    return () if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)
