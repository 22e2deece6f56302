"""Limpet on PostgreSQL. Variants: `save` and `append`."""

from typing import Any

import psycopg
from psycopg import sql

import limpet
from benchmarks.peers.harness import Job, Message, Peer, drive

SCHEMA = "limpet_bench"
BYTES = """
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
      FROM pg_class AS c
     WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r'
"""


class Limpet(Peer):
    """`save` of the whole state, or `append` of what is new."""

    packages = ("limpet", "psycopg")
    store: limpet.Store | None = None

    def __init__(self, job: Job) -> None:
        self.dsn = job.dsn
        self.appending = job.variant == "append"
        self.conn = psycopg.connect(job.dsn, autocommit=True)
        statement = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE")
        self.conn.execute(statement.format(sql.Identifier(SCHEMA)))
        self.reopen()
        self.messages: list[Any] = []

    def prepare(self, turn: int, new: list[Message]) -> None:
        """Make the next state, or keep what is appended."""
        self.messages = [*new] if self.appending else [*self.messages, *new]
        self.state: dict[str, Any] = {"turn": turn, "messages": self.messages}

    def save(self) -> None:
        """Save or append."""
        if self.appending:
            self.scope.append("messages", self.messages)
        else:
            self.scope.save(self.state)

    def reopen(self) -> None:
        """Open the store again, with a connection."""
        if self.store is not None:
            self.store.close()
        self.store = limpet.open(self.dsn, schema=SCHEMA)
        self.store.scope("another").info()
        self.scope = self.store.scope("session")

    def load(self) -> int:
        """Load the head."""
        found = self.scope.load()
        return 0 if found is None else len(found.state["messages"])

    def disk_bytes(self) -> int:
        """Return the size of all tables with their indexes and what is stored out of line."""
        row = self.conn.execute(BYTES, [SCHEMA]).fetchone()
        return 0 if row is None else int(row[0])

    def durability(self) -> str:
        """Ask the server."""
        names = ("server_version", "fsync", "synchronous_commit")
        shown = {}
        for name in names:
            (shown[name],) = self.conn.execute(f"SHOW {name}".encode()).fetchone() or ("",)
        return (
            f"PostgreSQL {shown['server_version'].split()[0]}, fsync={shown['fsync']}, "
            f"synchronous_commit={shown['synchronous_commit']}"
        )

    def close(self) -> None:
        """Close the store; the connection that asks for sizes stays."""
        if self.store is not None:
            self.store.close()


if __name__ == "__main__":
    drive(Limpet)
