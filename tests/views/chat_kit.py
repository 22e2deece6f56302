"""What the tests of chats share: a state as a chat, its parts, and a call with its result."""

from typing import Any

from limpet.views.chat import Call, Chat, Result, read_chat

PIXEL = "iVBORw0KGgo="  # eight bytes
LINK = f"data:image/png;base64,{PIXEL}"


def chat_of(state: Any, *, ends: bool = False) -> Chat:
    chat = read_chat(state, ends=ends)
    assert chat is not None
    return chat


def parts_of(state: Any) -> list[Any]:
    return [part for turn in chat_of(state).turns for part in turn.parts]


def done(name: str, given: Any, id: str | None, *parts: Any, is_error: bool = False) -> Call:
    return Call(name, given, id, Result(parts, is_error))
