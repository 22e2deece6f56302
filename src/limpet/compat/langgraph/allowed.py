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

from limpet.compat.langgraph import upstream
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
        upstream.DELTA_SNAPSHOT,
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
        more = Allowed(extra)
        more._classes = self._classes | more._classes
        more._names |= self._names
        return more

    def name_of(self, kind: type) -> str | None:
        """Return the name that a class is stored under; None if it is not allowed."""
        known = MESSAGE_NAMES.get(kind)
        if known is not None:
            return known
        name = _name_of(kind)
        if name in self._classes:
            return name if self._classes[name] is kind else None
        names = {(kind.__module__, kind.__qualname__), (kind.__module__, kind.__name__)}
        return name if names & self._names and "<locals>" not in name else None

    def class_of(self, name: Any) -> type:
        """Return the class of a name.

        Raises:
            InvalidInput: it is not allowed, or does not exist any more.
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
            raise not_allowed(name)
        try:
            found: Any = importlib.import_module(module)
            for part in qualname.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as cause:
            raise InvalidInput(
                f"the class of a stored value cannot be imported. class=`{name}`"
            ) from cause
        # An allowed name may mean something else by now.
        if not isinstance(found, type) or issubclass(found, type):
            raise InvalidInput(f"a stored value names something that is not a class. name=`{name}`")
        self._classes[name] = found
        return found

    def enum_of(self, name: Any) -> type[Enum]:
        found = self.class_of(name)
        if not issubclass(found, Enum):
            raise InvalidInput(f"a stored value names a class that is not an enum. class=`{name}`")
        return found


def not_allowed(name: str) -> InvalidInput:
    fact = "a stored value is of a class that is not allowed: list it in `allow`."
    return InvalidInput(f"{fact} class=`{name}`")


def _name_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


class ValueRules(NamedTuple):
    """How values are encoded. If `sealed`, all go through the serializer, which may encrypt."""

    serde: SerializerProtocol
    allowed: Allowed
    sealed: bool = False


def default_serde() -> JsonPlusSerializer:
    """Return LangGraph's serializer, allowed to make only the types that it considers safe."""
    return JsonPlusSerializer(allowed_msgpack_modules=None)


def safe_serde(serde: Any) -> Any:
    """Return a serializer that makes only objects of listed classes.

    By default LangGraph's own imports and calls whatever stored bytes name, and is replaced.

    Raises:
        InvalidInput: a subclass of LangGraph's serializer that allows all classes.
    """
    if serde is None:
        return default_serde()
    if not isinstance(serde, JsonPlusSerializer) or not upstream.allows_all(serde):
        return serde
    if type(serde) is not JsonPlusSerializer:
        raise InvalidInput(
            "the serializer allows every class: create it with allowed_msgpack_modules=[...]"
        )
    return default_serde()
