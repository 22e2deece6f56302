"""What a chat consists of, whatever framework its messages came from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from limpet.model import JSON


@dataclass(frozen=True, slots=True)
class Text:
    """Something that was said, or only thought."""

    text: str
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class Media:
    """An image, document, audio, video or other file, named and never shown.

    `size` is the number of its bytes if they stand in the state, else None. `url` is where it is
    if it is only a link; it is never one that holds the bytes.
    """

    kind: str
    name: str | None
    mime: str | None
    size: int | None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """A part that no shape knows, or JSON that a tool gave: shown as it is, never lost."""

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    value: JSON


Inner: TypeAlias = Text | Media | Value


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool gave."""

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    parts: tuple[Inner, ...]
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool, with its result if that stands later in the list."""

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    name: str
    arguments: JSON
    id: str | None
    result: Result | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A result whose call is not in the list, or stands after it."""

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    name: str | None
    id: str | None
    result: Result


Part: TypeAlias = Text | Media | Call | Answer | Value


@dataclass(frozen=True, slots=True)
class Turn:
    """What somebody said at once.

    `role` is system, user, assistant or tool, or what the message says, or `message` if it says
    nothing. `index` is its place in the list; -1 for a system prompt that stands beside it.
    """

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    role: str
    name: str | None
    parts: tuple[Part, ...]
    index: int


@dataclass(frozen=True, slots=True)
class Chat:
    """The messages of a state. A turn that held only results of calls above it is left out.

    `shape` is strands, genkit, gemini, anthropic, openai, langgraph or plain. `path` is the JSON
    Pointer of the list of messages.
    """

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    shape: str
    path: str
    turns: tuple[Turn, ...]


Fields: TypeAlias = Mapping[str, Any]
Within: TypeAlias = Callable[[JSON], tuple[Inner, ...]]
"""Reads what stands inside a result."""


def text_of(fields: Fields, *names: str) -> str | None:
    """Return the first of the fields that is text and not empty, or None."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value:
            return value
    return None


# What a message holds that no shape knows: it is kept, unless it is only for programs.

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
"""Members of messages and of their blocks that are for programs only."""

TECHNICAL: Final = SEALS | {
    # What it is called and where it stands.
    *("id", "uuid", "message_id", "messageId", "trackingId", "tracking_id"),
    *("type", "object", "role", "index"),
    # When it was said.
    *("timestamp", "created", "created_at", "createdAt", "updated_at", "updatedAt"),
    # What the model used and why it stopped.
    *("model", "usage", "usage_metadata", "usageMetadata", "response_metadata"),
    *("stop_reason", "stopReason", "stop_sequence", "finish_reason", "finishReason"),
    # LangChain's marks, and the pieces of calls that it keeps beside the calls.
    *("$message", "$message+", "example", "chunk_position", "tool_call_chunks"),
    *("__openai_function_call_ids__", "__gemini_function_call_thought_signatures__"),
}
"""All members of a message that are never shown. Whatever else is in it is."""

_ORDINARY = ("completed", "success")  # a `status` that says that there is nothing to say


def rest(fields: Fields, *known: str) -> list[Value]:
    """Return the members that are neither known nor technical nor empty, as one value if any."""
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
