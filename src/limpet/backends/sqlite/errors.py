"""SQLite's errors as ours, chosen by code."""

import os
import sqlite3

from limpet.backends.support.located import SALVAGE
from limpet.errors import Corrupt, InvalidInput, LimpetError, Unavailable

APPLICATION_ID = 0x4C4D5054  # "LMPT", which `file` and others find in the header
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100

# Errors of the Python module itself have no code: text that is not UTF-8, say.
NO_CODE = sqlite3.SQLITE_INTERNAL

NOT_A_DATABASE = (
    f"the file is not a SQLite database: choose another path or, if it was a store, see {SALVAGE}"
)


def primary_code(cause: Exception) -> int:
    """Return SQLite's primary result code, without the details that it adds above eight bits."""
    return getattr(cause, "sqlite_errorcode", NO_CODE) & 0xFF


def is_busy(cause: Exception) -> bool:
    return primary_code(cause) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_full(error: Unavailable) -> bool:
    """Tell whether the disk is full."""
    cause = error.__cause__
    code = getattr(cause, "sqlite_errorcode", NO_CODE)
    return code & 0xFF == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE


def is_no_text(cause: BaseException | None) -> bool:
    """Tell whether a value, or what a message of SQLite's quotes from the schema, is not UTF-8."""
    is_without_code = not hasattr(cause, "sqlite_errorcode")
    is_value = isinstance(cause, sqlite3.OperationalError) and is_without_code
    return is_value or isinstance(cause, UnicodeDecodeError)


def translated(path: str, cause: Exception, *, committing: bool = False) -> LimpetError:
    """Return our error for SQLite's; `committing` if it came from the COMMIT itself."""
    if is_no_text(cause):
        return Corrupt(f"the database is damaged. path=`{path}`")
    if getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHMSIZE:
        # The index of the log takes 32 KiB.
        return Unavailable(f"the disk is full: open with mode=ro to read. path=`{path}`")
    where = f"path=`{path}` sqlite=`{getattr(cause, 'sqlite_errorname', 'unknown')}`"
    match primary_code(cause):
        case sqlite3.SQLITE_NOTADB if _was_database(path):
            return Corrupt(f"the header of the database is damaged. {where}")
        case sqlite3.SQLITE_NOTADB:
            return InvalidInput(f"{NOT_A_DATABASE}. {where}")
        case sqlite3.SQLITE_CORRUPT:
            # SQLite reports a sector that the disk cannot read in the same way.
            return Corrupt(f"the database is damaged, or the disk cannot read all of it. {where}")
        case sqlite3.SQLITE_ERROR | sqlite3.SQLITE_SCHEMA:
            return Corrupt(f"the database is damaged. {where}")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Unavailable(f"other writers hold the file. {where}")
        case sqlite3.SQLITE_FULL:
            return Unavailable(f"the disk is full. {where}")
        case sqlite3.SQLITE_READONLY:
            return Unavailable(
                f"the file is read-only: copy it to a folder that SQLite can write to. {where}"
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return Unavailable(f"{why_not_opened(path, cause)}. {where}")
        case sqlite3.SQLITE_TOOBIG:
            return InvalidInput(f"a value is too large for SQLite. {where}")
    # A sync that fails during COMMIT leaves it open whether the pages reached the disk.
    return Unavailable(f"SQLite did not answer. {where}", outcome_known=not committing)


def why_not_opened(path: str, cause: Exception) -> str:
    """Return why a file cannot be opened: SQLite does not say whether this user is allowed to."""
    effective = os.access in os.supports_effective_ids
    needed = ((path, os.R_OK), (os.path.dirname(path), os.W_OK | os.X_OK))
    is_allowed = all(os.access(each, mode, effective_ids=effective) for each, mode in needed)
    if is_allowed or isinstance(cause, FileNotFoundError):
        return "the file cannot be opened"
    return "permission denied: this user may not read the file, or not write to its folder"


def _was_database(path: str) -> bool:
    """Tell whether the header of a file still shows that it is a database, or ours."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        header = os.pread(fd, _HEADER_BYTES, 0)
    except OSError:
        return False
    # To close it would let go of the locks that SQLite has on it for others in this process.
    _kept_open.append(fd)
    return header.startswith(_MAGIC) or header[68:72] == APPLICATION_ID.to_bytes(4)


_kept_open: list[int] = []
