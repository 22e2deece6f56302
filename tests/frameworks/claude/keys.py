"""Keys and entries as the SDK makes them."""

from typing import Any
from uuid import NAMESPACE_URL, uuid5

from claude_agent_sdk import project_key_for_directory

from limpet.compat.claude import LimpetClaudeStore

SESSION = "11111111-2222-4333-8444-555555555555"


def key(session_id: str = SESSION, **subpath: str) -> Any:
    """Return the key of a session of this folder, as the SDK's helpers look for it."""
    made: Any = {"project_key": project_key_for_directory(), "session_id": session_id}
    return {**made, **subpath}


def uuid(name: object) -> str:
    return str(uuid5(NAMESPACE_URL, str(name)))


def said(name: object, text: str, after: object | None = None, **more: Any) -> Any:
    """Return what the user (an even name) or the model says, after another entry."""
    role = "assistant" if isinstance(name, int) and name % 2 else "user"
    return {
        "type": role,
        "uuid": uuid(name),
        "parentUuid": None if after is None else uuid(after),
        "sessionId": SESSION,
        "timestamp": "2026-11-18T10:00:00.000Z",
        "isSidechain": False,
        "message": {"role": role, "content": text},
        **more,
    }


def talk(count: int) -> list[Any]:
    """Return a conversation: a question, an answer, a question."""
    return [said(n, f"text {n}", n - 1 if n else None) for n in range(count)]


async def uuids(sessions: LimpetClaudeStore, of: Any) -> list[str]:
    return [each["uuid"] for each in await sessions.load(of) or []]
