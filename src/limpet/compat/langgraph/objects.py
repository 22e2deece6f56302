"""What objects consist of."""

from collections import deque
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cached_property, lru_cache
from inspect import getattr_static
from typing import Any

from pydantic import BaseModel


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


def walk(root: Any, values_max: int) -> Iterator[Any]:
    """Yield a value and what is inside it. At most so many: a value may contain itself."""
    waiting = [root]
    for _ in range(values_max):
        if not waiting:
            return
        each = waiting.pop()
        yield each
        if isinstance(each, dict):
            waiting += reversed(each.values())
        elif isinstance(each, list | tuple | set | frozenset | deque):
            waiting += [*each][::-1]
        elif isinstance(each, BaseModel) or is_dataclass(type(each)):
            waiting += reversed(attributes(each).values())


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
