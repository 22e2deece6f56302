"""Creating the tables of a SQLite file, or checking and migrating them."""

import os
import sqlite3
import stat
from contextlib import closing, suppress

from limpet.backends.sql import transaction
from limpet.backends.sqlite.errors import APPLICATION_ID, NOT_A_DATABASE, is_busy, why_not_opened
from limpet.errors import InvalidInput, Unavailable, Unsupported

VERSION_MIN = (3, 37, 0)  # STRICT tables

MIGRATIONS = transaction.migrations_of("sqlite")
OLDEST, NEWEST = MIGRATIONS[0].version, MIGRATIONS[-1].version

_HEADER_BYTES = 100
_TRIES_MAX = 1_000


def create_private(path: str) -> None:
    """Create the file if it is missing, readable by its owner alone: states hold secrets.

    One thread at a time.
    """
    if sqlite3.sqlite_version_info < VERSION_MIN:
        raise Unsupported(f"SQLite is too old. found=`{sqlite3.sqlite_version}` min=`3.37`")
    folder = os.path.dirname(path) or "."  # without pathlib, which takes some ms to import
    if not os.path.isdir(folder):
        raise InvalidInput(f"the folder does not exist: create it first. folder=`{folder}`")
    if os.path.isdir(path):
        raise InvalidInput(f"the path is a folder. path=`{path}`")
    try:
        # A file that is there is never opened here: to close it would let go of the locks that
        # SQLite holds on it for other connections of this process.
        if not os.path.exists(path):
            target = os.path.realpath(path)  # a link may name what is yet to be made
            with suppress(FileExistsError):
                os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as cause:
        raise Unavailable(f"{why_not_opened(path, cause)}. path=`{path}`") from cause
    check_file(path)


def check_file(path: str) -> None:
    """Raise unless there is a file that may be a database."""
    try:
        found = os.stat(path)
    except OSError as cause:
        raise Unavailable(f"{why_not_opened(path, cause)}. path=`{path}`") from cause
    # SQLite takes a file of a few bytes for an empty one, and would write over it.
    if not stat.S_ISREG(found.st_mode) or 0 < found.st_size < _HEADER_BYTES:
        raise InvalidInput(f"{NOT_A_DATABASE}. path=`{path}`")


def make_ready(conn: sqlite3.Connection, path: str) -> None:
    """Create the tables in an empty file, or check that the file is ours and migrate it.

    Any number of processes may do this at once.
    """
    for _ in range(_TRIES_MAX):
        conn.execute("BEGIN")  # facts of one moment: others may be making it ready right now
        try:
            ready = is_ready(conn, path)
        finally:
            conn.execute("ROLLBACK")
        if ready:
            conn.execute("PRAGMA journal_mode = WAL")  # it may be a backup
            return
        try:
            _migrate(conn, path)
        except sqlite3.OperationalError as cause:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            if not is_busy(cause):
                raise
            # Another process does the same. A change of the journal mode does not wait for the
            # lock, but a transaction does.
            conn.execute("BEGIN IMMEDIATE")
            conn.execute("ROLLBACK")
    raise Unavailable(f"other processes kept the file from being migrated. path=`{path}`")


def is_store(path: str) -> bool:
    """Return whether a file is a store."""
    with suppress(OSError), open(path, "rb") as file:
        if file.read(_HEADER_BYTES)[68:72] == APPLICATION_ID.to_bytes(4):
            return True
    # A new store has its mark in the log only, as long as another process has it open.
    with suppress(sqlite3.Error):
        from pathlib import Path

        uri = f"{Path(path).absolute().as_uri()}?mode=ro"
        if os.path.exists(f"{path}-wal"):
            with closing(sqlite3.connect(uri, uri=True)) as conn:
                (application,) = conn.execute("PRAGMA application_id").fetchone()
                return bool(application == APPLICATION_ID)
    return False


def is_ready(conn: sqlite3.Connection, path: str) -> bool:
    """Return whether the tables are up to date; raise if the file is not ours."""
    (application,) = conn.execute("PRAGMA application_id").fetchone()
    (version,) = conn.execute("PRAGMA user_version").fetchone()
    (tables,) = conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and (tables or application or version):
        raise InvalidInput(f"the file is a database of another program. path=`{path}`")
    if version > NEWEST:
        raise upgraded(path, version)
    if 0 < version < OLDEST:
        raise Unsupported(
            "the store was made by a version before the first release, in another format: export "
            f"it with that version, and import it here. path=`{path}` found=`{version}`"
        )
    return bool(version == NEWEST)


def upgraded(path: str, version: int) -> Unsupported:
    return transaction.upgraded(f"path=`{path}` found=`{version}` known=`{NEWEST}`")


def _migrate(conn: sqlite3.Connection, path: str) -> None:
    # The order matters: auto_vacuum cannot be chosen once the first page is written.
    conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
    (mode,) = conn.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise Unsupported(f"the file system cannot do SQLite's WAL mode. path=`{path}`")
    conn.execute("BEGIN IMMEDIATE")
    (version,) = conn.execute("PRAGMA user_version").fetchone()
    for each in MIGRATIONS:
        if each.version > version:
            for statement in _statements(each.sql):
                conn.execute(statement)
            conn.execute("INSERT INTO schema_migrations (version, name) VALUES (?, ?)", each[:2])
            conn.execute(f"PRAGMA user_version = {each.version:d}")
    conn.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
    conn.execute("COMMIT")


def _statements(script: str) -> list[str]:
    transaction, pending = [], ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            transaction.append(pending)
            pending = ""
    return transaction
