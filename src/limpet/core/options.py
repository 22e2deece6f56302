"""The options of all engines, which are given by name or in a URL: what each accepts."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypedDict, get_args

from limpet.core import limits
from limpet.errors import InvalidInput

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")  # needs no quotes anywhere
_INTERVAL_S_MIN = 0.01
_STATE_BYTES_MAX = limits.STORED_BYTES_MAX // 2  # what is stored can always be read again


class _Check(NamedTuple):
    """What an option accepts: `parse` returns the value as an engine takes it, or ValueError."""

    accepts: str
    parse: Callable[[Any], Any]


def _accepted(is_good: bool, value: Any) -> Any:
    if not is_good:
        raise ValueError
    return value


def _one_of(*values: str) -> _Check:
    accepts = "one of " + ", ".join(f"`{each}`" for each in values)
    return _Check(accepts, lambda value: _accepted(value in values, value))


def _flag(value: Any) -> bool:
    is_true = value in (True, "true", "1")  # as text, since a URL has no other
    return bool(_accepted(is_true or value in (False, "false", "0"), is_true))


def _whole(value: Any, most: float = float("inf")) -> int:
    is_good = not isinstance(value, bool | float) and 1 <= int(value) <= most
    return int(_accepted(is_good, value))


def _seconds(value: Any) -> float:
    is_good = not isinstance(value, bool) and 0 <= float(value) <= limits.WAIT_S_MAX
    return float(_accepted(is_good, value))


def _text(value: Any) -> Any:
    return _accepted(isinstance(value, str) and value != "", value)


def check_schema(value: Any) -> str:
    """Return the name of a PostgreSQL schema, or raise InvalidInput."""
    if not isinstance(value, str) or not _SCHEMA.fullmatch(value):
        raise InvalidInput("the name of a schema has up to 63 of a-z, 0-9 and _, no digit first")
    return value


_DURATION = f"a number of seconds from 0 to {limits.WAIT_S_MAX:g}"
_Flag: TypeAlias = Annotated[bool, _Check("true or false", _flag)]
_Count: TypeAlias = Annotated[int, _Check("a whole number from 1 on", _whole)]
_Seconds: TypeAlias = Annotated[float, _Check(_DURATION, _seconds)]
_Interval: TypeAlias = Annotated[
    float, _Check(_DURATION, lambda value: max(_INTERVAL_S_MIN, _seconds(value)))
]
_Text: TypeAlias = Annotated[str, _Check("a text that is not empty", _text)]


class OpenOptions(TypedDict, total=False):
    """Each option, with its type for type checkers; `opening` says which engine takes which."""

    state_bytes_max: Annotated[
        int,
        _Check(
            f"a whole number from 1 to {_STATE_BYTES_MAX}",
            lambda value: _whole(value, _STATE_BYTES_MAX),
        ),
    ]
    workers: _Count
    default: Annotated[
        Callable[[Any], Any] | None,
        _Check(
            "a function, given by name and not in the URL",
            lambda value: _accepted(value is None or callable(value), value),
        ),
    ]
    keys: Annotated[
        str | Callable[[], str],
        _Check(
            "keys as text, or a function that returns them",
            lambda value: value if callable(value) else _text(value),
        ),
    ]
    keys_file: _Text
    allow_plaintext: _Flag
    otel: _Flag
    slow_s: _Seconds
    lock_wait_s: _Seconds
    synchronous: Annotated[Literal["full", "normal", "off"], _one_of("full", "normal", "off")]
    mode: Annotated[Literal["rw", "ro"], _one_of("rw", "ro")]
    cache_bytes_max: _Count
    poll_s: _Interval
    compress: Annotated[Literal["zstd", "none"], _one_of("zstd", "none")]
    sync: _Flag
    timeout_s: _Seconds
    retry_s: _Seconds
    parallel: _Count
    endpoint_url: _Text
    region: _Text
    access_key_id: _Text
    secret_access_key: _Text
    session_token: _Text
    profile: _Text
    path_style: _Flag
    account: _Text
    schema: Annotated[str, _Check("the name of a schema", check_schema)]
    setup: _Flag
    connections: _Count
    pooler: _Flag
    advisory_locks: _Flag
    notify: _Flag
    token: _Text
    token_file: _Text
    ca_file: _Text


_CHECKS = {name: get_args(each)[1] for name, each in OpenOptions.__annotations__.items()}
KEYS = ("keys", "keys_file", "allow_plaintext")
COMMON = ("state_bytes_max", "workers", "default", "otel", "slow_s", *KEYS)  # to all engines


def checked(options: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return checked options, or raise InvalidInput for one that is not known or not valid."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise no_option(name, {*known, *COMMON})
        try:
            found[name] = _CHECKS[name].parse(value)
        except (TypeError, ValueError, OverflowError):
            # The value is not shown: it may be a secret in the wrong place.
            raise InvalidInput(
                "the option's value is not acceptable: it must be "
                f"{_CHECKS[name].accepts}. option=`{name}`"
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
