"""Google ADK: `LimpetSessionService` against the `SqliteSessionService` that it brings along."""

from pathlib import Path

from google.adk.events.event import Event
from google.adk.sessions import BaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

import limpet
from benchmarks.frameworks.side import Side
from limpet.compat.adk import LimpetSessionService

PACKAGE = "google-adk"
ABOUT = (
    "A turn is what the runner does: `get_session`, then `append_event` for the question and for "
    "the answer. Loading validates every event again, on both sides; at turn 200 that is most of "
    "the time."
)
_NAMES = {"app_name": "bench", "user_id": "alice"}


class _Sessions(Side):
    def __init__(self, service: BaseSessionService, path: Path) -> None:
        self.service = service
        self._path = path
        self._is_new = True

    async def turn(self, question: str, answer: str) -> None:
        if self._is_new:
            await self.service.create_session(**_NAMES, session_id="s")
            self._is_new = False
        session = await self.service.get_session(**_NAMES, session_id="s")
        for author, text in (("user", question), ("agent", answer)):
            said = types.Content(
                role="user" if author == "user" else "model", parts=[types.Part(text=text)]
            )
            event = Event(author=author, invocation_id=Event.new_id(), content=said)
            await self.service.append_event(session, event)

    async def count(self) -> int:
        return len((await self.service.get_session(**_NAMES, session_id="s")).events)

    @property
    def path(self) -> Path:
        return self._path


class _Ours(_Sessions):
    title = "LimpetSessionService"

    async def close(self) -> None:
        await self.store.close()

    def __init__(self, path: Path) -> None:
        self.store = limpet.open_async(f"sqlite:///{path}")
        super().__init__(LimpetSessionService(self.store), path)


class _Theirs(_Sessions):
    title = "SqliteSessionService"

    async def close(self) -> None:
        await self.service.close()


def ours(folder: Path) -> Side:
    return _Ours(folder / "limpet.db")


def theirs(folder: Path) -> Side:
    path = folder / "adk.db"
    return _Theirs(SqliteSessionService(str(path)), path)
