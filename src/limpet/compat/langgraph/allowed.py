"""Which classes a stored value may name. Nothing else is ever imported, made or called.

The messages and documents of langchain-core and the types of LangGraph are always allowed. Classes
of the caller's own are allowed by being listed, or by a schema that refers to them.
"""

import importlib
import sys
from collections.abc import Iterable
from operator import attrgetter
from types import UnionType
from typing import Any, NamedTuple, TypeAlias

from langchain_core import messages
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from typing_extensions import is_typeddict

from limpet.compat.langgraph import schemas, upstream
from limpet.compat.langgraph.objects import shown, walk
from limpet.errors import InvalidInput

_Item: TypeAlias = type | UnionType | tuple[str, ...]
Allow: TypeAlias = type | UnionType | Iterable[_Item]
"""A class or another type such as `list[Order]`, or several of them and of (module, name)."""

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

_SEARCHED_MAX = 10_000  # values

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


def items_of(allow: Allow) -> list[Any]:
    """Return what `allow` lists; one type is a list of one."""
    if schemas.is_schema(allow):  # before it is iterated: an enum or `list[Order]` can be, too
        return [allow]
    found = list(allow) if isinstance(allow, Iterable) and not isinstance(allow, str) else [allow]
    for each in found:
        is_name = isinstance(each, tuple) and len(each) == 2 and {str}.issuperset(map(type, each))
        if not is_name and not schemas.is_schema(each):
            kind = type(each).__name__
            raise InvalidInput(f"allow takes classes, schemas, or (module, name). type=`{kind}`")
    return found


def listed(allow: Allow) -> list[type | tuple[str, str]]:
    """Return the classes and names in `allow`, with the classes that they refer to."""
    found: list[Any] = []
    for each in items_of(allow):
        if isinstance(each, type) and not is_typeddict(each):
            found.append(each)
        if isinstance(each, tuple):
            found.append(each)
        else:
            found += schemas.classes_in(each, MESSAGE_NAMES)
    return list(dict.fromkeys(found))


def imported(names: Iterable[tuple[str, ...]]) -> list[type]:
    """Return the classes of these names whose modules are imported."""
    found = [_found_at(module, name) for module, name, *_ in names]
    return [each for each in found if isinstance(each, type)]


def _found_at(module: str, qualname: str) -> Any:
    try:
        return attrgetter(qualname)(sys.modules[module])
    except (KeyError, AttributeError):
        return None


class Allowed:
    """An allow-list: from classes to the names they are stored under, and back."""

    def __init__(self, extra: Allow = ()) -> None:
        self._names: set[tuple[str, ...]] = set(_ALWAYS)
        self._classes: dict[str, type] = {}
        given = items_of(extra)
        self._given = [_written(each) for each in given]
        for each in listed(given):
            if isinstance(each, type):
                self._classes[shown(each)] = each
                self._names.add((each.__module__, each.__qualname__))
            else:
                self._names.add(each)

    def includes(self, names: Iterable[tuple[str, ...]]) -> bool:
        return self._names.issuperset(names)

    def with_(self, extra: Allow) -> "Allowed":
        more = Allowed(extra)
        more._classes = self._classes | more._classes
        more._names |= self._names
        more._given = self._given
        return more

    def name_of(self, kind: type) -> str | None:
        """Return the name that a class is stored under; None if it is not allowed."""
        known = MESSAGE_NAMES.get(kind)
        if known is not None:
            return known
        name = shown(kind)
        if name in self._classes:
            return name if self._classes[name] is kind else None
        is_listed = self._is_listed(kind.__module__, kind.__qualname__)
        return name if is_listed and "<locals>" not in name else None

    def class_of(self, name: Any) -> type | None:
        """Return the class of a name; None if it is not allowed.

        Raises:
            InvalidInput: it does not exist any more.
        """
        known = MESSAGES.get(name) if isinstance(name, str) else None
        if known is not None:
            return known
        if isinstance(name, str) and name in self._classes:
            return self._classes[name]
        return self._found(str(name))

    def _found(self, name: str) -> type | None:
        module, _, qualname = name.partition(":")
        if not qualname or not self._is_listed(module, qualname):
            return None
        try:
            found: Any = attrgetter(qualname)(importlib.import_module(module))
        except (ImportError, AttributeError) as cause:
            raise InvalidInput(
                f"the class of a stored value cannot be imported. class=`{name}`"
            ) from cause
        # An allowed name may mean something else by now.
        if not isinstance(found, type) or issubclass(found, type):
            raise InvalidInput(f"a stored value names something that is not a class. name=`{name}`")
        is_exact = (module, qualname) in self._names
        if not is_exact and (shown(found) != name or not self._is_listed(module, qualname)):
            return None
        self._classes[name] = found
        return found

    def _is_listed(self, module: str, qualname: str) -> bool:
        """Return whether a name is listed; LangGraph lists an inner class without the outer one.

        Then a class of that name at the top level of the module is the one that is meant.
        """
        if (module, qualname) in self._names:
            return True
        _, inner, last = qualname.rpartition(".")
        return bool(inner) and (module, last) in self._names and _found_at(module, last) is None

    def refusal(self, name: str) -> InvalidInput:
        """Return the error for a stored value of a class that is not allowed."""
        module, _, qualname = name.partition(":")
        if not all(map(str.isidentifier, [*module.split("."), *qualname.split(".")])):
            return not_allowed(name)
        return not_allowed(name, self._line([(module, qualname)], [qualname]))

    def advice(self, value: Any, root: Any) -> str:
        """Return what to do about a value that is not allowed; `root` is what it is part of."""
        kinds = self._refused(value, root)
        fixed = [shown(kind) for kind in kinds if not _is_importable(kind)]
        if fixed:
            fact = "it cannot be imported: move it to the top level of its module, and list it in"
            return f"{fact} `allow`. class=`{fixed[0]}`"
        names = [(part.__module__, part.__qualname__) for kind in kinds for part in _parts_of(kind)]
        line = self._line(names, [_written(kind) for kind in kinds])
        return f"list it in `allow`: {line}. class=`{shown(kinds[0])}`"

    def _refused(self, value: Any, root: Any) -> list[type]:
        """Return the class of a value, and those in the root that would be refused next."""
        found = {type(value): None}
        for kind in map(type, walk(root, _SEARCHED_MAX)):
            is_core = kind.__module__.startswith("langchain_core.")
            if schemas.is_storable(kind) and not is_core and self.name_of(kind) is None:
                found[kind] = None
        return [*found]

    def _line(self, names: list[tuple[str, str]], shown: list[str]) -> str:
        imports: dict[str, set[str]] = {}
        for module, qualname in names:
            if module not in ("builtins", "__main__"):
                imports.setdefault(module, set()).add(qualname.partition(".")[0])
        lines = [
            f"from {module} import {', '.join(sorted(imports[module]))}"
            for module in sorted(imports)
        ]
        allow = ", ".join(dict.fromkeys([*self._given, *shown]))
        lines.append(f"LimpetSaver(store, allow=[{allow}])")
        return "`" + "; ".join(lines) + "`"


def not_allowed(name: str, line: str = "") -> InvalidInput:
    fact = "a stored value is of a class that is not allowed: list it in `allow`"
    return InvalidInput(f"{fact}{line and ': '}{line}. class=`{name}`")


def _written(each: Any) -> str:
    if not isinstance(each, type):
        return repr(each)
    return each.__qualname__.rpartition("<locals>.")[2]


def _parts_of(kind: Any) -> tuple[type, ...]:
    """Return a class; of a pydantic model with parameters, such as `Page[Order]`, its parts."""
    generic = getattr(kind, "__pydantic_generic_metadata__", None) or {}
    if not generic.get("origin"):
        return (kind,)
    return (generic["origin"], *(each for each in generic["args"] if isinstance(each, type)))


def _is_importable(kind: type) -> bool:
    parts = _parts_of(kind)
    return all(_found_at(each.__module__, each.__qualname__) is each for each in parts)


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
        InvalidInput: it may pickle, or is a subclass of LangGraph's that allows all classes.
    """
    if serde is None:
        return default_serde()
    inner = serde.serde if isinstance(serde, EncryptedSerializer) else serde
    if isinstance(inner, JsonPlusSerializer) and inner.pickle_fallback:
        raise InvalidInput(
            "the serializer must not pickle, because stored pickles can run any code: create it"
            " without pickle_fallback, and list your classes in `allow`"
        )
    if not isinstance(serde, JsonPlusSerializer) or not upstream.allows_all(serde):
        return serde
    if type(serde) is not JsonPlusSerializer:
        raise InvalidInput(
            "the serializer allows every class: create it with allowed_msgpack_modules=[...]"
        )
    return default_serde()
