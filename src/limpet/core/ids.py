"""Ids (UUIDv7 on a hybrid logical clock), and the revisions that compare-and-set compares."""

import re

from limpet.core.limits import ID_CHARS_MAX
from limpet.errors import Corrupt, InvalidInput

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_FORK = re.compile(r"~[a-z0-9]{8}\Z")
_DIGITS = "abcdefghijklmnopqrstuvwxyz0123456789"
SEQ_MAX = (1 << 63) - 1  # what an integer column holds
_RANDOM_BITS = 74
_RANDOM_MASK = (1 << _RANDOM_BITS) - 1
_TIME_MAX = (1 << 48) - 1
_STEP_MASK = (1 << 32) - 1
_TAG_MASK = (1 << 40) - 1


def mint(now_us: int, bits: int, floor: str, line: int | None = None) -> str:
    """Return a UUIDv7 that is greater than `floor`, the greatest one minted before ("" for none).

    It carries the given time, unless that does not exceed the floor (equal clocks, a clock that
    stepped back): then it is a small random step above the floor. With a `line`, the place of the
    first change of a scope, it carries the tag of that:
    `<time>-7<3 digits of the tag>-8<3 more>-<4 more><8 random digits>`.
    """
    now_ms = min(max(0, now_us // 1000), _TIME_MAX)
    if line is None:
        text = _text_of((now_ms << _RANDOM_BITS) | (bits & _RANDOM_MASK))
        return text if text > floor else _text_of(_value_of(floor) + 1 + (bits & _STEP_MASK))
    tag = ((line >> 28 & 0xFFF) << 62) | ((line & 0xFFF_FFFF) << 32)
    text = _text_of((now_ms << _RANDOM_BITS) | tag | (bits & _STEP_MASK))
    if text > floor:
        return text
    above = _value_of(floor)
    time, low = above >> _RANDOM_BITS, (above & _STEP_MASK) + 1 + (bits & 0xFFFF)
    text = _text_of((time << _RANDOM_BITS) | tag | (low & _STEP_MASK))
    # Not greater: there is no step left, or the floor has a greater tag.
    return text if text > floor else _text_of((time + 1 << _RANDOM_BITS) | tag | (low & 0xFFFF))


def may_begin_minted(text: str) -> bool:
    """Return whether an id that we minted may begin with a text."""
    return _UUID7.fullmatch(text + "00000000-0000-7000-8000-000000000000"[len(text) :]) is not None


def tag_of(text: str) -> int | None:
    """Return the 40 bits of a UUIDv7 where a tag is; None for any other text."""
    if not _UUID7.fullmatch(text):
        return None
    return int(text[15:18] + text[20:23] + text[24:28], 16)


def _value_of(text: str) -> int:
    """Return the 122 free bits of a UUIDv7: 48 of time, 12 and 62 random ones."""
    if not _UUID7.fullmatch(text):
        raise Corrupt("the greatest id minted in a scope is not a UUIDv7")
    whole = int(text.replace("-", ""), 16)
    time = whole >> 80
    high = (whole >> 64) & 0xFFF
    low = whole & ((1 << 62) - 1)
    return (time << _RANDOM_BITS) | (high << 62) | low


def _text_of(value: int) -> str:
    time = value >> _RANDOM_BITS
    if time > _TIME_MAX:
        raise Corrupt("no greater id can be minted: the floor is at the end of time")
    high = (value >> 62) & 0xFFF
    low = value & ((1 << 62) - 1)
    text = f"{(time << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


# Where no counter is shared, a place in history (`seq`) is a time: microseconds, and ten more bits
# that keep equal times apart.
PLACE_BITS = 10
_PLACE_US_MAX = 8 * 10**15  # the year 2223, so that there is always a greater one


def place(now_us: int, last: int, bits: int) -> int:
    """Return a place greater than `last`: that of the given time if it is greater."""
    time_us = max(0, min(now_us, _PLACE_US_MAX), (last >> PLACE_BITS) + 1)
    return (time_us << PLACE_BITS) | (bits % (1 << PLACE_BITS))


def place_at(now_us: int) -> int:
    """Return the last place of a moment."""
    return (max(0, min(now_us, _PLACE_US_MAX)) << PLACE_BITS) | ((1 << PLACE_BITS) - 1)


def tag_of_place(seq: int) -> int:
    """Return the tag of the ids that are minted in a scope whose first change has a place."""
    return seq & _TAG_MASK


def place_us(seq: int) -> int:
    return seq >> PLACE_BITS


def time_ms_of(text: str) -> int | None:
    return int(text.replace("-", "")[:12], 16) if _UUID7.fullmatch(text) else None


def fork_base(scope_id: str) -> str:
    """Return the name of a scope without the suffix that a fork was given."""
    return _FORK.sub("", scope_id) or scope_id


def fork_name(scope_id: str, bits: int) -> str:
    """Return the name of a fork's scope: `<scope_id>~<8 of [a-z0-9]>`.

    A fork of a fork replaces the suffix instead of growing another.
    """
    base = fork_base(scope_id)[: ID_CHARS_MAX - 9]
    suffix = ""
    for _ in range(8):
        bits, digit = divmod(bits, len(_DIGITS))
        suffix += _DIGITS[digit]
    return f"{base}~{suffix}"


def revision(seq: int, rev: int, nonce: str) -> str:
    return f"{seq:x}.{rev:x}.{nonce}"


def rev_of(token: str) -> int:
    """Return how often a snapshot had been changed in place at a revision."""
    return int(token.split(".")[1], 16)


def nonce_of(token: str) -> str:
    """Return the part of a revision that no other write has."""
    return token.rpartition(".")[2]


def seq_of(token: str) -> int:
    """Return the place in history of a snapshot's revision, or raise InvalidInput.

    So a listing can continue after a snapshot that was deleted meanwhile.
    """
    place, dot, _ = token.partition(".")
    try:
        seq = int(place, 16)
    except ValueError:
        seq = -1
    if not dot or not 0 <= seq <= SEQ_MAX:
        raise InvalidInput("the cursor is not a snapshot's info of this store")
    return seq


def prefix_end(prefix: str) -> str | None:
    """Return the least text, in code-point order, above all that begin with `prefix`.

    None: there is none. An index serves a prefix as the range from it to its end.
    """
    for at in range(len(prefix) - 1, -1, -1):
        following = ord(prefix[at]) + 1
        if following == 0xD800:
            following = 0xE000  # surrogates cannot be stored
        if following <= 0x10FFFF:
            return prefix[:at] + chr(following)
    return None
