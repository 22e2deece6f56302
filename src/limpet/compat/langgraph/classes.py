"""Which classes a stored value may name. Nothing else is ever imported, made or called.

The messages and documents of langchain-core and the types of LangGraph are always allowed. Classes
of the caller's own are allowed by being listed, or by a schema that refers to them.
"""

import dataclasses
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import Enum
from functools import cached_property, lru_cache
from importlib import import_module
from importlib.util import find_spec
from inspect import getattr_static
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
)

from langchain_core import messages
from langchain_core.messages import BaseMessage
from pydantic import BaseModel
from typing_extensions import is_typeddict

from limpet.compat.langgraph import upstream
from limpet.errors import InvalidInput

if sys.version_info >= (3, 14):
    from annotationlib import Format, get_annotations

    def _annotations(kind: type) -> dict[str, Any]:
        return get_annotations(kind, format=Format.FORWARDREF)
else:
    from inspect import get_annotations as _annotations

_Item: TypeAlias = type | UnionType | tuple[str, ...]
Allow: TypeAlias = type | UnionType | Iterable[_Item]
"""A class or another type such as `list[Order]`, or several of them and of (module, name)."""

MESSAGES: dict[str, type[BaseMessage]] = {
    name: getattr(messages, name)
    for name in (
        "RemoveMessage",
        *(f"{role}Message" for role in ("AI", "Chat", "Function", "Human", "System", "Tool")),
        *(f"{role}MessageChunk" for role in ("AI", "Chat", "Function", "Human", "System", "Tool")),
    )
}
MESSAGE_NAMES: dict[type, str] = {each: name for name, each in MESSAGES.items()}

MAIN = "__main__"
_MAINS = frozenset((MAIN, "__mp_main__"))  # the latter in a process that multiprocessing spawned
_LIST_IT = "list it in `allow`"

_ALWAYS: frozenset[tuple[str, str]] = frozenset(
    {
        upstream.DELTA_SNAPSHOT,
        ("langchain_core.documents.base", "Document"),
        *(("langgraph.store.base", name) for name in ("GetOp", "Item")),
        *(("langgraph.types", name) for name in ("Command", "Interrupt", "Overwrite", "Send")),
        *(("langgraph.types", name) for name in ("PregelTask", "StateSnapshot", "TimeoutPolicy")),
    }
)

# The names of classes


def module_name(module: str) -> str:
    """Return the name that other programs import a module by.

    For the script that was started it is that of `python -m`, or of its file. It stays `__main__`
    if there is no such name, as in a notebook.
    """
    if module not in _MAINS:
        return module
    main = sys.modules[MAIN]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in _MAINS:
        return str(spec.name)
    path = Path(getattr(main, "__file__", None) or "")
    return path.stem if path.suffix == ".py" and path.stem.isidentifier() else MAIN


def class_name(kind: type) -> str:
    """Return the name that a class is stored under, unless another class has it."""
    return f"{module_name(kind.__module__)}:{kind.__qualname__}"


def is_main(kind: Any) -> bool:
    return isinstance(kind, type) and kind.__module__ in _MAINS


def other_names(kind: type) -> Iterator[str]:
    """Yield the names that a class may have been stored under by programs that import it otherwise.

    `__main__` by a notebook and by early versions; `worker` and `app.worker` for `app/worker.py`.
    """
    path = getattr(sys.modules.get(kind.__module__), "__file__", None)
    parts = Path(path).with_suffix("").parts if path else ()
    for module in (*_MAINS, *(".".join(parts[at:]) for at in range(len(parts)))):
        yield f"{module}:{kind.__qualname__}"


def loaded_at(module: str, qualname: str) -> Any:
    """Return what has a name in a module that is imported, else None; runs no code."""
    found: Any = sys.modules.get(module)
    if found is None and module == module_name(MAIN):
        found = sys.modules[MAIN]
    for part in qualname.split("."):
        found = getattr_static(found, part, None)
    return found


def imported_module(name: str) -> Any:
    """Return a module; imported, unless it is the script that was started: it would run again."""
    if name in sys.modules:
        return sys.modules[name]
    main = sys.modules[MAIN]
    if name == module_name(MAIN):
        return main
    spec = find_spec(name)
    is_script = spec is not None and spec.origin == getattr(main, "__file__", "")
    return main if is_script else import_module(name)


# What a refusal gives to paste


def may_import(module: str) -> bool:
    """Return whether there is such a module apart from the script. Nothing is imported."""
    if module in (MAIN, module_name(MAIN)):
        return False
    top = module.partition(".")[0]
    return top in sys.modules or find_spec(top) is not None


def _line(module: str, qualname: str) -> str:
    """Return what allows a class. Classes of the script itself are not imported."""
    top = qualname.partition(".")[0]
    source = "" if module in _MAINS else f", after `from {module} import {top}`"
    return f"{_LIST_IT} as `{qualname}`{source}"


# What objects consist of


def shown(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def slots(kind: type) -> tuple[str, ...]:
    found = getattr(kind, "__slots__", ())
    return (found,) if isinstance(found, str) else tuple(found)


@lru_cache(maxsize=1024)
def all_slots(kind: type) -> frozenset[str]:
    return frozenset(name for base in kind.__mro__ for name in slots(base))


def attributes(value: Any) -> dict[str, Any]:
    """Return what an object has in `__dict__` and in slots."""
    state: Any = object.__getstate__(value)
    members, slotted = state if isinstance(state, tuple) else (state, None)
    return {**(members or {}), **(slotted or {})}


def is_derived(kind: type, name: str) -> bool:
    """Return whether an attribute is computed again: a cached property, or by `Box[int](...)`."""
    return name == "__orig_class__" or isinstance(getattr_static(kind, name, None), cached_property)


def is_same(value: Any, back: Any) -> bool:
    """Return whether a value was decoded as it was, with its class."""
    if type(value) is not type(back):
        return False
    if type(getattr(value, "tzinfo", None)) is not type(getattr(back, "tzinfo", None)):
        return False  # two equal times may have a zone and an offset
    equal = value == back
    if isinstance(equal, bool):
        return equal
    # Arrays: `==` compares element by element, and NaN is not equal to itself.
    facts = [(each.dtype, each.shape, each.tobytes()) for each in (value, back)]
    return bool(facts[0] == facts[1])


# The classes of a schema


def is_schema(value: Any) -> bool:
    """Return whether a value is a type: a class, `list[Order]`, `Order | None`, an alias."""
    if isinstance(value, type) or get_origin(value) is not None:
        return True
    return hasattr(value, "__supertype__") or hasattr(value, "__value__")


def is_storable(kind: Any) -> bool:
    """Return whether objects of a class are stored if it is allowed."""
    if not isinstance(kind, type) or is_typeddict(kind):
        return False
    if issubclass(kind, BaseModel | Enum) or dataclasses.is_dataclass(kind):
        return True
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def classes_in(schema: Any, known: Iterable[type] = ()) -> list[type]:
    """Return the classes of a schema, of their fields, and so on, that objects are stored of.

    Those in `known` are left out. So are references that cannot be resolved: saving an object of
    such a class is refused, with its name.
    """
    # By id, and held: some types cannot be hashed.
    seen: dict[int, Any] = {id(each): each for each in (*known, BaseModel, Enum)}
    found: list[type] = []
    waiting: list[Any] = [schema]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        if is_storable(each):
            found.append(each)
        is_class = isinstance(each, type) and get_origin(each) is None
        waiting += reversed(
            [*(_members(each, each is schema) if is_class else _parts_of_hint(each))]
        )
    return found


def _parts_of_hint(each: Any) -> Iterator[Any]:
    """Yield what an annotation consists of."""
    origin = get_origin(each)
    if origin is Annotated:
        yield get_args(each)[0]
    elif origin is Literal:
        yield from map(type, get_args(each))
    elif isinstance(each, list):  # the arguments of a Callable
        yield from each
    else:
        yield origin
        yield from get_args(each)
    for name in ("__supertype__", "__value__", "__bound__"):  # NewType, alias, TypeVar
        try:
            yield getattr(each, name, None)
        except NameError:
            continue  # evaluated now, and it refers to a class that does not exist
    yield from getattr(each, "__constraints__", ())


def _members(kind: Any, given: bool) -> Iterator[Any]:
    """Yield the types of the fields of a class, which may be of any kind if it was `given`."""
    names: Iterable[str] | None = None
    if issubclass(kind, BaseModel):
        yield from (_resolved(field.annotation, kind) for field in kind.model_fields.values())
        yield from kind.__pydantic_generic_metadata__["args"]
        names = kind.__private_attributes__
    elif dataclasses.is_dataclass(kind):
        names = {field.name for field in dataclasses.fields(kind)}
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = kind._fields
    elif not given and not is_typeddict(kind):
        return
    for base in kind.__mro__:
        for name, hint in _annotations(base).items():
            if names is None or name in names:
                yield _resolved(hint, base)
    yield from getattr(kind, "__orig_bases__", ())


def _resolved(hint: Any, kind: type) -> Any:
    """Return an annotation without forward references and extras; None if one is not found."""
    holder: Any = SimpleNamespace(__annotations__={"hint": hint})
    module = sys.modules.get(kind.__module__)
    # Names of the module win: a field is often called like its class in lower case, or the same.
    inside = {**vars(kind), kind.__name__: kind}
    try:
        return get_type_hints(holder, inside, {} if module is None else vars(module))["hint"]
    except Exception:
        return None


# The allow-list


def items_of(allow: Allow) -> list[Any]:
    """Return what `allow` lists; one type is a list of one."""
    if is_schema(allow):  # before it is iterated: an enum or `list[Order]` can be, too
        return [allow]
    found = list(allow) if isinstance(allow, Iterable) and not isinstance(allow, str) else [allow]
    for each in found:
        is_name = isinstance(each, tuple) and len(each) == 2 and {str}.issuperset(map(type, each))
        if not is_name and not is_schema(each):
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
            found += classes_in(each, MESSAGE_NAMES)
    return list(dict.fromkeys(found))


def imported(names: Iterable[tuple[str, ...]]) -> list[type]:
    """Return the classes of these names whose modules are imported."""
    found = [loaded_at(module, name) for module, name, *_ in names]
    return [each for each in found if isinstance(each, type)]


class Allowed:
    """An allow-list: from classes to the names they are stored under, and back."""

    def __init__(self, extra: Allow = ()) -> None:
        self._listed = listed(extra)
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
        return Allowed([*self._listed, *items_of(extra)])

    def name_of(self, kind: type) -> str | None:
        """Return the name that a class is stored under; None if it is not allowed."""
        if kind not in self._name_of and self._is_listed(
            module_name(kind.__module__), kind.__qualname__
        ):
            with suppress(InvalidInput):
                if self.class_of(class_name(kind)) is kind:
                    self._name_of[kind] = class_name(kind)
        return self._name_of.get(kind)

    def class_of(self, name: Any) -> type | None:
        """Return the class of a name; None if it is not allowed.

        Raises:
            InvalidInput: it does not exist any more.
        """
        name = str(name)
        known = MESSAGES.get(name) or self._classes.get(name)
        if known is None:
            known = self._found(name) or self._renamed(name)
            if known is not None:
                self._classes[name] = known
        return known

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
        if (module, qualname) in self._names:
            return found
        # Asked again: only now that the module is imported it shows its classes at the top.
        is_inner = self._is_listed(module, qualname) and name in (shown(found), class_name(found))
        return found if is_inner else None

    def _renamed(self, name: str) -> type | None:
        """Return the listed class that a program stored under another name, if it is only one."""
        classes = [each for each in self._listed if isinstance(each, type)]
        loaded = loaded_at(*name.split(":", 1)) if ":" in name else None
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


def refusal(name: str) -> InvalidInput:
    """Return the error for a stored value of a class that is not allowed."""
    module, _, qualname = name.partition(":")
    own = loaded_at(MAIN, qualname)
    words = [*module.split("."), *qualname.split(".")]
    if is_main(own) and name in (class_name(own), *other_names(own)):
        advice = _line(MAIN, qualname)
    elif all(map(str.isidentifier, words)) and may_import(module):
        advice = _line(module, qualname)
    else:
        advice = f"import it from the module that has it here, and {_LIST_IT}"
    return not_allowed(name, advice)


def advice(kind: type) -> str:
    """Return what to do about a value of a class that is not allowed."""
    module, qualname = kind.__module__, kind.__qualname__
    words = _line(module, qualname)
    if qualname.endswith("]"):  # of a model with parameters, such as `Page[Order]`
        words = _LIST_IT
    elif loaded_at(module, qualname) is not kind:
        fact = "it cannot be imported: define it once, at the top level of its module"
        words = f"{fact}, and {_LIST_IT}"
    return f"{words}. class=`{shown(kind)}`"


def not_allowed(name: str, advice: str = _LIST_IT) -> InvalidInput:
    fact = "a stored value is of a class that is not allowed"
    return InvalidInput(f"{fact}: {advice}. class=`{name}`")
