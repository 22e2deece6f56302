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
from typing import Any, NamedTuple, TypeAlias

from limpet.core import codec
from limpet.core.limits import METADATA_BYTES_MAX
from limpet.errors import InvalidInput
from limpet.model import JSON

Test: TypeAlias = Callable[[Any], bool]

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_OTHERS = ("$eq", "$ne", "$not")
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")


def matcher(pattern: JSON) -> Test:
    """Return a function that returns whether a value matches a pattern, which `check` accepts."""
    if isinstance(pattern, dict):
        if _is_operators(pattern):
            return _all([_operator(name, bound) for name, bound in pattern.items()])
        return _object({key: matcher(each) for key, each in pattern.items()})
    if isinstance(pattern, list | tuple):
        return _list([matcher(each) for each in pattern])
    return lambda value: bool(value == pattern)


def _object(members: dict[str, Test]) -> Test:
    def test(value: Any) -> bool:
        if type(value) is not dict:
            return False
        for key, is_match in members.items():  # noqa: SIM110 (three times as fast as all)
            if not is_match(value.get(key)):
                return False
        return True

    return test


def _list(items: list[Test]) -> Test:
    def test(value: Any) -> bool:
        if type(value) is not list or len(value) != len(items):
            return False
        return all(is_match(each) for is_match, each in zip(items, value, strict=True))

    return test


def _all(tests: list[Test]) -> Test:
    return tests[0] if len(tests) == 1 else lambda value: all(test(value) for test in tests)


def _operator(name: str, bound: Any) -> Test:
    if name == "$eq":
        return lambda value: bool(value == bound)
    if name == "$ne":
        return lambda value: bool(value != bound)
    if name == "$not":
        is_match = matcher(bound)
        return lambda value: not is_match(value)
    compare = _ORDERS[name]
    if isinstance(bound, str):
        return lambda value: isinstance(value, str) and compare(value, bound)

    def test(value: Any) -> bool:
        if isinstance(value, str):
            value = float(value) if _NUMBER.fullmatch(value) else None
        return isinstance(value, int | float) and compare(value, bound)

    return test


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
    """Raise InvalidInput if a pattern is not JSON, too large, or has an unknown operator."""
    codec.encode(pattern, what="filter", bytes_max=METADATA_BYTES_MAX)
    _check(pattern)


def _check(pattern: JSON) -> None:
    if isinstance(pattern, list | tuple):
        for each in pattern:
            _check(each)
    if not isinstance(pattern, dict):
        return
    if not all(isinstance(key, str) for key in pattern):
        raise InvalidInput("the keys of a filter must be text")
    is_operators = _is_operators(pattern)
    for name, bound in pattern.items():
        if not is_operators or name == "$not":
            _check(bound)
        elif name not in _ORDERS and name not in _OTHERS:
            known = ", ".join((*_OTHERS, *_ORDERS))
            raise InvalidInput(f"unknown operator in a filter: use {known}. operator=`{name}`")
        elif name in _ORDERS and not isinstance(bound, str | int | float):
            kind = type(bound).__name__
            raise InvalidInput(f"{name} compares with a number or with text. type=`{kind}`")


def _is_operators(pattern: dict[str, Any]) -> bool:
    return any(key.startswith("$") for key in pattern)
