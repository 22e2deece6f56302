"""Events, and what the tests of the session service share."""

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models import BaseLlm, LlmResponse
from google.adk.sessions import BaseSessionService, Session
from google.genai import types

from tests.present import present

USER = "alice"


def event(delta: dict[str, Any] | None = None, text: str = "", **fields: Any) -> Event:
    """Return an event that changes the state, or says something."""
    content = types.Content(role="user", parts=[types.Part(text=text)]) if text else None
    given = {"author": "user", "invocation_id": "run-1", "content": content, **fields}
    return Event(**given, actions=EventActions(state_delta=delta or {}))


class Sessions:
    """The sessions of one app, by user and id."""

    def __init__(self, service: BaseSessionService, app_name: str) -> None:
        self.service = service
        self.app_name = app_name

    async def new(
        self, id: str | None = None, user: str = USER, state: dict[str, Any] | None = None
    ) -> Session:
        return await self.service.create_session(
            app_name=self.app_name, user_id=user, session_id=id, state=state
        )

    async def find(self, id: str, user: str = USER, **config: Any) -> Session | None:
        return await self.service.get_session(
            app_name=self.app_name, user_id=user, session_id=id, **config
        )

    async def get(self, session: Session | str, user: str = USER, **config: Any) -> Session:
        id = session if isinstance(session, str) else session.id
        return present(await self.find(id, user, **config))

    async def append(self, session: Session, event: Event) -> Event:
        return await self.service.append_event(session, event)

    async def change(self, session: Session, **delta: Any) -> Event:
        """Append an event that changes the state: `app__x=1` changes `app:x`."""
        named = {key.replace("__", ":"): value for key, value in delta.items()}
        return await self.append(session, event(named))

    async def listed(self, user: str | None = USER) -> list[Session]:
        found = await self.service.list_sessions(app_name=self.app_name, user_id=user)
        return list(found.sessions)

    async def delete(self, id: str, user: str = USER) -> None:
        await self.service.delete_session(app_name=self.app_name, user_id=user, session_id=id)

    async def user_state(self, user: str = USER) -> dict[str, Any]:
        return dict(await self.service.get_user_state(app_name=self.app_name, user_id=user))

    async def fork(self, id: str, at: str | None = None, to: str | None = None) -> Session:
        """Fork a session of our service."""
        service: Any = self.service
        return await service.fork_session(
            app_name=self.app_name, user_id=USER, session_id=id, at=at, new_session_id=to
        )


class Echo(BaseLlm):
    """A model that repeats what was said last, and how often somebody spoke so far."""

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        last = llm_request.contents[-1].parts[0].text
        said = types.Part(text=f"{last} ({len(llm_request.contents)})")
        yield LlmResponse(content=types.Content(role="model", parts=[said]))


def texts(events: list[Event]) -> list[str]:
    return [each.content.parts[0].text for each in events if each.content is not None]
