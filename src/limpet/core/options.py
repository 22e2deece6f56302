"""The checks of options, which are given by name or in a URL.

Each check returns the value as an engine takes it, or raises ValueError.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypedDict

from limpet.core import limits
from limpet.errors import InvalidInput

Options: TypeAlias = Mapping[str, Callable[[Any], Any]]


class OpenOptions(TypedDict, total=False):
    """The options of all engines, for type checkers; `opening` says which engine takes which."""

    state_bytes_max: int
    workers: int
    default: Callable[[Any], Any] | None
    keys: str | Callable[[], str]
    keys_file: str
    allow_plaintext: bool
    otel: bool
    slow_s: float
    lock_wait_s: float
    synchronous: Literal["full", "normal", "off"]
    mode: Literal["rw", "ro"]
    cache_bytes_max: int
    poll_s: float
    compress: Literal["zstd", "none"]
    sync: bool
    timeout_s: float
    retry_s: float
    parallel: int
    endpoint_url: str
    region: str
    access_key_id: str
    secret_access_key: str
    session_token: str
    profile: str
    path_style: bool
    account: str
    schema: str
    setup: bool
    connections: int
    pooler: bool
    advisory_locks: bool
    notify: bool
    token: str
    token_file: str
    ca_file: str


_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")  # needs no quotes anywhere
_INTERVAL_S_MIN = 0.01


def checked(options: Mapping[str, Any], known: Options) -> dict[str, Any]:
    """Return checked options, or raise InvalidInput for one that is not known or not valid."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise no_option(name, {**known, **COMMON})
        check = known[name]
        try:
            found[name] = check(value)
        except (TypeError, ValueError, OverflowError):
            # The value is not shown: it may be a secret in the wrong place.
            must = f"it must be {_ACCEPTED.get(check) or check.__doc__}"
            raise InvalidInput(
                f"the option's value is not acceptable: {must}. option=`{name}`"
            ) from None
    return found


def nearest(name: str, known: Iterable[str], end: str = "") -> str:
    from difflib import get_close_matches  # which is used in messages only

    near = get_close_matches(name.lower(), known, n=1)
    return f": did you mean `{near[0]}{end}`" if near else ""


def no_option(name: str, known: Iterable[str]) -> InvalidInput:
    near = nearest(name, known)
    options = "" if near else f" known=`{', '.join(sorted(known))}`"
    return InvalidInput(f"there is no such option{near}. option=`{name}`{options}")


def one_of(*values: str) -> Callable[[Any], str]:
    """Return a check for one of these texts."""

    def check(value: Any) -> str:
        if value not in values:
            raise ValueError
        return str(value)

    check.__doc__ = "one of " + ", ".join(f"`{each}`" for each in values)
    return check


def flag(value: Any) -> bool:
    """Check True or False, which a URL writes as `true`, `1`, `false` or `0`."""
    if value in (True, "true", "1"):
        return True
    if value in (False, "false", "0"):
        return False
    raise ValueError


def positive_int(value: Any) -> int:
    """Check a whole number, at least 1."""
    number = int(value)
    if number < 1 or isinstance(value, bool | float):
        raise ValueError
    return number


def state_size(value: Any) -> int:
    """Check the largest size of a state: what is stored can always be read again."""
    number = positive_int(value)
    if number > limits.STORED_BYTES_MAX // 2:
        raise ValueError
    return number


def seconds(value: Any) -> float:
    """Check seconds, at least 0."""
    number = float(value)
    if not 0 <= number <= limits.WAIT_S_MAX or isinstance(value, bool):
        raise ValueError
    return number


def interval(value: Any) -> float:
    """Check the seconds between two polls."""
    return max(_INTERVAL_S_MIN, seconds(value))


def text(value: Any) -> str:
    """Check a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def function(value: Any) -> Callable[[Any], Any] | None:
    """Check a function, or None. A URL cannot name one."""
    if value is not None and not callable(value):
        raise ValueError
    return value  # type: ignore[no-any-return]


def keys(value: Any) -> str | Callable[[], str]:
    """Check keys: a text, or a function that returns it."""
    if not callable(value) and (not isinstance(value, str) or not value):
        raise ValueError
    return value  # type: ignore[no-any-return]


def check_schema(value: Any) -> str:
    """Return the name of a PostgreSQL schema, or raise InvalidInput."""
    if not isinstance(value, str) or not _SCHEMA.fullmatch(value):
        raise InvalidInput("the name of a schema has up to 63 of a-z, 0-9 and _, no digit first")
    return value


_ACCEPTED: Mapping[Callable[[Any], Any], str] = {
    flag: "true or false",
    positive_int: "a whole number from 1 on",
    state_size: f"a whole number from 1 to {limits.STORED_BYTES_MAX // 2}",
    seconds: f"a number of seconds from 0 to {limits.WAIT_S_MAX:g}",
    interval: f"a number of seconds from 0 to {limits.WAIT_S_MAX:g}",
    text: "a text that is not empty",
    function: "a function, given by name and not in the URL",
    keys: "keys as text, or a function that returns them",
}

COMMON: Options = {
    "state_bytes_max": state_size,
    "workers": positive_int,
    "default": function,
    "keys": keys,
    "keys_file": text,
    "allow_plaintext": flag,
    "otel": flag,
    "slow_s": seconds,
}
