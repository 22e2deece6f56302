"""The record of `SessionStore`. Nothing in its state is looked at, so any JSON passes through."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from limpet.compat.wire import ABSENT, Record
from limpet.errors import InvalidInput
from limpet.model import JSON

S = TypeVar("S")

_TIMES = ("created_at", "updated_at", "heartbeat_at")
_TEXTS = ("snapshot_id", "session_id", "parent_id", "status", "finish_reason", *_TIMES)


@dataclass(frozen=True)
class SessionSnapshot(Record, Generic[S]):
    """A turn of a session: where it stands, and its state.

    None is a field that is not there, and is not written, but for the state, where ABSENT, None
    (null) and `{}` are three things. Times are text, kept as they are; a datetime may be given.
    Fields that are not known are in `extra`. To change some of it use `dataclasses.replace`.
    """

    snapshot_id: str | None = None
    session_id: str | None = None
    parent_id: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    heartbeat_at: str | None = None
    status: str | None = None
    finish_reason: str | None = None
    error: Mapping[str, JSON] | None = field(default=None, hash=False)
    state: S = field(default=cast(Any, ABSENT), hash=False)
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in _TIMES:
            self._be_text(name)
        for name in _TEXTS:
            value: Any = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise InvalidInput(f"a field must be text. field=`{name}` type=`{_kind(value)}`")
        if self.error is not None and not isinstance(self.error, Mapping):
            raise InvalidInput(f"an error must be a mapping. type=`{_kind(self.error)}`")
        self._check_extra()

    def to_json(self) -> dict[str, JSON]:
        """Return the wire dict, without the fields that are not there."""
        known = {there for name, there in self._names().items() if name != "state"}
        wire = super().to_json()
        return {k: value for k, value in wire.items() if value is not None or k not in known}


def _kind(value: object) -> str:
    return type(value).__name__
