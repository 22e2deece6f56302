"""Which classes a stored value may name. Nothing else is ever imported, made or called.

The messages and documents of langchain-core and the types of LangGraph are always allowed. Classes
of the caller's own are allowed by being listed.
"""

import importlib
from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from langchain_core import messages
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from limpet.errors import InvalidInput

Allow: TypeAlias = Iterable[type | tuple[str, ...]]
"""Classes, or their modules and names."""

_MESSAGES = (
    "AIMessage",
    "AIMessageChunk",
    "ChatMessage",
    "ChatMessageChunk",
    "FunctionMessage",
    "FunctionMessageChunk",
    "HumanMessage",
    "HumanMessageChunk",
    "RemoveMessage",
    "SystemMessage",
    "SystemMessageChunk",
    "ToolMessage",
    "ToolMessageChunk",
)

MESSAGES: dict[str, type[BaseMessage]] = {name: getattr(messages, name) for name in _MESSAGES}
MESSAGE_NAMES: dict[type, str] = {each: name for name, each in MESSAGES.items()}

_ALWAYS: frozenset[tuple[str, str]] = frozenset(
    {
        ("langchain_core.documents.base", "Document"),
        ("langgraph.checkpoint.serde.types", "_DeltaSnapshot"),
        ("langgraph.store.base", "GetOp"),
        ("langgraph.store.base", "Item"),
        ("langgraph.types", "Command"),
        ("langgraph.types", "Interrupt"),
        ("langgraph.types", "Overwrite"),
        ("langgraph.types", "PregelTask"),
        ("langgraph.types", "Send"),
        ("langgraph.types", "StateSnapshot"),
        ("langgraph.types", "TimeoutPolicy"),
    }
)


class Allowed:
    """An allow-list: from classes to the names they are stored under, and back."""

    def __init__(self, extra: Allow = ()) -> None:
        self._names = set(_ALWAYS)
        self._classes: dict[str, type] = {}
        self._add(extra)

    def _add(self, extra: Allow) -> None:
        for each in extra:
            if isinstance(each, type):
                self._classes[_name_of(each)] = each
                self._names.add((each.__module__, each.__qualname__))
            elif isinstance(each, tuple) and len(each) == 2 and {str}.issuperset(map(type, each)):
                self._names.add((each[0], each[1]))
            else:
                kind = type(each).__name__
                raise InvalidInput(f"allow takes classes, or (module, name). type=`{kind}`")

    def with_(self, extra: Allow) -> "Allowed":
        """Return a list that allows these, too; the same one if it does already."""
        extra = list(extra)
        more = Allowed(extra)
        more._classes = self._classes | more._classes
        more._names |= self._names
        same = more._names == self._names and more._classes == self._classes
        return self if same else more

    def name_of(self, kind: type) -> str | None:
        """Return the name that a class is stored under; None if it is not allowed."""
        known = MESSAGE_NAMES.get(kind)
        if known is not None:
            return known
        name = _name_of(kind)
        if name in self._classes:
            return name if self._classes[name] is kind else None
        module = kind.__module__
        listed = (module, kind.__qualname__) in self._names or (
            module,
            kind.__name__,
        ) in self._names
        return name if listed and "<locals>" not in name else None

    def class_of(self, name: Any) -> type:
        """Return the class of a name.

        Raises:
            InvalidInput: it is not allowed, or is there no more.
        """
        known = MESSAGES.get(name) if isinstance(name, str) else None
        if known is not None:
            return known
        if isinstance(name, str) and name in self._classes:
            return self._classes[name]
        return self._found(str(name))

    def _found(self, name: str) -> type:
        module, _, qualname = name.partition(":")
        listed = {(module, qualname), (module, qualname.rpartition(".")[2])} & self._names
        if not listed or not qualname:
            raise InvalidInput(f"a stored value is of a class that is not allowed. class=`{name}`")
        try:
            found: Any = importlib.import_module(module)
            for part in qualname.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as cause:
            raise InvalidInput(f"the class of a stored value is gone. class=`{name}`") from cause
        # What an allowed name stands for may be something else by now.
        if not isinstance(found, type) or issubclass(found, type):
            raise InvalidInput(f"a stored value names what is no class. class=`{name}`")
        self._classes[name] = found
        return found

    def enum_of(self, name: Any) -> type[Enum]:
        """Return the enum of a name, as `class_of`."""
        found = self.class_of(name)
        if not issubclass(found, Enum):
            raise InvalidInput(f"a stored value names what is no enum. class=`{name}`")
        return found


def _name_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


class Shape(NamedTuple):
    """How values are written: with which serializer, and which classes are allowed.

    `sealed` says that every value goes through the serializer, since it may encrypt.
    """

    serde: SerializerProtocol
    allowed: Allowed
    sealed: bool = False


def default_serde() -> JsonPlusSerializer:
    """Return LangGraph's serializer, which may not make anything but what is harmless."""
    return JsonPlusSerializer(allowed_msgpack_modules=None)


def strict_serde(serde: Any) -> Any:
    """Return a serializer that makes nothing of what stored bytes name, but what is listed.

    LangGraph's own makes everything unless it is told otherwise: then it is told.

    Raises:
        InvalidInput: it is derived from LangGraph's, and makes everything.
    """
    if serde is None:
        return default_serde()
    makes_all = getattr(serde, "_allowed_msgpack_modules", None) is True
    if not isinstance(serde, JsonPlusSerializer) or not makes_all:
        return serde
    if type(serde) is not JsonPlusSerializer:
        raise InvalidInput(
            "the serializer makes whatever is named: give it allowed_msgpack_modules"
        )
    return default_serde()
