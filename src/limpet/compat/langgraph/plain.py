"""What can be said of a value without taking it apart."""

import gc
from typing import Any

from limpet.core.codec import is_plain_level
from limpet.core.limits import DEPTH_MAX

CONTAINERS: frozenset[type] = frozenset((dict, list))
TEXTS: frozenset[type] = frozenset((str, type(None)))
ATOMS = TEXTS | {int, float, bool}
_PLAIN = CONTAINERS | ATOMS
_MANY = 100_000  # containers of a level, of which some may be the same


def is_plain(value: Any, levels: int = DEPTH_MAX) -> bool:
    """Tell whether orjson writes a value exactly, if it does at all; True is certain.

    Level by level, by the garbage collector's view of what refers to what: that runs in C.
    """
    level = [value]
    for _ in range(levels):
        found = is_plain_level(level, _PLAIN, CONTAINERS)
        if found is not None:
            return found
        inner = [each for each in level if type(each) in CONTAINERS]
        if len(inner) > _MANY and 2 * len({*map(id, inner)}) < len(inner):
            return False  # perhaps it holds itself, and then twice as often at each level
        level = gc.get_referents(*inner)
    return False


def is_sound(text: str) -> bool:
    """Tell whether a text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def plain_atom(value: Any) -> Any:
    """Return a text or a number of a class of its own as a plain one."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__pos__(value) if isinstance(value, int) else float.__pos__(value)


def slots(kind: type) -> tuple[str, ...]:
    """Return the names of the slots that a class has."""
    found = getattr(kind, "__slots__", ())
    return (found,) if isinstance(found, str) else tuple(found)


def is_same(value: Any, back: Any) -> bool:
    """Tell whether a value came back as it was: its class, and what it says of itself."""
    if type(value) is not type(back):
        return False
    if type(getattr(value, "tzinfo", None)) is not type(getattr(back, "tzinfo", None)):
        return False  # two times are equal also if one knows its place and the other its offset
    equal = value == back
    if isinstance(equal, bool):
        return equal
    # An array compares each of its elements; two that are not a number are not equal.
    facts = [(each.dtype, each.shape, each.tobytes()) for each in (value, back)]
    return bool(facts[0] == facts[1])
