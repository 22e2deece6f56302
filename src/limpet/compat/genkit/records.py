"""The record of `SessionStore`. The state is passed through unchanged, so it may be any JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from limpet.compat.wire import ABSENT, WireRecord
from limpet.errors import InvalidInput
from limpet.model import JSON

S = TypeVar("S")

_TIMES = ("created_at", "updated_at", "heartbeat_at")
_TEXTS = ("snapshot_id", "session_id", "parent_id", "status", "finish_reason", *_TIMES)


@dataclass(frozen=True)
class SessionSnapshot(WireRecord, Generic[S]):
    """A turn of a session: its status and its state.

    None is a missing field and is not written, except for the state, where ABSENT, None (null) and
    `{}` differ. Times are text, kept as given; a datetime may be given. Unknown fields are in
    `extra`. Change it with `dataclasses.replace`.
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
            self._time_to_text(name)
        for name in _TEXTS:
            value: Any = getattr(self, name)
            if value is not None and not isinstance(value, str):
                kind = type(value).__name__
                raise InvalidInput(f"a field must be text. field=`{name}` type=`{kind}`")
        if self.error is not None and not isinstance(self.error, Mapping):
            raise InvalidInput(f"error must be a mapping. type=`{type(self.error).__name__}`")
        self._check_extra()

    def to_json(self) -> dict[str, JSON]:
        """Return the wire dict, without the missing fields."""
        known = {there for name, there in self._names().items() if name != "state"}
        wire = super().to_json()
        return {k: value for k, value in wire.items() if value is not None or k not in known}
