"""What the records of foreign interfaces share: how they stand on the wire, and what errors show.

A record is a frozen dataclass. On the wire its fields have the same names in camelCase. Fields that
are not known are kept in `extra` and written back; one that is `ABSENT` is not written.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, Self

from limpet.core import times
from limpet.errors import InvalidInput
from limpet.model import JSON, Finding

_UNDERSCORE = re.compile(r"_([a-z])")
_SHOWN_CHARS_MAX = 80


class Absent(Enum):
    """The type of `ABSENT`."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return self.name

    def __bool__(self) -> bool:
        return False


ABSENT: Final = Absent.ABSENT
"""The value of a field that is not there, where null would mean something else."""


class Record:
    """A record that has a wire dict."""

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
            kind = type(wire).__name__
            raise InvalidInput(f"a {cls.__name__} must be one, or a mapping. type=`{kind}`")
        names = cls._names()
        known = {name: wire[there] for name, there in names.items() if there in wire}
        extra = {name: value for name, value in wire.items() if name not in names.values()}
        try:
            return cls._made(known, extra)
        except TypeError as cause:  # one without a default is missing
            needed = ", ".join(names.values())
            raise InvalidInput(f"a {cls.__name__} lacks a field. fields=`{needed}`") from cause

    @classmethod
    def _made(cls, known: Mapping[str, Any], extra: Mapping[str, Any]) -> Self:
        return cls(**known, extra=extra)  # type: ignore[call-arg]

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return the record itself, or that of its wire dict."""
        return value if isinstance(value, cls) else cls.from_json(value)

    def to_json(self) -> dict[str, JSON]:
        """Return the wire dict. It shares what is inside with the record."""
        all_of_it = {there: getattr(self, name) for name, there in self._names().items()}
        wire: dict[str, JSON] = {k: value for k, value in all_of_it.items() if value is not ABSENT}
        extra: Mapping[str, JSON] = getattr(self, "extra", {})
        others = {name: value for name, value in extra.items() if name not in all_of_it}
        return {**wire, **others}

    def _check_extra(self) -> None:
        extra: object = getattr(self, "extra", {})
        if not isinstance(extra, Mapping):
            raise InvalidInput(f"extra must be a mapping. type=`{type(extra).__name__}`")

    def _be_text(self, name: str) -> None:
        """Let a time be given as such too."""
        moment = getattr(self, name)
        if isinstance(moment, datetime):
            times.to_us(name, moment)  # refuses one without a zone
            object.__setattr__(self, name, wire_time(moment))


def wire_time(moment: datetime) -> str:
    """Return a time as JavaScript writes it: UTC, in milliseconds."""
    plain = moment.astimezone(UTC).replace(tzinfo=None)
    return f"{plain.isoformat('T', 'milliseconds')}Z"


def shown(value: object) -> str:
    """Return a value as an error shows it: what is no short text may be anything, a state too."""
    if not isinstance(value, str):
        return type(value).__name__
    return ascii(value if len(value) <= _SHOWN_CHARS_MAX else f"{value[:_SHOWN_CHARS_MAX]}…")


# Where things are, as people name it: a folder, or a URL.

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def address_of(place: object) -> tuple[str, str | None]:
    """Return what `limpet.open` takes, and the folder that it is if it was given as such."""
    if isinstance(place, str) and _SCHEME.match(place):
        return place, None
    folder = folder_of(place)
    return folder, folder


def folder_of(place: Any) -> str:
    """Return the absolute path of a folder, so that a later change of directory does no harm.

    It has one slash at its beginning: what has two is no plain path where a URL may stand.
    """
    try:
        path = os.fspath(place)
        os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        path = b""
    if not isinstance(path, str) or not path or "\0" in path:
        raise InvalidInput(f"that is no folder. type=`{type(place).__name__}`")
    return "/" + os.path.abspath(os.path.expanduser(path)).lstrip("/")


# What importing from, and exporting to, the files of another tool comes to.


@dataclass(frozen=True, slots=True)
class Transfer:
    """How many were carried over, and why others were not."""

    count: int
    skipped: tuple[Finding, ...] = ()
