"""The content blocks of Strands, in TypeScript and in Python, and of Bedrock, where they come from.

A block is an object with one key, which says what it is: `{"toolUse": {...}}`.
"""

from limpet.model import JSON
from limpet.views._chat_media import read_media
from limpet.views._chat_parts import (
    Answer,
    Call,
    Fields,
    Media,
    Part,
    Result,
    Text,
    Value,
    Within,
    text_of,
)
from limpet.views._chat_rest import rest

_MEDIA = ("image", "document", "audio", "video")
KEYS = frozenset(
    {
        *_MEDIA,
        "toolUse",
        "toolResult",
        "reasoning",
        "reasoningContent",
        "json",
        "cachePoint",
        "guardContent",
        "citations",
        "citationsContent",
    }
)


def read_strands(key: str, value: JSON, within: Within) -> list[Part] | None:
    """Return the parts of one block, none for a mere marker; None if it is not such a block."""
    if key == "json":
        return [Value(value)]
    if not isinstance(value, dict):
        return None
    if key in _MEDIA:
        return _some(read_media(value, key))
    if key == "toolUse":
        return _call(value)
    if key == "toolResult":
        result = Result(within(value.get("content")), value.get("status") == "error")
        return [Answer(None, text_of(value, "toolUseId"), result)]
    if key == "cachePoint":
        return []
    if key == "guardContent":
        return _guard(value)
    if key in ("citations", "citationsContent"):
        return _cited(value)
    return _reasoning(value)


def _call(value: Fields) -> list[Part] | None:
    name = text_of(value, "name")
    if name is None:
        return None
    return [Call(name, value.get("input", {}), text_of(value, "toolUseId"))]


def _reasoning(value: Fields) -> list[Part] | None:
    said = value.get("reasoningText", value)
    if isinstance(said, dict) and isinstance(said.get("text"), str):
        return [Text(said["text"], thinking=True)]
    return [Text("(redacted)", thinking=True)] if "redactedContent" in value else None


def _guard(value: Fields) -> list[Part] | None:
    said, image = value.get("text"), value.get("image")
    if isinstance(said, dict) and isinstance(said.get("text"), str):
        return [Text(said["text"])]
    return _some(read_media(image, "image")) if isinstance(image, dict) else None


def _cited(value: Fields) -> list[Part] | None:
    content = value.get("content")
    if not isinstance(content, list):
        return None
    parts: list[Part] = []
    for each in content:
        said = each.get("text") if isinstance(each, dict) else None
        parts.append(Text(said) if isinstance(said, str) else Value(each))
    return [*parts, *rest(value, "content")] or None


def _some(media: Media | None) -> list[Part] | None:
    return None if media is None else [media]
