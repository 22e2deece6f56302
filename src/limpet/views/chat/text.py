"""The messages of a state as a chat, whatever framework wrote them, and its parts as text.

Known are the messages of Strands, Genkit, Gemini, Anthropic, OpenAI and LangGraph, of supervised
runs, and plain ones. What is not understood is kept as it is: no message makes this fail, and none
is lost, nor anything in it but what `_chat_rest.TECHNICAL` names.
"""

import json
from collections.abc import Iterator

from limpet.model import JSON
from limpet.views.chat.locate import find_messages, find_nodes
from limpet.views.chat.media import without_base64
from limpet.views.chat.model import (
    Answer,
    Call,
    Chat,
    Inner,
    Media,
    Part,
    Result,
    Text,
    Turn,
    Value,
)
from limpet.views.chat.reader import Reader
from limpet.views.chat.turns import News, chat_news, pair
from limpet.views.sizes import clipped, size_text, visible

__all__ = [
    "Answer",
    "Call",
    "Chat",
    "Inner",
    "Media",
    "News",
    "Part",
    "Result",
    "Text",
    "Turn",
    "Value",
    "beside",
    "call_text",
    "chat_news",
    "media_text",
    "read_chat",
    "turn_text",
    "value_text",
]

_LINE_CHARS_MAX = 500  # nobody reads more of a message on one line


def read_chat(state: JSON) -> Chat | None:
    """Return the messages of a state as a chat; None if there are no messages in it.

    Takes any JSON, in time that grows with its size. Of several agents that work together, what
    each gave is a turn under its name.
    """
    reader = Reader()
    place = find_messages(state)
    if place is not None:
        turns = [reader.read(each, index) for index, each in enumerate(place.messages)]
        prompt = None if place.prompt is None else reader.system(place.prompt)
        return Chat(reader.shape, place.path, pair([prompt, *turns] if prompt else turns))
    nodes = find_nodes(state)
    if nodes is None:
        return None
    turns = [reader.node(name, each, index) for index, (name, each) in enumerate(nodes.results)]
    if nodes.task:
        turns.insert(0, reader.read({"role": "user", "content": nodes.task}, -1))
    return Chat("strands", nodes.path, pair(turns))


def beside(state: JSON, chat: Chat) -> Iterator[tuple[str, JSON]]:
    """Yield what a state holds besides its chat, each with its keys: `state`, `values.mood`."""
    place = find_messages(state)
    keys = chat.path.split("/")[1:]
    shown = {keys[-1], None if place is None else place.prompt_key} if keys else set()
    at, above = state, ""
    for depth, key in enumerate(keys, start=1):
        hidden = shown if depth == len(keys) else {key}
        yield from ((above + name, value) for name, value in at.items() if name not in hidden)
        at, above = at[key], f"{above}{key}."


def turn_text(turn: Turn) -> str:
    """Return what was said in a turn on one line, without who said it, for a listing."""
    words = [_part_text(part) for part in turn.parts if not _is_thought(part)]
    words = words or [_part_text(part) for part in turn.parts]
    return clipped(" ".join(filter(None, words)), _LINE_CHARS_MAX)


def call_text(call: Call) -> str:
    """Return a call as people write it, on one line: `search(query="x", limit=3)`."""
    if isinstance(call.arguments, dict):
        given = ", ".join(
            f"{visible(name)}={value_text(value)}" for name, value in call.arguments.items()
        )
    else:
        given = value_text(call.arguments)
    return f"{visible(call.name)}({given})"


def media_text(media: Media) -> str:
    """Return the name of a file on one line: `image cat.png (image/png, 12.3 KiB)`."""
    facts = [visible(media.mime)] if media.mime else []
    facts += [] if media.size is None else [size_text(media.size)]
    words = [media.kind, media.name, media.url]
    name = " ".join(visible(word) for word in words if word)
    return f"{name} ({', '.join(facts)})" if facts else name


def value_text(value: JSON, *, indent: int | None = None) -> str:
    """Return a value as JSON, on one line or indented; base64 has given way to its size."""
    text = json.dumps(without_base64(value), ensure_ascii=False, indent=indent)
    return "\n".join(map(visible, text.split("\n")))


def _part_text(part: Part) -> str:
    if isinstance(part, Text):
        # The cut comes first: there is no need to look at all of a long text.
        return visible(" ".join(part.text[: 2 * _LINE_CHARS_MAX].split()))
    if isinstance(part, Media):
        return f"[{media_text(part)}]"
    if isinstance(part, Call):
        return f"▸ {call_text(part)}"
    if isinstance(part, Answer):
        return f"◂ {visible(part.name or part.id or '')} {_inner_text(part.result)}".strip()
    return value_text(part.value)


def _inner_text(result: Result) -> str:
    return " ".join(filter(None, map(_part_text, result.parts)))


def _is_thought(part: Part) -> bool:
    return isinstance(part, Text) and part.thinking
