"""LangGraph's savers, called directly: one `put` a turn, with the whole list of messages.

Variants: `sqlite` and `postgres` with messages as in `MessagesState`, `sqlite-dicts` with plain
dicts, which are cheaper to serialize.
"""

import sqlite3
from contextlib import ExitStack, closing
from typing import Any
from uuid import UUID

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from benchmarks.peers.harness import Job, Message, Peer, drive, pragmas, sqlite_bytes

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
KINDS = {"user": HumanMessage, "assistant": AIMessage}


def message_of(new: Message, number: int) -> Any:
    """Return a message as a graph's state has it, with an id."""
    return KINDS[new["role"]](content=new["content"], id=str(UUID(int=number)))


class OnSaver(Peer):
    """Either saver, opened as its own documentation opens it."""

    def __init__(self, job: Job) -> None:
        self.path = f"{job.folder}/langgraph.db"
        self.postgres = job.variant.startswith("postgres")
        self.stack = ExitStack()
        saver: Any
        if self.postgres:
            saver = self.stack.enter_context(PostgresSaver.from_conn_string(job.dsn))
            saver.conn.execute("DROP SCHEMA public CASCADE")
            saver.conn.execute("CREATE SCHEMA public")
        else:
            conn = sqlite3.connect(self.path, check_same_thread=False)
            saver = SqliteSaver(self.stack.enter_context(closing(conn)))
        saver.setup()
        self.saver: Any = saver
        self.bytes = 0
        name = "postgres" if self.postgres else "sqlite"
        self.packages = ("langgraph", "langgraph-checkpoint", f"langgraph-checkpoint-{name}")

    def disk_bytes(self) -> int:
        """Return the file's size, or that of the three tables with their indexes."""
        if not self.postgres:
            return sqlite_bytes(self.path)
        if not self.saver.conn.closed:
            query = "SELECT pg_total_relation_size(%s::regclass) AS bytes"
            found = [self.saver.conn.execute(query, [table]).fetchone() for table in TABLES]
            self.bytes = sum(int(row["bytes"]) for row in found)
        return self.bytes

    def durability(self) -> str:
        """Return what the open connection says."""
        conn = self.saver.conn
        if not self.postgres:
            return pragmas(lambda statement: conn.execute(statement).fetchone())
        names = ("server_version", "fsync", "synchronous_commit")
        shown = {n: next(iter(conn.execute(f"SHOW {n}").fetchone().values())) for n in names}
        return (
            f"PostgreSQL {shown['server_version'].split()[0]}, fsync={shown['fsync']}, "
            f"synchronous_commit={shown['synchronous_commit']}"
        )

    def close(self) -> None:
        """Close the connection."""
        self.stack.close()


class Put(OnSaver):
    """One `put` a turn."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.plain = job.variant.endswith("dicts")
        self.config: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
        self.thread = self.config
        self.messages: list[Any] = []
        self.version: Any = None

    def prepare(self, turn: int, new: list[Message]) -> None:
        """Add the messages, as the reducer of a graph does."""
        start = len(self.messages)
        added = new if self.plain else [message_of(m, start + n) for n, m in enumerate(new)]
        self.messages = [*self.messages, *added]
        self.version = self.saver.get_next_version(self.version, None)
        self.checkpoint = empty_checkpoint()
        self.checkpoint["channel_values"] = {"turn": turn, "messages": self.messages}
        versions = {"turn": self.version, "messages": self.version}
        self.checkpoint["channel_versions"] = versions
        self.metadata = {"source": "loop", "step": turn, "parents": {}}

    def save(self) -> None:
        """Put the checkpoint."""
        versions = self.checkpoint["channel_versions"]
        self.config = self.saver.put(self.config, self.checkpoint, self.metadata, versions)

    def load(self) -> int:
        """Get the latest checkpoint."""
        found = self.saver.get_tuple(self.thread)
        return len(found.checkpoint["channel_values"]["messages"])


if __name__ == "__main__":
    drive(Put)
