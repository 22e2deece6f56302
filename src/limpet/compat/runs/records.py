"""The checkpoint of a run: its fields and their checks, its JSON, and how it is stored. Pure.

A run is the scope `main` of kind `run` in the session of its name, as in `limpet.runs`.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, ClassVar

from limpet.api.integrations import limits, times
from limpet.errors import InvalidInput, NotFound
from limpet.model import JSON, ScopeInfo, ScopeKey, Snapshot, SnapshotInfo
from limpet.opening import draw
from limpet.runs.model import KIND, RUNNING, SCOPE_ID, TASK_LABEL

NAMES = (
    "run_id",
    "task_name",
    "iteration",
    "messages",
    "system_prompt",
    "input_tokens",
    "output_tokens",
    "created_at",
)
ZERO_TIME = "0001-01-01T00:00:00Z"

_COUNTS = ("iteration", "input_tokens", "output_tokens")
_REST = "state"  # the extra field for what fits nowhere else
_NAMES = frozenset(NAMES)
_INTEGERS = range(-(2**63), 2**63)
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?"
    r"(?:Z|([+-])([01]\d|2[0-3]):([0-5]\d))",
    re.ASCII,
)
_DAYS_IN_400_YEARS = 146_097


@dataclass(frozen=True, slots=True, init=False)
class Checkpoint:
    """The state of a run after one of its iterations.

    `messages` is a list of any JSON, or None, and is kept exactly. `created_at` is RFC 3339 text,
    kept as written: up to nine digits of a second, and the offset. A datetime with a time zone is
    converted to such text; an empty text becomes the time of `save`. `extra` has all other fields.

    Raises:
        InvalidInput: a value has a wrong type, more than 64 bits, or is not a time.
    """

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # messages are a list

    run_id: str
    task_name: str
    iteration: int
    messages: list[JSON] | None
    system_prompt: str
    input_tokens: int
    output_tokens: int
    created_at: str
    extra: Mapping[str, JSON]

    def __init__(
        self,
        run_id: str,
        task_name: str = "",
        iteration: int = 0,
        messages: list[JSON] | None = None,
        system_prompt: str = "",
        input_tokens: int = 0,
        output_tokens: int = 0,
        created_at: str | datetime = "",
        extra: Mapping[str, JSON] | None = None,
    ) -> None:
        values: dict[str, Any] = {
            "run_id": _text("run_id", run_id),
            "task_name": _text("task_name", task_name),
            "iteration": _integer("iteration", iteration),
            "messages": _messages(messages),
            "system_prompt": _text("system_prompt", system_prompt),
            "input_tokens": _integer("input_tokens", input_tokens),
            "output_tokens": _integer("output_tokens", output_tokens),
            "created_at": _time(created_at),
            "extra": _extra({} if extra is None else extra),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def to_json(self) -> dict[str, JSON]:
        """Return its JSON: the eight fields in their order, then the extra ones."""
        return {**{name: getattr(self, name) for name in NAMES}, **self.extra}

    @classmethod
    def from_json(cls, wire: Mapping[str, JSON]) -> "Checkpoint":
        """Return the checkpoint of a JSON object.

        As in Go names are case-insensitive, and a missing or null field has its default.

        Raises:
            InvalidInput: it is not an object, or a value is not valid.
        """
        if not isinstance(wire, Mapping):
            raise InvalidInput(f"a checkpoint must be an object. type=`{type(wire).__name__}`")
        fields: dict[str, Any] = {"run_id": ""}
        extra: dict[str, JSON] = {}
        for key, value in wire.items():
            name = field_of(key)
            if name is None:
                extra[key] = value
            elif value is not None or name == "messages":
                fields[name] = value
        return cls(**fields, extra=extra)


def with_time(checkpoint: "Checkpoint | Mapping[str, JSON]") -> Checkpoint:
    """Return a checkpoint, or that of a JSON object, with a time."""
    found = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint.from_json(checkpoint)
    if found.created_at:
        return found
    return replace(found, created_at=text_of(times.from_us(draw().now)))


def without_state(checkpoint: Checkpoint) -> Checkpoint:
    return replace(checkpoint, messages=None, system_prompt="", extra={})


def newest_first(found: list[tuple[Checkpoint, int]]) -> list[Checkpoint]:
    """Sort by `created_at`; equal ones by when they were saved (in any unit), then by run_id."""
    found.sort(key=lambda each: (-instant_of(each[0].created_at), -each[1], each[0].run_id))
    return [checkpoint for checkpoint, _ in found]


def field_of(key: object) -> str | None:
    """Return the field that a key names to Go, which ignores case; None for an extra field."""
    if not isinstance(key, str):
        return None
    name = key.casefold()
    # A letter that folds to two (the German sharp s) is a different letter to Go.
    return name if name in _NAMES and len(name) == len(key) else None


def instant_of(text: str) -> int:
    """Return an RFC 3339 time as nanoseconds, comparable across offsets.

    Raises:
        InvalidInput: it is not such a time, or there is no such day.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise InvalidInput("created_at must be an RFC 3339 time")
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    fraction, sign, offset_h, offset_m = found.groups()[6:]
    try:
        # Go has a year 0, Python has not; 400 is a year with the same days.
        days = date(year or 400, month, day).toordinal() - (0 if year else _DAYS_IN_400_YEARS)
    except ValueError:
        raise InvalidInput("created_at names a day that does not exist") from None
    minutes = (days * 24 + hour) * 60 + minute
    if sign is not None:
        offset = int(offset_h) * 60 + int(offset_m)
        minutes += offset if sign == "-" else -offset
    return (minutes * 60 + second) * 10**9 + int((fraction or "").ljust(9, "0"))


def text_of(moment: datetime) -> str:
    """Return an aware datetime as Go writes it: without trailing zeros, `Z` for UTC.

    Raises:
        InvalidInput: it has no time zone, or one whose offset has seconds.
    """
    offset = moment.utcoffset()
    if offset is None or offset % timedelta(minutes=1):
        raise InvalidInput("created_at must have a time zone whose offset is in whole minutes")
    text = moment.replace(tzinfo=None, fold=0).isoformat()
    text = text.rstrip("0") if "." in text else text
    return text + (moment.isoformat()[-6:] if offset else "Z")


def scope_of(run_id: object) -> ScopeKey:
    return limits.check_scope(limits.check_id("run_id", run_id), SCOPE_ID, KIND)


def save_options(checkpoint: Checkpoint | Mapping[str, JSON]) -> tuple[ScopeKey, dict[str, Any]]:
    """Return the scope of a checkpoint, and the options of `Scope.save`."""
    found = with_time(checkpoint)
    state = {"messages": found.messages, "system_prompt": found.system_prompt, **found.extra}
    metadata = {name: getattr(found, name) for name in (*_COUNTS, "created_at")}
    return scope_of(found.run_id), {
        "state": state,
        "keep": False,
        "status": RUNNING,  # `limpet.runs` can resume a run that has a checkpoint
        "labels": {TASK_LABEL: found.task_name} if found.task_name else None,
        "metadata": metadata,
    }


def loaded(run_id: str, found: Snapshot | None) -> Checkpoint:
    """Return the checkpoint of a head, whichever program wrote it, or raise NotFound."""
    if found is None:
        raise NotFound(f"the run has no checkpoint. run_id=`{run_id}`")
    return Checkpoint(**_facts(found), **_parts(found.state))


def listed(scopes: Iterable[ScopeInfo]) -> list[Checkpoint]:
    return newest_first(
        [
            (Checkpoint(**_facts(scope.head)), int(scope.head.updated_at.timestamp() * 10**6))
            for scope in scopes
            if scope.head is not None and scope.key.scope_id == SCOPE_ID
        ]
    )


def _facts(info: SnapshotInfo) -> dict[str, Any]:
    counts = {name: info.metadata.get(name) for name in _COUNTS}
    return {
        "run_id": info.session_id,
        "task_name": info.labels.get(TASK_LABEL, ""),
        **{k: n for k, n in counts.items() if type(n) is int and -(2**63) <= n < 2**63},
        "created_at": _created_at(info),
    }


def _created_at(info: SnapshotInfo) -> str:
    text = info.metadata.get("created_at")
    with suppress(InvalidInput):  # another program's, with another meaning
        if isinstance(text, str):
            instant_of(text)
            return text
    return text_of(info.created_at)


def _parts(state: JSON) -> dict[str, Any]:
    """Return the fields in a state. Values that cannot be fields are in `extra["state"]`."""
    if not isinstance(state, dict):
        return {} if state is None else {"extra": {_REST: state}}
    fields: dict[str, Any] = {}
    extra: dict[str, JSON] = {}
    rest: dict[str, JSON] = {}
    for key, value in state.items():
        if (key == "messages" and isinstance(value, list | None)) or (
            key == "system_prompt" and isinstance(value, str)
        ):
            fields[key] = value
        elif field_of(key) is None:
            extra[key] = value
        else:
            rest[key] = value
    if rest:
        if _REST in extra:
            rest[_REST] = extra[_REST]
        extra[_REST] = rest
    return {**fields, "extra": extra}


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be text. type=`{type(value).__name__}`")
    return str.__str__(value)


def _integer(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(f"{name} must be a whole number. type=`{type(value).__name__}`")
    plain = int.__pos__(value)
    if plain not in _INTEGERS:
        raise InvalidInput(f"{name} must have at most 64 bits")
    return plain


def _messages(value: object) -> list[JSON] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise InvalidInput(f"messages must be a list or None. type=`{type(value).__name__}`")
    return list(value)


def _time(value: object) -> str:
    if isinstance(value, datetime):
        return text_of(value)
    text = _text("created_at", value)
    if text:
        instant_of(text)
    return text


def _extra(value: object) -> dict[str, JSON]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"extra must be a mapping. type=`{type(value).__name__}`")
    for key in value:
        if not isinstance(key, str) or field_of(key) is not None:
            raise InvalidInput("the names in extra must be text, and none of the eight fields")
    return dict(value)
