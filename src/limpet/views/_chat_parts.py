"""What a chat consists of, whatever framework its messages came from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

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
