"""Exact JSON; checksums and compression of what is stored.

Encoding. A value is encoded by `orjson`. If it holds integers beyond 64 bits it is encoded by the
standard library instead, after one leading space: still legal JSON, and the sign that these bytes
need a parser that keeps such integers exact.

Exactness. `orjson` alone is not enough: it writes NaN as `null`, and a UUID as text. So the types
of all parts are checked, level by level, with `gc.get_referents`: that costs little per part and
nothing per byte. Only a value that fails these checks is walked in Python, to be encoded with care
or refused with the path.

Changes meanwhile. Another thread may change the value at any moment between two instructions of
Python code. So one call of C code encodes it and lists its parts again: if they are the parts that
were checked, so is what was encoded. Nothing else is derived from the value: the append offsets
come from the encoded bytes. Without the GIL other threads also run during that call: then every
value is copied by the walk, which reads each container once, and the copy is encoded.
"""

import gc
import json
import operator
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, starmap
from math import isfinite
from operator import length_hint
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar

import orjson
import xxhash
import zstandard

from limpet.core.limits import DEPTH_MAX, INTEGER_DIGITS_MAX, STORED_BYTES_MAX
from limpet.errors import Corrupt, InvalidInput
from limpet.model import JSON
from limpet.protocol import AppendOffsets

T = TypeVar("T")
Default: TypeAlias = Callable[[Any], JSON]

_dumps = partial(orjson.dumps, option=orjson.OPT_PASSTHROUGH_DATACLASS)

_call: Callable[[Callable[[], Any]], Any] = operator.call
# It may be enabled later, by an import, but not disabled.
_HAS_GIL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()

_CONTAINERS: frozenset[type] = frozenset((dict, list, tuple))
_SIZED: frozenset[type] = _CONTAINERS | {str}
_KINDS: frozenset[type] = _CONTAINERS | {str, int, float, bool, type(None)}
_TEXT: frozenset[type] = frozenset((str,))
_NUMBERS: frozenset[type] = frozenset((int, float, bool, type(None)))
_SHORT: frozenset[type] = _NUMBERS | _TEXT
_JSON_TYPES = (str, int, float, dict, list, tuple, type(None))
_CONVERSIONS_MAX = 16  # of one value, one after the other
_SHARED_MIN = 16_384  # parts of a level that is searched for containers that are shared
_KEYS_MIN = 32  # parts of a level, or levels, of which the keys count for the size
_SAMPLES = 32  # parts whose keys are measured first
_PART_NS = 300  # to check and encode one part; a character takes less than one
_LARGE_NS = 5_000_000
_UNBOUNDED = 2**62
_WIDE = b" "
# Every digit as 0, all else as a space: to find a long number in it is ten times as fast as with a
# regular expression.
_DIGITS = bytes(48 if 48 <= each <= 57 else 32 for each in range(256))
_LONG = b"0" * 19  # digits: perhaps an integer beyond 64 bits
_SHORT_CHARS = 1024
_TRIMMED_BYTES_MAX = 64 * 1024
_MEMBERS_MAX = 64  # whose offsets are remembered: an agent's state has a handful


def encode(
    value: JSON,
    *,
    what: str = "state",
    bytes_max: int = _UNBOUNDED,
    default: Default | None = None,
) -> bytes:
    """Return the bytes of a JSON value. Later changes to the value do not affect them.

    `default` is called for each part that is not JSON, as in `json.dumps`; what it returns is
    checked as every other part.

    Raises:
        InvalidInput: a part of it is not JSON (the message has its path, a JSON Pointer); or it is
            certain, before it is encoded, that it takes more than `bytes_max`.
    """
    found = _encode_plain(value, partial(_dumps, value), what, bytes_max)
    return _trimmed(found) if found is not None else _Walk(what, bytes_max, default).encode(value)


def encode_state(
    state: JSON, *, bytes_max: int = _UNBOUNDED, default: Default | None = None
) -> tuple[bytes, AppendOffsets | None]:
    """Return the bytes that `encode` gives, and the offsets at which its lists can be appended to.

    The offsets are None if the state is not an object, has very many members, or holds integers
    beyond 64 bits.
    """
    if type(state) is not dict or len(state) > _MEMBERS_MAX:
        return encode(state, bytes_max=bytes_max, default=default), None
    own = dict(state)  # its members stay; only what they hold can change
    found = None
    if set(map(type, own)) <= _TEXT:
        found = _encode_members(own, bytes_max)
    return (_Walk("state", bytes_max, default).encode(own), None) if found is None else found


def encode_items(key: str, items: JSON, *, bytes_max: int, default: Default | None = None) -> bytes:
    """Return the bytes of a list as a member of a state: a refusal has the path and depth there."""
    member = {key: items}
    found = _encode_plain(member, partial(_dumps, member), "state", bytes_max)
    if found is not None:
        return found[len(orjson.dumps(key)) + 2 : -1]
    plain, wide = _Walk("state", bytes_max, default).plain(member)
    return _written(plain[key], wide)


def _encode_members(own: dict[str, JSON], bytes_max: int) -> tuple[bytes, AppendOffsets] | None:
    kinds = list(map(type, own.values()))
    lists = kinds.count(list) + kinds.count(tuple)
    start = len(kinds)  # of the members after the list
    if lists:
        start = 1 + kinds.index(list if list in kinds else tuple)
        if lists > 1 or not _are_short(own, kinds, start):
            each: Callable[[], list[bytes]] = partial(list, map(_dumps, own.values()))
            parts = _encode_plain(own, each, "state", bytes_max)
            return None if parts is None else _joined_members(own, kinds, parts)
    # Only the members after the list have to be measured. Encoding the state in one go, instead of
    # joining encoded members, saves a copy of it.
    encoded = _encode_plain(own, partial(_dumps, own), "state", bytes_max)
    if encoded is None:
        return None
    offsets: AppendOffsets = dict.fromkeys(own)
    if lists:
        behind = dict(islice(own.items(), start, None))
        at = (len(orjson.dumps(behind)) if behind else 1) + 1
        offsets[next(islice(own, start - 1, None))] = (at, encoded[-at - 1 : -at] != b"[")
    is_short = len(encoded) < _TRIMMED_BYTES_MAX  # as `_trimmed`, without a call
    return bytes(memoryview(encoded)) if is_short else encoded, offsets


def _joined_members(
    own: dict[str, JSON], kinds: list[type], values: list[bytes]
) -> tuple[bytes, AppendOffsets]:
    parts: list[bytes] = []
    for key, value in zip(own, values, strict=True):
        parts += (b",", orjson.dumps(key), b":", value)
    parts[0] = b"{"
    parts.append(b"}")
    offsets: AppendOffsets = {}
    behind = 1
    places = zip(range(len(parts) - 2, 0, -4), reversed(own), reversed(kinds), strict=True)
    for at, key, kind in places:
        is_list = kind is list or kind is tuple
        offsets[key] = (behind + 1, parts[at] != b"[]") if is_list else None
        behind += sum(map(len, parts[at - 3 : at + 1]))
    return b"".join(parts), offsets


def _trimmed(encoded: bytes) -> bytes:
    """Copy bytes that will be kept: behind a short result orjson leaves some KB of unused room."""
    return bytes(memoryview(encoded)) if len(encoded) < _TRIMMED_BYTES_MAX else encoded


def _are_short(own: dict[str, JSON], kinds: list[type], start: int) -> bool:
    """Return whether the members from a place on are numbers or short texts."""
    found = set(kinds[start:])
    if found.isdisjoint(_TEXT):
        return found <= _NUMBERS
    return (
        found <= _SHORT and max(map(length_hint, islice(own.values(), start, None))) <= _SHORT_CHARS
    )


def _encode_plain(value: JSON, encode_it: Callable[[], T], what: str, bytes_max: int) -> T | None:
    """Return what `encode_it` returns if it is certain that orjson encodes the value exactly."""
    if not _HAS_GIL:
        return None
    try:
        levels = _levels(value, what, bytes_max)
        if levels is None:
            return None
        again: list[list[Any]] = [[value]]
        list_again = islice(starmap(gc.get_referents, again), len(levels) - 1)
        calls: tuple[Callable[[], Any], ...] = (encode_it, partial(again.extend, list_again))
        # One call of C code, in which no other thread can run.
        encoded, _ = list(map(_call, calls))
    except (TypeError, ValueError):
        return None  # not JSON, or JSON that needs care: the walk finds out
    result: T | None = encoded if levels == again else None
    return result


def _levels(value: JSON, what: str, bytes_max: int) -> list[list[Any]] | None:
    """Return the parts of a value, level by level; None if orjson may not encode it exactly.

    All parts must have JSON's own types, floats must be finite, and the levels few: orjson does not
    count tuples, and overflows the stack when they are nested too deep.

    Raises:
        InvalidInput: the value takes more than `bytes_max`.
    """
    level, levels, size = [value], [[value]], 1
    for _ in range(DEPTH_MAX + 1):
        if size > bytes_max:
            raise _too_large(what, bytes_max)
        found = set(map(type, level))
        if not found <= _KINDS or (float in found and not _are_finite(level)):
            return None
        # All characters, and a comma for each part of the next level: what is shared counts again.
        size += sum(map(length_hint, level))
        if len(level) > _KEYS_MIN or len(levels) > _KEYS_MIN:
            size += _key_bytes(level, bytes_max - size)
        if size > bytes_max:
            raise _too_large(what, bytes_max)
        if found.isdisjoint(_CONTAINERS):
            return levels
        if len(level) > _SHARED_MIN and _are_shared(_only(_CONTAINERS, level, found)):
            return None
        level = gc.get_referents(*level)
        levels.append(level)
        size += len(level)
    return None


def _key_bytes(level: list[Any], bytes_left: int) -> int:
    """Return how many bytes the keys in a level take at the least."""
    # Adding up all keys would take as long as encoding them, so a sample is measured first.
    step = 1 + len(level) // _SAMPLES
    some = sum(_key_sizes(level[::step]))
    return some if some * step <= bytes_left else sum(_key_sizes(level))


def _key_sizes(level: list[Any]) -> Iterator[int]:
    return (sum(map(len, each)) for each in level if type(each) is dict)


def is_large(value: JSON) -> bool:
    """Return whether an event loop should not wait for a value to be encoded."""
    level, cost_ns = [value], 0
    while level:
        found = set(map(type, level))
        if not found <= _KINDS:
            return True  # it is walked in Python
        cost_ns += _PART_NS * len(level) + sum(map(len, _only(_SIZED, level, found)))
        if cost_ns > _LARGE_NS:
            return True
        level = [] if found.isdisjoint(_CONTAINERS) else gc.get_referents(*level)
    return False


def _are_shared(containers: list[Any]) -> bool:
    """Return whether most are the same: the walk visits each only once."""
    return 2 * len(set(map(id, containers))) < len(containers)


def _only(kinds: frozenset[type], level: list[Any], found: set[type]) -> list[Any]:
    """Return the values of some types, given the types found among them."""
    if found.isdisjoint(kinds):
        return []
    return level if found <= kinds else [each for each in level if type(each) in kinds]


def _too_large(what: str, bytes_max: int) -> InvalidInput:
    return InvalidInput(f"the {what} is too large. bytes=`more than {bytes_max}` max=`{bytes_max}`")


def is_plain_level(level: list[Any], kinds: frozenset[type], inner: frozenset[type]) -> bool | None:
    """Return whether values have these types and are finite; None if their parts decide."""
    found = set(map(type, level))
    if not found <= kinds or (float in found and not _are_finite(level)):
        return False
    return True if found.isdisjoint(inner) else None


def _are_finite(level: list[Any]) -> bool:
    return all(isfinite(each) for each in level if type(each) is float)


def decode(encoded: bytes) -> JSON:
    """Return the value of encoded bytes.

    Raises:
        Corrupt: the bytes are not JSON.
    """
    try:
        if encoded.startswith(_WIDE):
            return json.loads(encoded, parse_constant=_refuse_constant, parse_float=_finite)
        return orjson.loads(encoded)
    except (ValueError, RecursionError) as cause:
        raise Corrupt(f"stored bytes are not JSON. bytes=`{len(encoded)}`") from cause


def decode_foreign(encoded: bytes) -> JSON:
    """Return the value of JSON of other tools, which do not mark integers beyond 64 bits.

    Raises:
        Corrupt: the bytes are not JSON.
    """
    # The fast parser would round such integers.
    return decode(_WIDE + encoded if _LONG in encoded.translate(_DIGITS) else encoded)


def escaped(key: str) -> str:
    """Return a key as a part of a JSON Pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _refuse_constant(digits)


def _written(plain: JSON, wide: bool) -> bytes:
    if not wide:
        return _trimmed(orjson.dumps(plain))
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _WIDE + text.encode()


class _Visited(NamedTuple):
    value: Any  # kept, so that no other value gets its id
    depth: int
    size: int
    plain: JSON


class _Walk:
    """A pass over a value in Python. It refuses what is not JSON, with its path.

    Each container is read once, so that the result is one value even if it changes meanwhile; and
    one that many others hold costs no more than one that is held once.
    """

    def __init__(self, what: str, bytes_max: int, default: Default | None) -> None:
        self._what = what
        self._bytes_max = bytes_max
        self._default = default
        self._size = 0  # at the least
        self._visited: dict[int, _Visited] = {}
        self._within: set[int] = set()  # the ids of what holds the value that is visited
        self._path: list[str | int] = []
        self._wide = False

    def encode(self, value: JSON) -> bytes:
        return _written(*self.plain(value))

    def plain(self, value: JSON) -> tuple[JSON, bool]:
        """Return the value in built-in types, and whether it holds integers beyond 64 bits."""
        return self._visit(value, 0), self._wide

    def _refuse(self, why: str) -> InvalidInput:
        pointer = "".join(f"/{escaped(str(part))}" for part in self._path)
        shown = pointer.encode("utf-8", "backslashreplace").decode()
        return InvalidInput(f"{self._what} {why}. path=`{shown}`", path=shown)

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
                raise self._refuse("holds a number that is not finite: use None or text")
            return number
        known = self._visited.get(id(value))
        if known is not None and depth <= known.depth:
            self._grow(known.size)
            return known.plain
        given = value
        if not isinstance(value, dict | list | tuple):
            value = self._converted(value)
            if not isinstance(value, dict | list | tuple):
                return self._visit(value, depth)
        if not self._within.isdisjoint((id(given), id(value))):
            raise self._refuse("holds a cycle: here is a value that is inside itself")
        if depth >= DEPTH_MAX:
            raise self._refuse(f"is nested more than {DEPTH_MAX} levels deep")
        self._within |= {id(given), id(value)}
        before = self._size
        path = self._path
        plain: JSON
        if isinstance(value, dict):
            plain = {}
            for key, item in list(value.items()):
                if not isinstance(key, str):
                    found = type(key).__name__
                    raise self._refuse(f"has a key that is not text: use str(key). type=`{found}`")
                path.append(str.__str__(key))
                self._grow(2)
                name = self._text(key)
                if name in plain:
                    raise self._refuse("has the same key twice")
                plain[name] = self._visit(item, depth + 1)
                path.pop()
        else:
            plain = []
            for index, item in enumerate(list(value)):
                path.append(index)
                self._grow(2)
                plain.append(self._visit(item, depth + 1))
                path.pop()
        self._within -= {id(given), id(value)}
        self._visited[id(given)] = _Visited(given, depth, self._size - before, plain)
        return plain

    def _converted(self, value: Any) -> JSON:
        """Return what the caller's function makes of a value that is not JSON."""
        name = type(value).__name__
        if self._default is None:
            advice = "convert it, or open the store with default=limpet.jsonable"
            raise self._refuse(f"holds a value that is not JSON: {advice}. type=`{name}`")
        for _ in range(_CONVERSIONS_MAX):
            try:
                value = self._default(value)
            except TypeError as cause:  # as functions for `json.dumps` refuse a value
                advice = "convert it, or have the store's `default` do it"
                why = f"holds a value that is not JSON: {advice}. type=`{name}`"
                raise self._refuse(why) from cause
            if isinstance(value, _JSON_TYPES):
                return value
        raise self._refuse(f"holds a value that `default` never makes JSON. type=`{name}`")

    def _text(self, value: str) -> str:
        plain = str.__str__(value)
        try:
            plain.encode()
        except UnicodeEncodeError:
            raise self._refuse("holds a lone surrogate") from None
        self._grow(len(plain))
        return plain

    def _integer(self, value: int) -> int:
        plain = value if type(value) is int else int.__pos__(value)
        if not -(2**63) <= plain < 2**64:
            self._wide = True
            # An integer of 14,280 bits is below 10 ** 4300, so most need no big power.
            if plain.bit_length() > 14_280 and abs(plain) >= 10**INTEGER_DIGITS_MAX:
                raise self._refuse(f"holds an integer of more than {INTEGER_DIGITS_MAX} digits")
            self._grow(plain.bit_length() // 4)  # it has more digits than this
        return plain

    def _grow(self, count: int) -> None:
        """Count bytes that are certain: two for a part and its comma, and those of its text."""
        self._size += count
        if self._size > self._bytes_max:
            raise _too_large(self._what, self._bytes_max)


def checksum_of(*parts: bytes) -> int:
    """Return a signed 64-bit checksum of the parts, which fits an integer column everywhere."""
    unsigned = xxhash.xxh3_64_intdigest(b"".join(parts))
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


# Compressors that nobody uses. To make one takes longer than to compress a small payload, since its
# memory comes from the operating system each time. One must not be used by two threads at once.
_idle_compressors: dict[int, list[zstandard.ZstdCompressor]] = {}


def compress(payload: bytes, level: int) -> bytes:
    """Return a zstd frame."""
    idle = _idle_compressors.setdefault(level, [])
    try:
        compressor = idle.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=level)
    frame = compressor.compress(payload)
    idle.append(compressor)
    return frame


def decompress(frame: bytes, *, what: str) -> bytes:
    """Return what `compress` was given, or raise Corrupt."""
    try:
        # A few KB may say to be many GB, and have the right checksum.
        if 0 <= zstandard.frame_content_size(frame) <= STORED_BYTES_MAX:
            return zstandard.ZstdDecompressor().decompress(frame)
    except zstandard.ZstdError as cause:
        raise Corrupt(f"a {what} does not decompress. bytes=`{len(frame)}`") from cause
    raise Corrupt(f"a {what} is too large, or does not say its size. bytes=`{len(frame)}`")
