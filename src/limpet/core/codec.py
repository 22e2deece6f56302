"""Exact JSON, and the pipeline that turns an encoded state into stored bytes and back.

Encoding. A value is encoded by `orjson`. If it holds integers beyond 64 bits it is encoded by the
standard library instead, after one leading space: still legal JSON, and the sign that these bytes
need a parser that keeps such integers exact.

Exactness. `orjson` alone is not enough: it writes NaN as `null`, and a UUID as text. So the types
of all parts are checked first, level by level, with `gc.get_referents`: that costs little per part
and nothing per byte. For a value with very many parts `marshal` is faster: it accepts only built-in
types, and its output shows whether a float is not finite. All of that runs in C. Only a value that
fails these checks is walked in Python, to be encoded with care or refused with the path.

Pipeline. A body is an encoding, or a delta (core/deltas/delta.py). `squeeze` compresses and seals
it, `address_body` adds a checksum. `unpack` is their exact inverse.
"""

import gc
import json
import marshal
from math import isfinite
from typing import Any, NamedTuple, Protocol

import orjson
import xxhash
import zstandard

from limpet.core.limits import DEPTH_MAX, INTEGER_DIGITS_MAX
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON
from limpet.protocol import AppendOffsets

# A dataclass that is also a buffer would pass marshal.
_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS

_MARSHAL_VERSION = 4
_MARSHAL_FLOATS = frozenset(b"g\xe7")  # type code of a float, plain or flagged as referenced
_FALSE_ALARMS_MAX = 1_000
_CONTAINERS: frozenset[type] = frozenset((dict, list, tuple))
_KINDS: frozenset[type] = _CONTAINERS | {str, int, float, bool, type(None)}
_PARTS_MAX = 16 * 1024  # of a value that is checked level by level
_WIDE = b" "
_SHORT_CHARS = 1024
_MEMBERS_MAX = 64  # whose offsets are remembered: an agent's state has a handful


def encode(value: JSON, *, what: str = "state") -> bytes:
    """Return the bytes of a JSON value. Later changes to the value do not affect them.

    Raises:
        InvalidInput: a part of it is not JSON; the message has its path (a JSON Pointer).
    """
    try:
        if _is_plain(value):
            return orjson.dumps(value, option=_OPTIONS)
    except (TypeError, ValueError):
        pass  # not JSON, or JSON that needs care: the walk finds out
    return _encode_walking(value, what)


def encode_state(state: JSON) -> tuple[bytes, AppendOffsets | None]:
    """Return the bytes that `encode` gives, and the offsets at which its lists can be appended to.

    The offsets are None if the state is not an object, has very many members, or holds integers
    beyond 64 bits.
    """
    if type(state) is not dict or len(state) > _MEMBERS_MAX:
        return encode(state), None
    try:
        if _is_plain(state) and all(type(key) is str for key in state):
            return _encode_members(state)
    except (TypeError, ValueError):
        pass
    return _encode_walking(state, "state"), None


def _encode_members(state: dict[str, JSON]) -> tuple[bytes, AppendOffsets]:
    are_lists = [type(value) in (list, tuple) for value in state.values()]
    if not any(are_lists):
        return orjson.dumps(state, option=_OPTIONS), dict.fromkeys(state)
    behind = list(state.items())[are_lists.index(True) + 1 :]
    if sum(are_lists) == 1 and all(_is_short(value) for _, value in behind):
        # Only the members after the list have to be measured. Encoding the state in one go, instead
        # of joining encoded members, saves a copy of it.
        key = next(key for key, is_list in zip(state, are_lists, strict=True) if is_list)
        behind_bytes = len(orjson.dumps(dict(behind))) if behind else 1
        offsets: AppendOffsets = dict.fromkeys(state)
        offsets[key] = (behind_bytes + 1, bool(state[key]))
        return orjson.dumps(state, option=_OPTIONS), offsets
    return _joined_members(state, are_lists)


def _joined_members(state: dict[str, JSON], are_lists: list[bool]) -> tuple[bytes, AppendOffsets]:
    parts: list[bytes] = []
    for key, value in state.items():
        parts += (b",", orjson.dumps(key), b":", orjson.dumps(value, option=_OPTIONS))
    parts[0] = b"{"
    parts.append(b"}")
    offsets: AppendOffsets = {}
    behind = 1
    for at, key, is_list in zip(
        range(len(parts) - 2, 0, -4), reversed(state), reversed(are_lists), strict=True
    ):
        offsets[key] = (behind + 1, parts[at] != b"[]") if is_list else None
        behind += sum(map(len, parts[at - 3 : at + 1]))
    return b"".join(parts), offsets


def _is_short(value: JSON) -> bool:
    return type(value) in (int, float, bool, type(None)) or (
        type(value) is str and len(value) <= _SHORT_CHARS
    )


def _is_plain(value: JSON) -> bool:
    """Return whether orjson encodes a value exactly; True is certain.

    All parts must have JSON's own types, floats must be finite, and the levels few: orjson does not
    count tuples, and overflows the stack when they are nested too deep.
    """
    level, left = [value], _PARTS_MAX
    for _ in range(DEPTH_MAX):
        found = is_plain_level(level, _KINDS, _CONTAINERS)
        if found is not None:
            return found
        level = gc.get_referents(*level)
        left -= len(level)
        if left < 0:
            return _is_plain_and_large(value)
    kinds = set(map(type, level))
    # The last level may hold no container; a float there is left to the walk.
    return kinds <= _KINDS and kinds.isdisjoint(_CONTAINERS | {float})


def is_plain_level(level: list[Any], kinds: frozenset[type], inner: frozenset[type]) -> bool | None:
    """Return whether values have these types and are finite; None if their parts decide."""
    found = set(map(type, level))
    if not found <= kinds:
        return False
    if float in found and not all(isfinite(each) for each in level if type(each) is float):
        return False
    return True if found.isdisjoint(inner) else None


def _is_plain_and_large(value: JSON) -> bool:
    """As `_is_plain`, for a value of many parts, which `marshal` visits faster one by one.

    It also ends for cycles: marshal refuses what is nested without end.
    """
    shape = marshal.dumps(value, _MARSHAL_VERSION)
    return _is_shallow(value, len(shape)) and not _may_hold_nonfinite(shape)


def decode(encoded: bytes) -> JSON:
    """Return the value of encoded bytes.

    Raises:
        Corrupt: the bytes are not JSON.
    """
    try:
        if encoded.startswith(_WIDE):
            return json.loads(encoded, parse_constant=_refuse_constant)
        return orjson.loads(encoded)
    except (ValueError, RecursionError) as cause:
        raise Corrupt(f"stored bytes are not JSON. bytes=`{len(encoded)}`") from cause


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _is_shallow(value: JSON, parts_max: int) -> bool:
    """Return whether a value that marshal accepted is nested within the limit; True is certain.

    marshal writes at least one byte per part. If there are more parts than that, some are met again
    and again (a cycle), or one is not JSON and refers to half of the interpreter.
    """
    level = [value]
    for _ in range(DEPTH_MAX):
        level = gc.get_referents(*level)
        if not level:
            return True
        parts_max -= len(level)
        if parts_max < 0:
            return False
    return not any(isinstance(each, dict | list | tuple) for each in level)


def _may_hold_nonfinite(shape: bytes) -> bool:
    """Return whether marshal's output may hold NaN or an infinity; False is certain.

    The last two bytes of such a float are F0..FF, then 7F or FF: a pair that UTF-8 never has.
    """
    alarms = 0
    for last in (b"\x7f", b"\xff"):
        at = shape.find(last)
        while at >= 0:
            if at >= 8 and shape[at - 1] >= 0xF0 and shape[at - 8] in _MARSHAL_FLOATS:
                return True
            alarms += 1
            if alarms > _FALSE_ALARMS_MAX:
                return True
            at = shape.find(last, at + 1)
    return False


def _encode_walking(value: JSON, what: str) -> bytes:
    plain, wide = _Walk(what).plain(value)
    if not wide:
        return orjson.dumps(plain)
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _WIDE + text.encode()


class _Walk:
    """A pass over a value in Python. It refuses what is not JSON, with its path."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._path: list[str | int] = []
        self._wide = False

    def plain(self, value: JSON) -> tuple[JSON, bool]:
        """Return the value in built-in types, and whether it holds integers beyond 64 bits."""
        return self._visit(value, 0), self._wide

    def _refuse(self, why: str) -> InvalidInput:
        pointer = "".join(
            "/" + str(part).replace("~", "~0").replace("/", "~1") for part in self._path
        )
        shown = pointer.encode("utf-8", "backslashreplace").decode()
        return InvalidInput(f"{self._what} {why}. path=`{shown}`")

    def _visit(self, value: Any, depth: int) -> JSON:
        # One frame per level, so that a caller deep inside a framework does not overflow the stack.
        kind = type(value)
        if value is None or kind is bool:
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int):
            return self._integer(value)
        if isinstance(value, float):
            number = float.__pos__(value)
            if not isfinite(number):
                raise self._refuse("holds a number that is not finite")
            return number
        if not isinstance(value, dict | list | tuple):
            raise self._refuse(f"holds a value that is not JSON. type=`{kind.__name__}`")
        if depth >= DEPTH_MAX:
            raise self._refuse(f"is nested more than {DEPTH_MAX} levels deep")
        path = self._path
        if not isinstance(value, dict):
            items: list[JSON] = []
            for index, item in enumerate(value):
                path.append(index)
                items.append(self._visit(item, depth + 1))
                path.pop()
            return items
        members: dict[str, JSON] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise self._refuse(f"has a key that is not text. type=`{type(key).__name__}`")
            path.append(str.__str__(key))
            name = self._text(key)
            if name in members:
                raise self._refuse("has the same key twice")
            members[name] = self._visit(item, depth + 1)
            path.pop()
        return members

    def _text(self, value: str) -> str:
        plain = str.__str__(value)
        try:
            plain.encode()
        except UnicodeEncodeError:
            raise self._refuse("holds a lone surrogate") from None
        return plain

    def _integer(self, value: int) -> int:
        plain = value if type(value) is int else int.__pos__(value)
        if not -(2**63) <= plain < 2**64:
            self._wide = True
            # An integer of 14,280 bits is below 10 ** 4300, so most need no big power.
            if plain.bit_length() > 14_280 and abs(plain) >= 10**INTEGER_DIGITS_MAX:
                raise self._refuse(f"holds an integer of more than {INTEGER_DIGITS_MAX} digits")
        return plain


class Seal(Protocol):
    """Encryption at rest: below compression and deltas, which sealed bytes would defeat."""

    def seal(self, body: bytes) -> bytes: ...

    def unseal(self, body: bytes) -> bytes:
        """Return what `seal` was given, or raise Corrupt."""
        ...


class NoSeal:
    def seal(self, body: bytes) -> bytes:
        return body

    def unseal(self, body: bytes) -> bytes:
        return body


NO_SEAL = NoSeal()

WHOLE = 0  # the encoding itself
DELTA = 2  # a delta against its base
SEALED = 4  # a delta against its base, followed by the base of that
ZSTD = 1  # added to one of the others: compressed as one zstd frame

_ENCODINGS = frozenset(form + packing for form in (WHOLE, DELTA, SEALED) for packing in (0, ZSTD))

# A whole body below this takes a few pages at most and stays readable in any SQL shell. Compressing
# it would cost half as much again as storing it (docs/decisions/0008-small-bodies-stay-plain.md).
_COMPRESSED_MIN = {WHOLE: 16 * 1024, DELTA: 96, SEALED: 96}
_LEVEL = {WHOLE: 1, DELTA: 1, SEALED: 3}
_LEVEL_PACK = 7  # for one in 33 saves, whose bytes stay


class Packed(NamedTuple):
    """One stored body: its encoding, its bytes, and a checksum over both and its address."""

    encoding: int
    body: bytes
    checksum: int


def checksum_of(*parts: bytes) -> int:
    """Return a signed 64-bit checksum of the parts, which fits an integer column everywhere."""
    unsigned = xxhash.xxh3_64_intdigest(b"".join(parts))
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


_SUMMED = b'{"limpet":{"sum":"'


def write_summed(rest: bytes) -> bytes:
    """Return a small document `{"limpet":{"sum":"<checksum>",<rest>`."""
    rest = b'",' + rest
    return b"%s%016x%s" % (_SUMMED, checksum_of(rest) % 2**64, rest)


def read_summed(stored: bytes, *, what: str) -> bytes:
    """Return what `write_summed` was given, or raise Corrupt."""
    start, end = len(_SUMMED), len(_SUMMED) + 16
    rest = stored[end:]
    if stored[:start] != _SUMMED or b"%016x" % (checksum_of(rest) % 2**64) != stored[start:end]:
        raise Corrupt(f"a {what} fails its checksum. bytes=`{len(stored)}`")
    return rest[2:]


def squeeze(
    payload: bytes, form: int = WHOLE, *, pack: bool = False, seal: Seal = NO_SEAL
) -> tuple[int, bytes]:
    """Return the encoding and the bytes of a payload: compressed if that is shorter, then sealed.

    The payload is an encoded state or a delta as bytes; `pack` compresses it more thoroughly.
    """
    encoding, body = form, payload
    if len(payload) >= _COMPRESSED_MIN[form]:
        level = _LEVEL_PACK if pack else _LEVEL[form]
        frame = zstandard.ZstdCompressor(level=level).compress(payload)
        if len(frame) < len(payload):
            encoding, body = form + ZSTD, frame
    return encoding, seal.seal(body)


def form_of(encoding: int) -> int:
    return encoding & ~ZSTD


def address_body(encoding: int, body: bytes, *, address: bytes) -> Packed:
    """Add a checksum that holds at this address only."""
    return Packed(encoding, body, checksum_of(address, bytes((encoding,)), body))


def check_body(packed: Packed, address: bytes) -> None:
    """Raise Corrupt unless these are the bytes stored at the address, in a known encoding."""
    encoding, body, checksum = packed
    if encoding not in _ENCODINGS or not isinstance(body, bytes):
        raise Corrupt(f"a body has an encoding that is not known. encoding=`{encoding}`")
    if checksum_of(address, bytes((encoding,)), body) != checksum:
        raise Corrupt(f"a body fails its checksum. bytes=`{len(body)}`")


def unpack(
    packed: Packed,
    *,
    seal: Seal = NO_SEAL,
    address: bytes = b"",
    unzip: zstandard.ZstdDecompressor | None = None,
) -> bytes:
    """Return the payload. To unpack many bodies, pass one decompressor for all of them.

    Raises:
        Corrupt: these are not the bytes stored at the address, or their encoding is unknown.
    """
    check_body(packed, address)
    encoding, body, _ = packed
    body = seal.unseal(body)
    if not encoding & ZSTD:
        return body
    try:
        return (unzip or zstandard.ZstdDecompressor()).decompress(body)
    except zstandard.ZstdError as cause:
        raise Corrupt(f"a body does not decompress. bytes=`{len(body)}`") from cause
