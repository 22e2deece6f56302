"""The records of `SnapshotStorage`, and how they stand on the wire.

On the wire the names are camelCase. Fields that are not known are kept in `extra` and written back.
Nothing in `data` and `app_data` is looked at, so any JSON passes through unchanged.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Self

from holdfast.core import times
from holdfast.errors import InvalidInput
from holdfast.model import JSON

SCOPES = ("agent", "multiAgent")
SCHEMA_VERSION = "1.0"
IDENTIFIER_CHARS_MAX = 200  # longer names of files are not taken as they are
_SHOWN_CHARS_MAX = 80

_UNDERSCORE = re.compile(r"_([a-z])")
_IDENTIFIER = re.compile(r"[a-z0-9_-]+")
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def is_identifier(text: str) -> bool:
    """Tell whether a text can name a session, a scope or a snapshot."""
    return len(text) <= IDENTIFIER_CHARS_MAX and _IDENTIFIER.fullmatch(text) is not None


def is_uuid7(text: str) -> bool:
    """Tell whether a text is a UUID of version 7, whose order is that of time."""
    return _UUID7.fullmatch(text) is not None


def check_identifier(name: str, value: object) -> str:
    """Return an identifier, or raise InvalidInput."""
    if not isinstance(value, str) or not is_identifier(value):
        raise InvalidInput(
            f"an identifier has 1 to {IDENTIFIER_CHARS_MAX} lowercase letters, digits, hyphens and "
            f"underscores. {name}=`{shown(value)}`"
        )
    return value


def shown(value: object) -> str:
    """Return a value as an error shows it: what is no short text may be anything, a state too."""
    if not isinstance(value, str):
        return type(value).__name__
    return ascii(value if len(value) <= _SHOWN_CHARS_MAX else f"{value[:_SHOWN_CHARS_MAX]}…")


def wire_time(moment: datetime) -> str:
    """Return a time as the wire has it: UTC, in milliseconds."""
    plain = moment.astimezone(UTC).replace(tzinfo=None)
    return f"{plain.isoformat('T', 'milliseconds')}Z"


class _Record:
    """What the records share: the fields are the same on the wire, but for the spelling."""

    @classmethod
    def _names(cls) -> dict[str, str]:
        """Return the name on the wire of each field, in the order in which they stand there."""
        names = [each.name for each in fields(cls) if each.name != "extra"]  # type: ignore[arg-type]
        return {name: _UNDERSCORE.sub(lambda found: found[1].upper(), name) for name in names}

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> Self:
        """Return the record that a wire dict holds; fields that are not known are kept.

        Raises:
            InvalidInput: it is no mapping, or a field is missing.
        """
        if not isinstance(wire, Mapping):
            raise InvalidInput(f"a {cls.__name__} must be one, or a mapping. type=`{_type(wire)}`")
        names = cls._names()
        known = {name: wire[there] for name, there in names.items() if there in wire}
        extra = {name: value for name, value in wire.items() if name not in names.values()}
        try:
            return cls(**known, extra=extra)  # type: ignore[call-arg]
        except TypeError as cause:  # one without a default is missing
            needed = ", ".join(names.values())
            raise InvalidInput(f"a {cls.__name__} lacks a field. fields=`{needed}`") from cause

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return the record itself, or that of its wire dict."""
        return value if isinstance(value, cls) else cls.from_json(value)

    def to_json(self) -> dict[str, JSON]:
        """Return the wire dict."""
        wire: dict[str, JSON] = {
            there: getattr(self, name) for name, there in self._names().items()
        }
        extra: Mapping[str, JSON] = getattr(self, "extra", {})
        return {**wire, **{name: value for name, value in extra.items() if name not in wire}}


def _type(value: object) -> str:
    return type(value).__name__


@dataclass(frozen=True)
class SnapshotLocation(_Record):
    """The line of an agent, or of several that work together, inside a session."""

    session_id: str
    scope: str
    scope_id: str
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)

    def check(self) -> Self:
        """Return it, or raise InvalidInput if it can be no place."""
        check_identifier("session_id", self.session_id)
        if not isinstance(self.scope, str) or self.scope not in SCOPES:
            raise InvalidInput(f"a scope is agent or multiAgent. scope=`{shown(self.scope)}`")
        check_identifier("scope_id", self.scope_id)
        return self


@dataclass(frozen=True)
class Snapshot(_Record):
    """The state of an agent at one moment. `created_at` is text, kept as it is."""

    scope: str
    schema_version: str
    created_at: str
    data: JSON
    app_data: JSON = field(default_factory=dict)
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _be_text(self, "created_at")
        _be_mapping(self)


@dataclass(frozen=True)
class SnapshotManifest(_Record):
    """What a scope says of itself. `updated_at` is text, kept as it is."""

    schema_version: str
    updated_at: str
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _be_text(self, "updated_at")
        _be_mapping(self)


def _be_mapping(record: Any) -> None:
    if not isinstance(record.extra, Mapping):
        raise InvalidInput(f"extra must be a mapping. type=`{_type(record.extra)}`")


def _be_text(record: object, name: str) -> None:
    """Let a time be given as such too."""
    moment = getattr(record, name)
    if isinstance(moment, datetime):
        times.to_us(name, moment)  # refuses one without a zone
        object.__setattr__(record, name, wire_time(moment))


@dataclass(frozen=True)
class SnapshotPage(_Record):
    """A page of ids. `next_token` is the `start_after` of the next one, None on the last."""

    snapshot_ids: tuple[str, ...]
    next_token: str | None = None
    extra: Mapping[str, JSON] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "snapshot_ids", tuple(self.snapshot_ids))

    def to_json(self) -> dict[str, JSON]:
        """Return the wire dict, without a token on the last page."""
        wire = super().to_json()
        if self.next_token is None:
            del wire["nextToken"]
        return {**wire, "snapshotIds": list(self.snapshot_ids)}
