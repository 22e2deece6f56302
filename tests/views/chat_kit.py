"""What the tests of chats share: a state as a chat, and a chat as text."""

import json
from typing import Any

from limpet.views.chat import Answer, Call, Chat, Media, Part, Result, Text, read_chat

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


def told(state: Any, *, ends: bool = False) -> list[str]:
    """Return a line for each turn: `1 assistant ann: (thought) | text | f#id {"a": 1} -> 5`."""
    return [
        f"{turn.index} {' '.join(filter(None, (turn.role, turn.name)))}: "
        + " | ".join(map(shown, turn.parts))
        for turn in chat_of(state, ends=ends).turns
    ]


def said(*content: Any) -> str:
    """Return the parts of one message with this content."""
    (line,) = told([{"role": "assistant", "content": [*content]}])
    return line.removeprefix("0 assistant: ")


def shown(part: Part) -> str:
    match part:
        case Text(text, thinking):
            return f"({text})" if thinking else text
        case Media(kind, name, mime, size, url):
            return f"<{' '.join(str(each) for each in (kind, name, mime, size, url) if each)}>"
        case Call(name, arguments, id, result):
            return f"{name}#{id} {_json(arguments)}{'' if result is None else _result(result)}"
        case Answer(name, id, result):
            return f"{name}#{id}{_result(result)}"
    return f"={_json(part.value)}"


def _result(result: Result) -> str:
    mark = " ->! " if result.is_error else " -> "
    return mark + " + ".join(map(shown, result.parts))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
