"""What Limpet is compared with: the floor of a save, and one whole compressed blob."""

import marshal
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import orjson
import zstandard

import limpet
from benchmarks.saving import connect, insert

LEVEL = 3
SESSION = "benchmark"


def url_of(path: Path) -> str:
    """Return the address of a database."""
    return f"sqlite:///{path}"


def floor_save(conn: sqlite3.Connection, state: Any, changed: bytes) -> None:
    """Do the minimum of a durable and exact save.

    Encode the state, look at the type of everything in it (`marshal` refuses what is not plain data
    and is the cheapest that does), store the changed bytes in one row, and wait for the disk.
    """
    orjson.dumps(state)
    marshal.dumps(state, 4)
    insert(conn, changed)


def file_bytes(path: Path) -> int:
    """Return the bytes of a database that was closed."""
    files = (path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm"))
    return sum(os.path.getsize(each) for each in files if each.exists())


def page_bytes(conn: sqlite3.Connection) -> int:
    """Return the bytes of an open database as of its last commit, wherever they are by now."""
    (count,) = conn.execute("PRAGMA page_count").fetchone()
    (size,) = conn.execute("PRAGMA page_size").fetchone()
    return int(count) * int(size)


def used_bytes(conn: sqlite3.Connection) -> int:
    """Return the bytes of the pages of an open database that hold something."""
    (free,) = conn.execute("PRAGMA freelist_count").fetchone()
    (size,) = conn.execute("PRAGMA page_size").fetchone()
    return page_bytes(conn) - int(free) * int(size)


def write_blob(path: Path, state: Any) -> None:
    """Store a state as one whole compressed row."""
    body = zstandard.ZstdCompressor(level=LEVEL).compress(orjson.dumps(state))
    with closing(connect(path)) as conn:
        insert(conn, body)


@contextmanager
def opened_blob(path: Path) -> Iterator[Callable[[], Any]]:
    """Open the file of a blob; give the call that reads and parses it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("SELECT count(*) FROM states WHERE pk < 0").fetchone()

        def read() -> Any:
            (body,) = conn.execute("SELECT body FROM states WHERE pk = 1").fetchone()
            return orjson.loads(zstandard.ZstdDecompressor().decompress(body))

        yield read


@contextmanager
def opened_scope(path: Path, session: str = SESSION) -> Iterator[limpet.Scope]:
    """Open a store again: nothing of the scope is cached, but the file is open and in use."""
    with limpet.open(url_of(path)) as store:
        store.scope("another").info()
        yield store.scope(session)
