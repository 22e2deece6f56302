"""Times as integer microseconds since 1970, as every engine stores them."""

from datetime import UTC, datetime, timedelta

from limpet.errors import Corrupt, InvalidInput

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_us(name: str, moment: object) -> int:
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidInput(f"{name} must be a datetime with a time zone")
    try:
        return (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND
    except OverflowError:
        raise InvalidInput(f"{name} is outside the years 1 to 9999 in UTC") from None


def from_us(microseconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError as cause:
        raise Corrupt(f"a stored time is out of range. microseconds=`{microseconds}`") from cause
