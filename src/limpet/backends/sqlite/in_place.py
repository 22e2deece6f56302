"""Whether the files of an open database are still those that its path leads to.

SQLite goes on with a file that was removed or replaced under it, with a log that was, and with
pages that were cut off: all of that would be lost, or is old. So it is checked before a
transaction is committed and before what was read is returned: one `stat` for each of the two files.
"""

import os
import sqlite3
from typing import TypeAlias

from limpet.errors import Unavailable

_WAL_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24

File: TypeAlias = tuple[int, int]  # device and inode


class Connection(sqlite3.Connection):
    """A connection, with the log that it writes to; None if it has none."""

    log_path = ""
    log: File | None = None

    def find_log(self, path: str) -> None:
        self.log_path = os.path.realpath(path) + "-wal"  # as SQLite names it
        found = stat_of(self.log_path)
        self.log = None if found is None else (found.st_dev, found.st_ino)

    def close(self) -> None:
        self.log = None
        super().close()


class InPlace:
    """The file that a path led to when the store was opened; without a path any will do."""

    def __init__(self, path: str = "") -> None:
        self._path = path
        found = stat_of(path)
        self._opened = None if found is None else (found.st_dev, found.st_ino)
        self._bytes = 0 if found is None else found.st_size

    def check(self, conn: Connection | None = None) -> None:
        """Raise Unavailable unless both files are there, and whole.

        The log is that of a connection: SQLite removes it with the last one that is closed.
        """
        if not self._path:
            return
        try:
            found = os.stat(self._path)
            if (found.st_dev, found.st_ino) != self._opened:
                raise self._error("replaced by another")
            if found.st_size < self._bytes and self._is_truncated(found.st_size):
                raise self._error("truncated")
            self._bytes = found.st_size
            if conn is not None and conn.log is not None:
                found = os.stat(conn.log_path)
                if (found.st_dev, found.st_ino) != conn.log:
                    # SQLite makes another one when connections are opened and closed at once.
                    conn.find_log(self._path)
        except (FileNotFoundError, NotADirectoryError) as cause:
            if conn is not None and cause.filename == conn.log_path:
                raise Unavailable(
                    "the log (-wal) of the database was removed while the store was open, so "
                    "nothing can be saved: close the store, which copies what was saved into the "
                    f"database, and open it again. path=`{self._path}`"
                ) from None
            raise self._error("removed or moved away") from None
        except OSError:
            return  # it is not known, as after a loss of rights

    def _error(self, what: str) -> Unavailable:
        return Unavailable(
            f"the database file was {what} while the store was open, so nothing can be saved: "
            f"put it back, or close the store and open it again. path=`{self._path}`"
        )

    def _is_truncated(self, size: int) -> bool:
        """Return whether a file that became smaller lacks pages.

        It becomes smaller when free pages are given back; what is added later may be in the log.
        """
        if size == 0:
            return True
        log = os.path.realpath(self._path) + "-wal"
        try:
            begin, page_bytes, pages, logged = _read_log(log)
            if all(page in logged for page in range(size // page_bytes + 1, pages + 1)):
                return False
            # Others may have copied the log to the file meanwhile, and begun to write it again:
            # then what was read is not of one moment, and the next check finds out.
            with open(log, "rb") as again:
                is_same = again.read(_WAL_HEADER_BYTES) == begin
                return is_same and os.path.getsize(self._path) == size
        except FileNotFoundError:
            return False


def _read_log(path: str) -> tuple[bytes, int, int, set[int]]:
    """Return the header of a log, the size of a page, how many there are, and which are in the log.

    https://www.sqlite.org/fileformat2.html#the_write_ahead_log. Without a commit in the log they
    are all in the database, and SQLite itself compares its size with the header.
    """
    logged: set[int] = set()
    pages = 0
    with open(path, "rb") as log:  # SQLite locks the other two files, never this one
        header = log.read(_WAL_HEADER_BYTES)
        page_bytes = int.from_bytes(header[8:12]) or 1
        while frame := log.read(_FRAME_HEADER_BYTES):
            if frame[8:16] != header[16:24]:
                break  # of an earlier use of the log
            logged.add(int.from_bytes(frame[:4]))
            pages = int.from_bytes(frame[4:8]) or pages
            log.seek(page_bytes, os.SEEK_CUR)
    return header, page_bytes, pages, logged


def stat_of(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
