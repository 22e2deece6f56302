"""The parts of Genkit's messages: objects in which one key says what they are."""

from limpet.model import JSON
from limpet.views._chat_media import media_at
from limpet.views._chat_parts import (
    Answer,
    Call,
    Fields,
    Part,
    Result,
    Text,
    Value,
    Within,
    text_of,
)

KEYS = frozenset(
    {"toolRequest", "toolResponse", "media", "reasoning", "data", "custom", "resource"}
)


def read_genkit(key: str, value: JSON, within: Within) -> list[Part] | None:
    """Return the parts that stand for one of Genkit's; None if it is not one of them."""
    if key in ("data", "custom"):
        return [Value(value)]
    if key == "reasoning":
        return [Text(value, thinking=True)] if isinstance(value, str) else None
    if not isinstance(value, dict):
        return None
    if key == "toolRequest":
        name = text_of(value, "name")
        return None if name is None else [Call(name, value.get("input", {}), _ref(value))]
    if key == "toolResponse":
        parts = (*within(value.get("output")), *within(value.get("content")))
        return [Answer(text_of(value, "name"), _ref(value), Result(parts))]
    url = text_of(value, "url", "uri")
    return None if url is None else [media_at(url, text_of(value, "contentType"))]


def _ref(value: Fields) -> str | None:
    return text_of(value, "ref")
