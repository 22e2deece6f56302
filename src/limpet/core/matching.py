"""Which JSON values match a pattern: the filters of `Backend.find_notes`.

| pattern                  | matches                                                        |
|--------------------------|----------------------------------------------------------------|
| object without `$` keys  | objects whose members match its members; a missing one is null |
| object of `$` keys       | what all these operators accept                                |
| list                     | lists of the same length whose items match its items           |
| anything else            | what is equal to it; 1, 1.0 and true are equal                 |

Operators: `$eq`, `$ne`; `$gt`, `$gte`, `$lt`, `$lte`, which compare text with text, and numbers
with numbers and with text that is a number; `$not`, which accepts what its pattern does not match.
"""

import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from limpet.errors import InvalidInput
from limpet.model import JSON

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_OTHERS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$not": lambda value, pattern: not matches(value, pattern),
}
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")


def matches(value: JSON, pattern: JSON) -> bool:
    """Return whether a value matches a pattern, which `check` has accepted."""
    if isinstance(pattern, dict):
        if _is_operators(pattern):
            return all(_accepts(name, value, bound) for name, bound in pattern.items())
        if not isinstance(value, dict):
            return False
        return all(matches(value.get(key), each) for key, each in pattern.items())
    if isinstance(pattern, list | tuple):
        if not isinstance(value, list) or len(value) != len(pattern):
            return False
        return all(map(matches, value, pattern))
    return bool(value == pattern)


class Bound(NamedTuple):
    """What one member of every value that matches must be: `eq`, `ge` or `le` than a scalar.

    More than what matches may meet it. An engine may test it before it decodes a value.
    """

    path: tuple[str, ...]
    order: str
    value: str | int | float


_BOUNDS = {"$eq": "eq", "$gt": "ge", "$gte": "ge", "$lt": "le", "$lte": "le"}
_EXACT = 2**53  # smaller integers are the same as floats


def bound_of(pattern: JSON, path: tuple[str, ...] = ()) -> Bound | None:
    """Return the first bound that a pattern has, or None."""
    if isinstance(pattern, dict):
        for name, each in pattern.items():
            order = _BOUNDS.get(name)
            if name.startswith("$"):
                found = None if order is None else _bound(path, order, each)
            else:
                found = bound_of(each, (*path, name))
            if found is not None:
                return found
        return None
    return _bound(path, "eq", pattern)


def _bound(path: tuple[str, ...], order: str, value: JSON) -> Bound | None:
    if isinstance(value, str):
        return None if "\0" in value else Bound(path, order, value)
    if isinstance(value, int | float) and abs(value) < _EXACT:
        return Bound(path, order, value)
    return None


def check(pattern: JSON) -> None:
    """Raise InvalidInput if a pattern has an unknown operator, or a bound without an order."""
    if isinstance(pattern, list | tuple):
        for each in pattern:
            check(each)
    if not isinstance(pattern, dict):
        return
    if not all(isinstance(key, str) for key in pattern):
        raise InvalidInput("the keys of a filter must be text")
    is_operators = _is_operators(pattern)
    for name, bound in pattern.items():
        if not is_operators or name == "$not":
            check(bound)
        elif name not in _ORDERS and name not in _OTHERS:
            known = ", ".join([*_OTHERS, *_ORDERS])
            raise InvalidInput(f"unknown operator in a filter: use {known}. operator=`{name}`")
        elif name in _ORDERS and not isinstance(bound, str | int | float):
            kind = type(bound).__name__
            raise InvalidInput(f"{name} compares with a number or with text. type=`{kind}`")


def _is_operators(pattern: dict[str, Any]) -> bool:
    return any(key.startswith("$") for key in pattern)


def _accepts(name: str, value: JSON, bound: Any) -> bool:
    if name in _OTHERS:
        return _OTHERS[name](value, bound)
    if isinstance(value, str) and not isinstance(bound, str):
        value = float(value) if _NUMBER.fullmatch(value) else None
    if isinstance(value, str) is not isinstance(bound, str) or not isinstance(
        value, str | int | float
    ):
        return False
    return _ORDERS[name](value, bound)
