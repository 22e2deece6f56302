"""Google ADK: `LimpetSessionService` against the `SqliteSessionService` that it brings along."""

from collections.abc import Callable
from pathlib import Path

from google.adk.events.event import Event
from google.adk.sessions import BaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from benchmarks.frameworks.side import Side, limpet_in
from limpet.compat.adk import LimpetSessionService

PACKAGE = "google-adk"
ABOUT = (
    "A turn is what the runner does: `get_session`, then `append_event` for the question and for "
    "the answer. Loading validates every event again, on both sides; at turn 200 that is most of "
    "the time."
)
_NAMES = {"app_name": "bench", "user_id": "alice"}


class Sessions(Side):
    def __init__(self, service: BaseSessionService, path: Path, *close: Callable[[], None]) -> None:
        super().__init__(f"`{type(service).__name__}`", path, *close)
        self.service = service
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


def ours(folder: Path) -> Side:
    path, store = limpet_in(folder)
    return Sessions(LimpetSessionService(store), path, store.close)


def theirs(folder: Path) -> Side:
    path = folder / "adk.db"
    return Sessions(SqliteSessionService(str(path)), path)
