"""`limpet.jsonable`: JSON from the values that people keep in their states."""

import os
from dataclasses import fields, is_dataclass
from datetime import date, time
from enum import Enum
from typing import Any

from limpet.model import JSON


def jsonable(value: Any) -> JSON:
    """Return a value that is not JSON as one that is, or as one with such parts.

    For `default=` of `limpet.open` and of `json.dumps`.

    - Pydantic models as `model_dump(mode="json")`, dataclasses as an object of their fields
    - enums as their value; dates and times in ISO 8601; UUID, Decimal and paths as text
    - sets as a list, sorted; bytes as base64
    - numpy scalars and arrays, and others that have `tolist`, as numbers and lists

    A load gives back the JSON, not the type.

    Example:
        with limpet.open("memory:", default=limpet.jsonable) as store:
            store.scope("chat-42").save({"tags": {"new"}})

    Args:
        value: what is not JSON.

    Raises:
        TypeError: it is none of these.
    """
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, set | frozenset):
        return _in_order(value)
    if isinstance(value, bytes | bytearray | memoryview):
        from base64 import b64encode

        return b64encode(value).decode()
    return _other(value)


def _in_order(values: set[Any] | frozenset[Any]) -> list[Any]:
    """Return a set in one order, so that saving the same again is the same body."""
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=repr)


def _other(value: Any) -> JSON:
    if any(each.__module__ in ("uuid", "decimal") for each in type(value).__mro__):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    tolist = getattr(value, "tolist", None)
    if callable(tolist) and not isinstance(value, type):
        return tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")
