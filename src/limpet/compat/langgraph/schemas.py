"""Find the classes that a schema refers to: what `allow=State` allows."""

import dataclasses
import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from types import SimpleNamespace
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from typing_extensions import is_typeddict

if sys.version_info >= (3, 14):
    from annotationlib import Format, get_annotations

    def _annotations(kind: type) -> dict[str, Any]:
        return get_annotations(kind, format=Format.FORWARDREF)
else:
    from inspect import get_annotations as _annotations


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
        waiting += reversed([*(_members(each, each is schema) if is_class else _parts(each))])
    return found


def _parts(each: Any) -> Iterator[Any]:
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
