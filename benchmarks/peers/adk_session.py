"""ADK's `SqliteSessionService`: the two events of a turn are appended to a log.

It keeps the log and the newest state, not the states: the turn counter is overwritten.
"""

import asyncio
from typing import Any

from google.adk.events import Event, EventActions
from google.adk.sessions.sqlite_session_service import (
    SqliteSessionService,
)
from google.genai import types

from benchmarks.peers.harness import Job, Message, Peer, drive, pragmas, sqlite_bytes

WHO = {"app_name": "app", "user_id": "user"}
ROLES = {"user": "user", "assistant": "model"}


class Events(Peer):
    """Two `append_event` a turn; the second carries the counter."""

    packages = ("google-adk",)

    def __init__(self, job: Job) -> None:
        self.path = f"{job.folder}/adk.db"
        self.runner = asyncio.Runner()
        self.reopen()
        self.session = self.runner.run(self.service.create_session(**WHO, session_id="session"))

    def reopen(self) -> None:
        """Begin with another object."""
        self.service = SqliteSessionService(self.path)

    def prepare(self, turn: int, new: list[Message]) -> None:
        """Make the events of a turn."""
        self.events = []
        for message in new:
            role = ROLES[message["role"]]
            content = types.Content(role=role, parts=[types.Part(text=message["content"])])
            more: Any = {"actions": EventActions(state_delta={"turn": turn})}
            extra = more if role == "model" else {}
            author = "user" if role == "user" else "agent"
            event = Event(author=author, invocation_id=f"e-{turn}", content=content, **extra)
            self.events.append(event)

    def save(self) -> None:
        """Append them."""
        for event in self.events:
            self.runner.run(self.service.append_event(self.session, event))

    def load(self) -> int:
        """Get the session with all its events."""
        found = self.runner.run(self.service.get_session(**WHO, session_id="session"))
        return len(found.events)

    def disk_bytes(self) -> int:
        """Return the file's size."""
        return sqlite_bytes(self.path)

    def durability(self) -> str:
        """Ask a connection that the service made; it makes a new one for each call."""
        return str(self.runner.run(self._asked()))

    async def _asked(self) -> str:
        answers = {}
        async with self.service._get_db_connection() as db:
            for name in ("journal_mode", "synchronous"):
                async with db.execute(f"PRAGMA {name}") as cursor:
                    answers[f"PRAGMA {name}"] = tuple(await cursor.fetchone())
        return pragmas(answers.__getitem__)

    def close(self) -> None:
        """Close the service."""
        self.runner.run(self.service.close())
        self.runner.close()


if __name__ == "__main__":
    drive(Events)
