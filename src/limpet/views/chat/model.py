"""The model of a chat: turns and their parts, and what of a message is never shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from limpet.model import JSON


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class Media:
    """An image, document, audio, video or other file.

    `size` is the number of its bytes if the state holds them. `url` is set if it is only a link; it
    is never a `data:` URL.
    """

    kind: str
    name: str | None
    mime: str | None
    size: int | None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """An unknown part, or the JSON result of a tool: shown as it is."""

    value: JSON


Inner: TypeAlias = Text | Media | Value


@dataclass(frozen=True, slots=True)
class Result:
    parts: tuple[Inner, ...]
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call, with its result if a later message has it."""

    name: str
    arguments: JSON
    id: str | None
    result: Result | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A tool result whose call is not among the messages before it."""

    name: str | None
    id: str | None
    result: Result


Part: TypeAlias = Text | Media | Call | Answer | Value


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One message.

    `role` is system, user, assistant or tool, another role that the message names, or `message` if
    it names none. `index` is its position in the list; -1 for a system prompt outside it.
    """

    role: str
    name: str | None
    parts: tuple[Part, ...]
    index: int


@dataclass(frozen=True, slots=True)
class Chat:
    """The messages of a state. A turn that held only results of earlier calls is left out.

    `path` is the JSON Pointer of the list of messages. `last` is what the last message says: the
    results of tools, if it has only those, else the last turn.
    """

    path: str
    turns: tuple[ChatTurn, ...]
    last: ChatTurn | None = field(default=None, compare=False)


Fields: TypeAlias = Mapping[str, Any]


def text_of(fields: Fields, *names: str) -> str | None:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value:
            return value
    return None


SEALS: Final = frozenset(
    {
        "metadata",
        "cache_control",
        "signature",
        "thoughtSignature",
        "thought_signature",
        "encrypted_content",
    }
)
"""Members of messages and of their blocks that only programs read."""

TECHNICAL: Final = SEALS | {
    # Name and position.
    *("id", "uuid", "message_id", "messageId", "trackingId", "tracking_id"),
    *("type", "object", "role", "index"),
    # Times.
    *("timestamp", "created", "created_at", "createdAt", "updated_at", "updatedAt"),
    # Usage, and why the model stopped.
    *("model", "usage", "usage_metadata", "usageMetadata", "response_metadata"),
    *("stop_reason", "stopReason", "stop_sequence", "finish_reason", "finishReason"),
    # Internals of LangChain.
    *("$message", "$message+", "example", "chunk_position", "tool_call_chunks"),
    *("__openai_function_call_ids__", "__gemini_function_call_thought_signatures__"),
}
"""All members of a message that are never shown."""

_ORDINARY = ("completed", "success")  # values of `status` that say nothing


def rest(fields: Fields, *known: str) -> list[Value]:
    """Return the members that are not known, technical or empty, as at most one value."""
    left = {
        name: value
        for name, value in fields.items()
        if name not in known and name not in TECHNICAL and not _is_empty(name, value)
    }
    return [Value(left)] if left else []


def _is_empty(name: str, value: object) -> bool:
    if isinstance(value, str) and name == "status" and value in _ORDINARY:
        return True
    return value is None or (isinstance(value, str | list | dict) and not value)
