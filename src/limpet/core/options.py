"""The checks of options, which are given by name or in a URL."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

from limpet.core import limits
from limpet.errors import InvalidInput


class Check(NamedTuple):
    """What an option accepts: `parse` returns the value as an engine takes it, or ValueError."""

    accepts: str
    parse: Callable[[Any], Any]


Options: TypeAlias = Mapping[str, Check]


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
_STATE_BYTES_MAX = limits.STORED_BYTES_MAX // 2  # what is stored can always be read again


def checked(options: Mapping[str, Any], known: Options) -> dict[str, Any]:
    """Return checked options, or raise InvalidInput for one that is not known or not valid."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise no_option(name, {**known, **COMMON})
        try:
            found[name] = known[name].parse(value)
        except (TypeError, ValueError, OverflowError):
            # The value is not shown: it may be a secret in the wrong place.
            raise InvalidInput(
                "the option's value is not acceptable: it must be "
                f"{known[name].accepts}. option=`{name}`"
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


def one_of(*values: str) -> Check:
    def parse(value: Any) -> str:
        if value not in values:
            raise ValueError
        return str(value)

    return Check("one of " + ", ".join(f"`{each}`" for each in values), parse)


def _flag(value: Any) -> bool:
    if value in (True, "true", "1"):
        return True
    if value in (False, "false", "0"):
        return False
    raise ValueError


def _positive_int(value: Any) -> int:
    number = int(value)
    if number < 1 or isinstance(value, bool | float):
        raise ValueError
    return number


def _state_size(value: Any) -> int:
    number = _positive_int(value)
    if number > _STATE_BYTES_MAX:
        raise ValueError
    return number


def _seconds(value: Any) -> float:
    number = float(value)
    if not 0 <= number <= limits.WAIT_S_MAX or isinstance(value, bool):
        raise ValueError
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _function(value: Any) -> Any:
    if value is not None and not callable(value):
        raise ValueError
    return value


def check_schema(value: Any) -> str:
    """Return the name of a PostgreSQL schema, or raise InvalidInput."""
    if not isinstance(value, str) or not _SCHEMA.fullmatch(value):
        raise InvalidInput("the name of a schema has up to 63 of a-z, 0-9 and _, no digit first")
    return value


_DURATION = f"a number of seconds from 0 to {limits.WAIT_S_MAX:g}"
flag = Check("true or false", _flag)  # as text, since a URL has no other
positive_int = Check("a whole number from 1 on", _positive_int)
state_size = Check(f"a whole number from 1 to {_STATE_BYTES_MAX}", _state_size)
seconds = Check(_DURATION, _seconds)
interval = Check(_DURATION, lambda value: max(_INTERVAL_S_MIN, _seconds(value)))
text = Check("a text that is not empty", _text)
function = Check("a function, given by name and not in the URL", _function)
schema = Check("the name of a schema", check_schema)
keys = Check(
    "keys as text, or a function that returns them",
    lambda value: value if callable(value) else _text(value),
)

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
