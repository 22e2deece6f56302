"""Which classes a stored value may name. Nothing else is ever imported, made or called.

The messages and documents of langchain-core and the types of LangGraph are always allowed. Classes
of the caller's own are allowed by being listed, or by a schema that refers to them.
"""

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
from limpet.compat.langgraph.names import (
    MAIN,
    class_name,
    imported_module,
    is_importable,
    is_main,
    lines,
    loaded_at,
    may_import,
    module_name,
    other_names,
)
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
_LIST_IT = "list it in `allow`"

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
    found = [loaded_at(module, name) for module, name, *_ in names]
    return [each for each in found if isinstance(each, type)]


class Allowed:
    """An allow-list: from classes to the names they are stored under, and back."""

    def __init__(self, extra: Allow = (), more: Iterable[type | tuple[str, str]] = ()) -> None:
        self._given = items_of(extra)
        self._listed = [*dict.fromkeys([*listed(self._given), *more])]
        self._classes: dict[str, type] = {}
        self._names: set[tuple[str, ...]] = set(_ALWAYS)
        # Those of the script last: if it is imported, too, they stay `__main__`.
        for each in sorted(self._listed, key=is_main):
            if isinstance(each, type):
                self._classes[shown(each)] = each
                self._classes.setdefault(class_name(each), each)
                each = (each.__module__, each.__qualname__)
            self._names |= {each, (module_name(each[0]), each[1])}
        self._name_of = {kind: name for name, kind in self._classes.items()} | MESSAGE_NAMES

    def includes(self, names: Iterable[tuple[str, ...]]) -> bool:
        return self._names.issuperset(names)

    def with_(self, extra: Allow) -> "Allowed":
        return Allowed(self._given, [*self._listed, *listed(extra)])

    def name_of(self, kind: type) -> str | None:
        """Return the name that a class is stored under; None if it is not allowed."""
        known = self._name_of.get(kind)
        if known is not None:
            return known
        name = class_name(kind)
        if not self._is_listed(module_name(kind.__module__), kind.__qualname__):
            return None
        try:
            found = self.class_of(name)
        except InvalidInput:
            found = None
        if found is not kind:
            return None
        self._name_of[kind] = name
        return name

    def class_of(self, name: Any) -> type | None:
        """Return the class of a name; None if it is not allowed.

        Raises:
            InvalidInput: it does not exist any more.
        """
        known = MESSAGES.get(name) if isinstance(name, str) else None
        if known is not None:
            return known
        name = str(name)
        if name not in self._classes:
            found = self._found(name) or self._renamed(name)
            if found is None:
                return None
            self._classes[name] = found
        return self._classes[name]

    def _found(self, name: str) -> type | None:
        module, _, qualname = name.partition(":")
        if not qualname or not self._is_listed(module, qualname):
            return None
        try:
            found: Any = attrgetter(qualname)(imported_module(module))
        except (ImportError, AttributeError) as cause:
            raise InvalidInput(
                f"the class of a stored value cannot be imported. class=`{name}`"
            ) from cause
        # An allowed name may mean something else by now.
        if not isinstance(found, type) or issubclass(found, type):
            raise InvalidInput(f"a stored value names something that is not a class. name=`{name}`")
        is_exact = (module, qualname) in self._names
        is_inner = name in (shown(found), class_name(found)) and self._is_listed(module, qualname)
        return found if is_exact or is_inner else None

    def _renamed(self, name: str) -> type | None:
        """Return the listed class that a program stored under another name, if it is only one."""
        classes = [each for each in self._listed if isinstance(each, type)]
        module, _, qualname = name.partition(":")
        loaded = loaded_at(module, qualname)
        same = [each for each in classes if each is loaded]
        same = same or [each for each in classes if name in other_names(each)]
        return same[0] if len(same) == 1 else None

    def _is_listed(self, module: str, qualname: str) -> bool:
        """Return whether a name is listed; LangGraph lists an inner class without the outer one.

        Then a class of that name at the top level of the module is the one that is meant.
        """
        if (module, qualname) in self._names:
            return True
        _, inner, last = qualname.rpartition(".")
        return bool(inner) and (module, last) in self._names and loaded_at(module, last) is None

    def refusal(self, name: str) -> InvalidInput:
        """Return the error for a stored value of a class that is not allowed."""
        module, _, qualname = name.partition(":")
        own = loaded_at(MAIN, qualname)
        words = [*module.split("."), *qualname.split(".")]
        if is_main(own) and name in (class_name(own), *other_names(own)):
            advice = self._listing([own])
        elif all(map(str.isidentifier, words)) and may_import(module):
            advice = self._listing([], (module, qualname))
        else:
            advice = f"import it from the module that has it here, and {_LIST_IT}"
        return not_allowed(name, advice)

    def advice(self, value: Any, root: Any) -> str:
        """Return what to do about a value that is not allowed; `root` is what it is part of."""
        kinds = self._refused(value, root)
        fixed = [shown(kind) for kind in kinds if not is_importable(kind)]
        if fixed:
            fact = "it cannot be imported: define it once, at the top level of its module"
            return f"{fact}, and {_LIST_IT}. class=`{fixed[0]}`"
        return f"{self._listing(kinds)}. class=`{shown(kinds[0])}`"

    def _listing(self, kinds: list[type], *more: tuple[str, str]) -> str:
        given: list[Any] = []
        for each in self._given:  # of a type such as `list[Order]`, its classes
            given += [each] if isinstance(each, type | tuple) else listed(each)
        line = lines([*given, *kinds], *more)
        return f"{_LIST_IT}: {line}" if line else _LIST_IT

    def _refused(self, value: Any, root: Any) -> list[type]:
        """Return the class of a value, and those in the root that would be refused next."""
        found = {type(value): None}
        for kind in map(type, walk(root, _SEARCHED_MAX)):
            is_core = kind.__module__.startswith("langchain_core.")
            if schemas.is_storable(kind) and not is_core and self.name_of(kind) is None:
                found[kind] = None
        return [*found]


def not_allowed(name: str, advice: str = _LIST_IT) -> InvalidInput:
    fact = "a stored value is of a class that is not allowed"
    return InvalidInput(f"{fact}: {advice}. class=`{name}`")


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
