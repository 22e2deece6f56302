"""What the compatibility packages share: records, addresses, and the result of a transfer.

A record is a frozen dataclass. On the wire its fields have the same names in camelCase. Unknown
fields are kept in `extra` and written back; a field that is `ABSENT` is not written.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from limpet import AsyncStore, Store
from limpet.api.integrations import finding, times
from limpet.errors import InvalidInput, LimpetError, NotFound
from limpet.model import JSON, Finding, ScopeKey, SnapshotInfo

if TYPE_CHECKING:
    from dataclasses import Field

_UNDERSCORE = re.compile(r"_([a-z])")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_SHOWN_CHARS_MAX = 80


class Absent(Enum):
    """The type of `ABSENT`."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return self.name

    def __bool__(self) -> bool:
        return False


ABSENT: Final = Absent.ABSENT
"""The value of a missing field, where null would mean something else."""


class WireRecord:
    """A dataclass that is read from a wire dict and written as one."""

    __dataclass_fields__: ClassVar[dict[str, "Field[Any]"]]

    @classmethod
    def _names(cls) -> dict[str, str]:
        """Return the wire name of each field, in wire order."""
        names = [each.name for each in fields(cls) if each.name != "extra"]
        return {name: _UNDERSCORE.sub(lambda found: found[1].upper(), name) for name in names}

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> Self:
        """Return the record of a wire dict; unknown fields are kept.

        Raises:
            InvalidInput: it is not a mapping, or a field is missing.
        """
        require(isinstance(wire, Mapping), f"expected a {cls.__name__} or a mapping", wire)
        names = cls._names()
        known: dict[str, Any] = {n: wire[there] for n, there in names.items() if there in wire}
        extra = {name: value for name, value in wire.items() if name not in names.values()}
        if "extra" in cls.__dataclass_fields__:  # without it unknown fields are dropped
            known["extra"] = extra
        try:
            return cls(**known)
        except TypeError as cause:  # a field without a default is missing
            needed = ", ".join(names.values())
            raise InvalidInput(f"a {cls.__name__} lacks a field. fields=`{needed}`") from cause

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return the record itself, or the record of a wire dict."""
        return value if isinstance(value, cls) else cls.from_json(value)

    def to_json(self) -> dict[str, JSON]:
        """Return the wire dict. Its values are shared with the record."""
        values = {there: getattr(self, name) for name, there in self._names().items()}
        wire: dict[str, JSON] = {k: value for k, value in values.items() if value is not ABSENT}
        extra: Mapping[str, JSON] = getattr(self, "extra", {})
        return {**wire, **{name: value for name, value in extra.items() if name not in values}}

    def __post_init__(self) -> None:
        """Check `extra`, and replace datetimes by their wire texts: callers may give either."""
        extra: object = getattr(self, "extra", {})
        require(isinstance(extra, Mapping), "extra must be a mapping", extra)
        for name in self.__dataclass_fields__:
            if name.endswith("_at") and isinstance(moment := getattr(self, name), datetime):
                times.to_us(name, moment)  # refuses one without a zone
                object.__setattr__(self, name, wire_time(moment))


def require(is_valid: bool, fact: str, value: object) -> None:
    """Raise InvalidInput if a value is not valid. Only its type is shown: it may be a state."""
    if not is_valid:
        raise InvalidInput(f"{fact}. type=`{type(value).__name__}`")


def wire_time(moment: datetime) -> str:
    """Return a time as JavaScript writes it: UTC, in milliseconds."""
    plain = moment.astimezone(UTC).replace(tzinfo=None)
    return f"{plain.isoformat('T', 'milliseconds')}Z"


def moment_of(text: object) -> datetime | None:
    """Return the time of an ISO 8601 text, in UTC if it names no zone; None if it is not one."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.utcoffset() is not None else moment.replace(tzinfo=UTC)
        return times.from_us(times.to_us("moment", aware))
    except (ValueError, OverflowError, InvalidInput):
        return None


def shown(value: object) -> str:
    """Return a value as an error message shows it: short text, or only the type."""
    if not isinstance(value, str):
        return type(value).__name__  # it may be anything, also a state
    return ascii(value if len(value) <= _SHOWN_CHARS_MAX else f"{value[:_SHOWN_CHARS_MAX]}…")


def address_of(address: object) -> tuple[str, str | None]:
    """Return what `limpet.open` takes, and the folder if the address is a path and not a URL."""
    if isinstance(address, str) and _SCHEME.match(address):
        return address, None
    folder = folder_of(address)
    return folder, folder


def folder_of(folder: Any) -> str:
    """Return the absolute path of a folder, so that a later chdir does no harm.

    It begins with exactly one slash: `limpet.open` would not take two for a plain path.
    """
    try:
        path = os.fspath(folder)
        os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        path = b""
    if not isinstance(path, str) or not path or "\0" in path:
        raise InvalidInput(f"expected the path of a folder. type=`{type(folder).__name__}`")
    return "/" + os.path.abspath(os.path.expanduser(path)).lstrip("/")


def existing_folder(folder: Any) -> str:
    path = folder_of(folder)
    if not os.path.isdir(path):
        raise NotFound(f"there is no such folder. path=`{path}`")
    return path


def check_limit(limit: object) -> None:
    is_number = isinstance(limit, int) and not isinstance(limit, bool)
    require(limit is None or is_number, "limit must be None or a whole number", limit)


def check_store(store: object) -> Store | AsyncStore:
    if not isinstance(store, Store | AsyncStore):
        raise InvalidInput(f"expected a store. type=`{type(store).__name__}`")
    return store


def escaped(name: str) -> str:
    """Return a name as one part of an id whose parts are joined by `/`."""
    return name.replace("%", "%25").replace("/", "%2F")


def unescaped(part: str) -> str | None:
    """Return the name that `escaped` makes this of, None if there is no such name.

    Other programs choose ids freely: two of them must not read as one.
    """
    name = part.replace("%2F", "/").replace("%25", "%")
    return name if name and escaped(name) == part else None


@dataclass(frozen=True, slots=True)
class Transfer:
    """The result of an import or export: how many were carried over, and why others were not.

    An import counts what is new or has changed, and in `unchanged` what the store had already.
    """

    count: int
    skipped: tuple[Finding, ...] = ()
    unchanged: int = 0


class Tally:
    """What an import or export has carried over so far, and what it had to skip."""

    def __init__(self) -> None:
        self.count = 0
        self.unchanged = 0
        self.skipped: list[Finding] = []

    def add(self, before: SnapshotInfo | None, after: SnapshotInfo | None) -> None:
        """Count a snapshot that was imported; `before` is what the store had in its place."""
        if before is not None and after is not None and before.revision == after.revision:
            self.unchanged += 1
        else:
            self.count += 1

    def skip(
        self,
        code: str,
        fact: object,
        *,
        scope: ScopeKey | None = None,
        id: str | None = None,
        severity: str = "error",
        **values: Any,
    ) -> None:
        """Add a finding; `values` locate it in its message."""
        self.skipped.append(finding(severity, code, str(fact), scope=scope, id=id, **values))

    @contextmanager
    def skipping(self, code: str, *errors: type[LimpetError], **where: Any) -> Iterator[None]:
        """Skip what a block raises; other errors end the import or export."""
        try:
            yield
        except errors as cause:
            self.skip(code, cause, **where)

    def result(self) -> Transfer:
        return Transfer(self.count, tuple(self.skipped), self.unchanged)
