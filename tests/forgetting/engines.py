"""How to open each engine, and how to read all the bytes that it stores without it."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from psycopg import sql

import limpet
from tests.servers.postgres import Connection, Postgres
from tests.servers.service import Service

Texts = Iterator[tuple[str, bytes]]
TABLES = ("scopes", "snapshots", "tails", "segments", "shared", "labels", "notes")


class Engine(Protocol):
    """An engine of which every stored byte can be read."""

    url: str

    def stored(self, store: limpet.Store) -> Texts:
        """Yield everything that is stored, decoded."""
        ...

    def raw(self, store: limpet.Store) -> Texts:
        """Yield the bytes of all files or objects, after what an administrator does."""
        ...


class InMemory:
    url = "memory:"

    def stored(self, store: limpet.Store) -> Texts:
        yield from ()  # what a store has in memory is looked at for all engines

    raw = stored


def _values(rows: Mapping[str, list[Any]]) -> Texts:
    """Yield each value of each row."""
    for table, found in rows.items():
        for value in (value for row in found for value in row):
            if isinstance(value, str | bytes):
                yield table, value.encode() if isinstance(value, str) else value


class Sqlite:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "agents.db"
        self.url = f"sqlite:///{self.path}?synchronous=off"

    def stored(self, store: limpet.Store) -> Texts:
        with closing(sqlite3.connect(self.path)) as db:
            rows = {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in TABLES}
        yield from _values(rows)

    def raw(self, store: limpet.Store) -> Texts:
        for path in (self.path, self.path.with_name("agents.db-wal")):
            if path.exists():
                yield path.name, path.read_bytes()


class Folder:
    def __init__(self, folder: Path, options: str = "") -> None:
        self.root = folder / "agents"
        self.url = f"file://{self.root}{options}"

    def stored(self, store: limpet.Store) -> Texts:
        for path in self.root.rglob("*"):
            yield str(path), str(path).encode()
            if path.is_file():
                yield str(path), path.read_bytes()

    raw = stored


class OnPostgres:
    def __init__(self, server: Postgres, url: str) -> None:
        self.url = url
        self._server = server
        self._schema = urlsplit(url).query.partition("schema=")[2]

    def stored(self, store: limpet.Store) -> Texts:
        with self._server.connect() as db:
            rows = {name: self._rows(db, name) for name in TABLES}
        yield from _values(rows)

    def _rows(self, db: Connection, table: str) -> list[Any]:
        return db.execute(sql.SQL("SELECT * FROM {}.{}").format(*self._names(table))).fetchall()

    def _names(self, table: str) -> list[sql.Identifier]:
        return [sql.Identifier(self._schema), sql.Identifier(table)]

    def analyze(self) -> None:
        with self._server.connect() as db:
            for table in TABLES:
                db.execute(sql.SQL("ANALYZE {}.{}").format(*self._names(table)))

    def raw(self, store: limpet.Store) -> Texts:
        with self._server.connect() as db:
            for table in TABLES:
                statement = sql.SQL("VACUUM (FULL, ANALYZE) {}.{}")
                db.execute(statement.format(*self._names(table)))
            db.execute("CHECKPOINT")
            files = """
                SELECT c.relname, pg_read_binary_file(pg_relation_filepath(c.oid)) FROM pg_class c
                 WHERE pg_relation_filepath(c.oid) IS NOT NULL AND (
                       c.relnamespace = %(schema)s::regnamespace
                    OR c.oid IN (SELECT t.reltoastrelid FROM pg_class t
                                  WHERE t.relnamespace = %(schema)s::regnamespace))"""
            yield from db.execute(files, {"schema": self._schema}).fetchall()
            statistics = "SELECT s::text FROM pg_stats s WHERE schemaname = %s"
            for (text,) in db.execute(statistics, [self._schema]).fetchall():
                yield "statistics", text.encode()


class OnS3:
    def __init__(self, service: Service, prefix: str) -> None:
        self.url = service.store_url(prefix)
        self._service, self._prefix = service, prefix

    def stored(self, store: limpet.Store) -> Texts:
        with closing(self._service.open(self._prefix)) as bucket:
            after = ""
            while listed := bucket.list("", after=after, limit=1000):
                for each in listed:
                    (found,) = bucket.get([each.key])
                    yield each.key, each.key.encode()
                    yield each.key, b"" if found is None else found.data
                after = listed[-1].key

    raw = stored
