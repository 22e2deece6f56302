"""A file that is to replace another: filled next to it, then put in its place as a whole."""

import os
import sqlite3
from contextlib import closing

from limpet.backends.sqlite.errors import APPLICATION_ID
from limpet.errors import InvalidInput

# A store is in WAL mode. A file that was ended here is not, until it is opened to be written to.
_ENDED = b"\1\1" + APPLICATION_ID.to_bytes(4)


def begin(staged: str, path: str) -> None:
    """Let an empty file begin with what is in another, as one step."""
    if not os.path.exists(path):
        return
    if not os.path.isfile(path) or not _is_ended(path):
        raise InvalidInput(f"the file is no backup, so it is not replaced. path=`{path}`")
    with closing(sqlite3.connect(path)) as before, closing(sqlite3.connect(staged)) as conn:
        # Not the size of the file: what was killed here is undone by this query.
        if conn.execute("PRAGMA schema_version").fetchone() == (0,):
            before.backup(conn)


def _is_ended(path: str) -> bool:
    with open(path, "rb") as file:
        header = file.read(100)
    return not header or header[18:20] + header[68:72] == _ENDED


def end(staged: str, path: str) -> None:
    """Make one file of what was written, and put it in its place durably."""
    with closing(sqlite3.connect(staged)) as conn:
        conn.execute("PRAGMA journal_mode = DELETE")
    for name in (staged, os.path.dirname(path)):
        file = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
        if name == staged:
            os.replace(staged, path)
