"""Keys for tests, and what is stored in the tables of a SQL engine."""

import base64
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

ONE, TWO, THREE = (base64.b64encode(bytes([each]) * 32).decode() for each in (1, 2, 3))
TABLES = ("scopes", "snapshots", "tails", "segments", "shared", "labels", "notes")


def sqlite_values(path: Path) -> Iterator[bytes]:
    """Yield every value of every table, and the bytes of the files."""
    with closing(sqlite3.connect(path)) as conn:
        for table in TABLES:
            for row in conn.execute(f"SELECT * FROM {table}"):
                yield from map(_bytes, row)
    yield from (each.read_bytes() for each in path.parent.glob(f"{path.name}*"))


def postgres_values(conn: Any, schema: str) -> Iterator[bytes]:
    for table in TABLES:
        for row in conn.execute(f"SELECT * FROM {schema}.{table}").fetchall():
            yield from map(_bytes, row)


def _bytes(value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
