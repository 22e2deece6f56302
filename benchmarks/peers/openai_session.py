"""OpenAI Agents' `SQLiteSession`: the two items of a turn are added to a log.

It keeps the log, not its states: no turn counter, no snapshot of an earlier moment, no branch.
"""

import asyncio
from typing import Any

from agents import SQLiteSession

from benchmarks.peers.harness import Job, Message, Peer, drive, pragmas, sqlite_bytes


class Log(Peer):
    """One `add_items` of two items a turn."""

    packages = ("openai-agents",)

    def __init__(self, job: Job) -> None:
        self.path = f"{job.folder}/openai.db"
        self.session = SQLiteSession("session", self.path)
        self.runner = asyncio.Runner()

    def prepare(self, turn: int, new: list[Message]) -> None:
        """Keep the items until they are added."""
        self.items: list[Any] = list(new)

    def save(self) -> None:
        """Add the items."""
        self.runner.run(self.session.add_items(self.items))

    def reopen(self) -> None:
        """Begin with another object."""
        self.session.close()
        self.session = SQLiteSession("session", self.path)

    def load(self) -> int:
        """Get all items."""
        return len(self.runner.run(self.session.get_items()))

    def disk_bytes(self) -> int:
        """Return the file's size."""
        return sqlite_bytes(self.path)

    def durability(self) -> str:
        """Ask a connection that the session made."""
        with self.session._locked_connection() as conn:
            return pragmas(lambda statement: conn.execute(statement).fetchone())

    def close(self) -> None:
        """Close the session."""
        self.session.close()
        self.runner.close()


if __name__ == "__main__":
    drive(Log)
