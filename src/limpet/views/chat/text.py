"""The turns and parts of a chat as text on one line."""

import json
import re

from limpet.model import JSON
from limpet.views.chat.media import without_base64
from limpet.views.chat.model import Answer, Call, ChatTurn, Media, Part, Text
from limpet.views.format import clipped, size_text, visible

_LINE_CHARS_MAX = 500
_HEADING = re.compile(r"(?m)^ {0,3}#{1,6}[ \t]+")
_BOLD = re.compile(r"\*\*(?=\S)(.+?)(?<=\S)\*\*")


def turn_text(turn: ChatTurn) -> str:
    """Return what was said on one line, without the speaker; thoughts only if there is no more.

    The marks of headings and of bold text are left out. Of a call that a tool has answered, the
    result is shown.
    """
    parts = [_answer(part) for part in turn.parts] if turn.role == "tool" else turn.parts
    said = [part for part in parts if not (isinstance(part, Text) and part.thinking)]
    words = map(_part_text, said or parts)
    return clipped(" ".join(filter(None, words)), _LINE_CHARS_MAX)


def _answer(part: Part) -> Part:
    if isinstance(part, Call) and part.result is not None:
        return Answer(part.name, part.id, part.result)
    return part


def call_text(call: Call) -> str:
    """Return a call on one line: `search(query="x", limit=3)`."""
    if isinstance(call.arguments, dict):
        given = ", ".join(
            f"{visible(name)}={value_text(value)}" for name, value in call.arguments.items()
        )
    else:
        given = value_text(call.arguments)
    return f"{visible(call.name)}({given})"


def media_text(media: Media) -> str:
    """Return a file on one line: `image cat.png (image/png, 12.3 KiB)`."""
    facts = [visible(media.mime)] if media.mime else []
    facts += [] if media.size is None else [size_text(media.size)]
    words = [media.kind, media.name, media.url]
    name = " ".join(visible(word) for word in words if word)
    return f"{name} ({', '.join(facts)})" if facts else name


def value_text(value: JSON, *, indent: int | None = None) -> str:
    """Return a value as JSON; long base64 is replaced by its size."""
    text = json.dumps(without_base64(value), ensure_ascii=False, indent=indent)
    return "\n".join(map(visible, text.split("\n")))


def _part_text(part: Part) -> str:
    if isinstance(part, Text):
        # Cut first: a text may have megabytes.
        text = _BOLD.sub(r"\1", _HEADING.sub("", part.text[: 2 * _LINE_CHARS_MAX]))
        return visible(" ".join(text.split()))
    if isinstance(part, Media):
        return f"[{media_text(part)}]"
    if isinstance(part, Call):
        return f"▸ {call_text(part)}"
    if isinstance(part, Answer):
        result = " ".join(filter(None, map(_part_text, part.result.parts)))
        name = visible(part.name or part.id or "")
        return f"◂ {name} → {result}" if name and result else f"◂ {name}{result}"
    return value_text(part.value)
