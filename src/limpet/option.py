"""Options, in URLs and by name: each is returned as it should be, or refused by a ValueError."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from limpet.core import limits
from limpet.errors import InvalidInput

ROOT = "sessions/"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")  # so that no quotes are needed anywhere
_INTERVAL_S_MIN = 0.01


def root(value: Any) -> str:
    """Return a root below which sessions lie: ours, or one of the Strands tools."""
    if value not in (ROOT, "", "session/"):
        raise ValueError
    return str(value)


def flag(value: Any) -> bool:
    """Return True or False, which a URL writes in words or digits."""
    if value in (True, "true", "1"):
        return True
    if value in (False, "false", "0"):
        return False
    raise ValueError


def positive_int(value: Any) -> int:
    """Return a whole number from 1 on."""
    number = int(value)
    if number < 1 or isinstance(value, bool | float):
        raise ValueError
    return number


def seconds(value: Any) -> float:
    """Return seconds, none or many."""
    number = float(value)
    if not 0 <= number <= limits.WAIT_S_MAX or isinstance(value, bool):
        raise ValueError
    return number


def interval(value: Any) -> float:
    """Return seconds between two looks."""
    return max(_INTERVAL_S_MIN, seconds(value))


def durability(value: Any) -> str:
    """Return what SQLite calls `synchronous`."""
    if value not in ("full", "normal", "off"):
        raise ValueError
    return str(value)


def text(value: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def check_schema(value: Any) -> str:
    """Return the name of a schema, or raise InvalidInput."""
    if not isinstance(value, str) or not _SCHEMA.fullmatch(value):
        raise InvalidInput("the name of a schema has up to 63 of a-z, 0-9 and _, no digit first")
    return value


def checked(
    options: Mapping[str, Any], known: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    """Return options by name, or raise InvalidInput for one that is not known or acceptable."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise InvalidInput(f"there is no such option. option=`{name}`")
        try:
            found[name] = known[name](value)
        except (TypeError, ValueError, OverflowError):
            # The value may be a secret in the wrong place, so it is not shown.
            raise InvalidInput(f"the option's value is not acceptable. option=`{name}`") from None
    return found
