"""The server that is measured, and its settings."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from uuid import uuid4

from psycopg import sql

from benchmarks.measuring import CONTENDED_S
from tests.servers.postgres import Postgres, one, start_postgres, with_option

SYNC_BYTES = 12 * 1024
SYNCS = 15


@contextmanager
def running(folder: Path) -> Iterator[Postgres]:
    """Run a server with its data below a folder, or take the one that the environment names."""
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        with start_postgres() as server:
            yield server
    finally:
        tempfile.tempdir = before


@contextmanager
def schema(server: Postgres) -> Iterator[str]:
    """Yield the name of a schema that does not exist yet; drop it in the end."""
    name = f"bench_{uuid4().hex[:12]}"
    yield name
    with server.connect() as connection:
        statement = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE")
        connection.execute(statement.format(sql.Identifier(name)))


@contextmanager
def place(server: Postgres) -> Iterator[str]:
    """Yield the URL of a store that does not exist yet; drop it in the end."""
    with schema(server) as name:
        yield with_option(server.url, "schema", name)


def facts(server: Postgres) -> Iterator[str]:
    """Yield what one must know of the server to read the figures."""
    with server.connect() as connection:

        def shown(name: str) -> Any:
            return one(connection, f"SHOW {name}")

        yield f"PostgreSQL {shown('server_version').split()[0]}"
        settings = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers")
        yield ", ".join(f"{name}={shown(name)}" for name in settings)


def sync_seconds(folder: Path) -> float:
    """Return what it takes to sync a small file now, in the median."""
    seconds = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(SYNCS):
            file.write(os.urandom(SYNC_BYTES))
            start = perf_counter()
            os.fsync(file.fileno())
            seconds.append(perf_counter() - start)
    return median(seconds)


def is_contended(seconds: float) -> bool:
    """Return whether the disk is slow or busy."""
    return seconds > CONTENDED_S
