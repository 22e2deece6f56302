"""JSON files that are shared with other tools: their names, exact reading, indented writing."""

import json
from math import isfinite

import orjson

from limpet.core import codec, limits
from limpet.errors import InvalidInput
from limpet.model import JSON


def is_file_name(name: object, *, bytes_max: int) -> bool:
    """Return whether an id can be one file name, which leads to no other folder."""
    try:
        plain = limits.check_id("name", name)
    except InvalidInput:
        return False
    return (
        plain not in (".", "..")
        and "/" not in plain
        and "\\" not in plain
        and len(plain.encode()) <= bytes_max
    )


def dump_indented(value: JSON, *, what: str) -> bytes:
    """Return JSON with an indent of two spaces; `1.0` stays `1.0`, integers may have any length.

    Raises:
        InvalidInput: a value is not JSON; the message has its path.
    """
    plain = codec.decode(codec.encode(value, what=what))
    try:
        return orjson.dumps(plain, option=orjson.OPT_INDENT_2)
    except TypeError:  # integers beyond 64 bits
        return json.dumps(plain, indent=2, ensure_ascii=False).encode()


def load_strict(data: str | bytes) -> JSON:
    """Return the value of JSON text, or raise ValueError, also for NaN and infinite numbers."""
    return json.loads(data, parse_constant=_refuse, parse_float=_finite)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError("a number is too large")
    return number
