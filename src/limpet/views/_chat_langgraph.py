"""LangChain's messages, as LangGraph keeps them, in their three forms of JSON."""

from typing import NamedTuple

from limpet.model import JSON
from limpet.views._chat_parts import Fields, text_of

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "chat": "chat",
}


class Unwrapped(NamedTuple):
    """A message of LangChain's: who said it, and its fields."""

    role: str
    fields: Fields


def unwrap(message: Fields) -> Unwrapped | None:
    """Return what a message of LangChain's holds, in whichever form it is; None if it is none.

    The forms: `{"type": "human", "content": ...}`, `{"type": "human", "data": {...}}` and
    `{"lc": 1, "type": "constructor", "id": [..., "HumanMessage"], "kwargs": {...}}`.
    """
    fields: JSON = message
    if "lc" in message:
        kind, fields = _class_of(message.get("id")), message.get("kwargs")
    else:
        kind = text_of(message, "type")
        if "role" in message:
            return None
        if "content" not in message:
            fields = message.get("data")
    role = _role(kind or "")
    if role is None or not isinstance(fields, dict) or "content" not in fields:
        return None
    return Unwrapped(text_of(fields, "role") or role if role == "chat" else role, fields)


def _class_of(id: JSON) -> str | None:
    last = id[-1] if isinstance(id, list) and id else None
    return last if isinstance(last, str) else None


def _role(kind: str) -> str | None:
    """Return the role that the name of a type or of a class stands for."""
    return _ROLES.get(kind.removesuffix("Chunk").removesuffix("Message").lower())
