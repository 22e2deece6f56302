"""Limpet, the floor, and the whole JSON in a row of plain SQLite.

Variants: `save`, `save-off` (without waiting for the disk) and `append` of Limpet; `floor`;
`json` and `orjson`, the whole state as a row.
"""

import json
import sqlite3
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import orjson

import limpet
from benchmarks.deltas.bare import floor_save
from benchmarks.peers.harness import Job, Message, Peer, drive, pragmas, sqlite_bytes
from benchmarks.saving import connect

connections: list[sqlite3.Connection] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "sqlite3.connect/handle":
        connections.append(arguments[0])


class Limpet(Peer):
    """`save` of the whole state, or `append` of what is new."""

    packages = ("limpet",)
    store: limpet.Store | None = None

    def __init__(self, job: Job) -> None:
        self.path = f"{job.folder}/limpet.db"
        self.appending = job.variant == "append"
        self.synchronous: Literal["off", "full"] = "off" if job.variant == "save-off" else "full"
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
        """Open the store again."""
        self.close()
        self.store = limpet.open(f"sqlite:///{self.path}", synchronous=self.synchronous)
        self.store.scope("another").info()
        self.scope = self.store.scope("session")

    def load(self) -> int:
        """Load the head."""
        found = self.scope.load()
        return 0 if found is None else len(found.state["messages"])

    def disk_bytes(self) -> int:
        """Return the file's size."""
        return sqlite_bytes(self.path)

    def durability(self) -> str:
        """Ask the engine's connection: the one of all those made here that is still open."""
        for conn in reversed(connections):
            with suppress(sqlite3.ProgrammingError):
                return pragmas(partial(_asked, conn))
        raise AssertionError("the engine has no open connection")

    def close(self) -> None:
        """Close the store."""
        if self.store is not None:
            self.store.close()


def _asked(conn: sqlite3.Connection, statement: str) -> Any:
    return conn.execute(statement).fetchone()


class Plain(Peer):
    """Plain SQLite: the floor, or the whole JSON per row."""

    packages = ("orjson",)

    def __init__(self, job: Job) -> None:
        self.path = f"{job.folder}/plain.db"
        self.variant = job.variant
        self.conn = connect(Path(self.path))
        self.messages: list[Any] = []

    def prepare(self, turn: int, new: list[Message]) -> None:
        """Make the next state, and the bytes of what is new in it."""
        self.messages = [*self.messages, *new]
        self.state = {"turn": turn, "messages": self.messages}
        self.changed = orjson.dumps({"turn": turn, "messages": new})

    def save(self) -> None:
        """Insert one row and commit."""
        if self.variant == "floor":
            floor_save(self.conn, self.state, self.changed)
            return
        text = json.dumps(self.state).encode() if self.variant == "json" else None
        body = orjson.dumps(self.state) if text is None else text
        self.conn.execute("BEGIN IMMEDIATE")
        self.conn.execute("INSERT INTO states (body) VALUES (?)", (body,))
        self.conn.execute("COMMIT")

    def load(self) -> int:
        """Read the newest row; the floor has no state to read, so it reads all that was put in."""
        if self.variant == "floor":
            rows = self.conn.execute("SELECT body FROM states ORDER BY pk").fetchall()
            return sum(len(orjson.loads(body)["messages"]) for (body,) in rows)
        query = "SELECT body FROM states ORDER BY pk DESC LIMIT 1"
        (body,) = self.conn.execute(query).fetchone()
        state = json.loads(body) if self.variant == "json" else orjson.loads(body)
        return len(state["messages"])

    def disk_bytes(self) -> int:
        """Return the file's size."""
        return sqlite_bytes(self.path)

    def durability(self) -> str:
        """Ask the connection."""
        return pragmas(partial(_asked, self.conn))

    def close(self) -> None:
        """Close the connection."""
        self.conn.close()


def make(job: Job) -> Peer:
    """Return the side that the variant names."""
    return Limpet(job) if job.variant in ("save", "save-off", "append") else Plain(job)


if __name__ == "__main__":
    sys.addaudithook(_watch)
    drive(make)
