"""Exact JSON (promise 9), case by case: what is JSON comes back as it was, all else is refused.

The tests for any JSON are in tests/property.
"""

import array
import ctypes
import datetime
import decimal
import enum
import json
import subprocess
import sys
import time
import traceback
import uuid
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
import pytest

from limpet.core.codec import decode, decode_foreign, encode
from limpet.core.limits import DEPTH_MAX, INTEGER_DIGITS_MAX, STATE_BYTES_MAX
from limpet.errors import Corrupt, InvalidInput
from tests.cases import for_each

NAN = float("nan")
INF = float("inf")


def round_trip(value: Any) -> Any:
    return decode(encode(value))


def refusal(value: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        encode(value)
    return str(caught.value)


def refused_at(value: Any) -> str:
    """Return the JSON Pointer at which `value` is refused."""
    return refusal(value).partition(" path=`")[2].removesuffix("`")


def nested(levels: int, inner: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(levels):
        inner = wrap(inner)
    return inner


def in_list(inner: Any) -> Any:
    return [inner]


def in_tuple(inner: Any) -> Any:
    return (inner,)


def in_object(inner: Any) -> Any:
    return {"k": inner}


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Real(float):
    pass


class Items(list[Any]):
    pass


class Members(dict[Any, Any]):
    pass


class Colour(str, enum.Enum):  # noqa: UP042  # the older spelling prints as `Colour.RED`
    RED = "red/~"


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    y: int


OldPoint = namedtuple("OldPoint", ["x", "y"])  # the untyped kind is JSON as well


class OwnEquality(float):
    """Like a unit of measure: equal only to its own kind, and compared by its text."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnEquality) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class OwnEncode(str):
    """Text that has a method of the name `encode`, which is not that of text."""

    __slots__ = ()

    def encode(self, *, body: bytes) -> bytes:  # type: ignore[override]
        return body


class Plain(enum.Enum):
    RED = "red"


@dataclass
class Record:
    x: int = 1


@dataclass
class BufferRecord(bytearray):
    """Both `orjson` (as a dataclass) and `marshal` (as a buffer) take this."""

    x: int = 1


class OwnHash(str):
    """Text that a dict takes for another key than the same plain text."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        return self is other


# What comes back.


@for_each(
    "value, plain",
    [
        (Text("a\0😀"), "a\0😀"),
        (Whole(7), 7),
        (Whole(2**70), 2**70),
        (Real(-0.0), -0.0),
        (Real(1.0), 1.0),
        (OwnEquality(1.5), 1.5),
        (OwnEncode("text"), "text"),
        (Level.LOW, 1),
        (Colour.RED, "red/~"),
        (Items([1, Items()]), [1, []]),
        (Members(b=1, a=Members()), {"b": 1, "a": {}}),
        (OrderedDict([("b", 1), ("a", 2)]), {"b": 1, "a": 2}),
        (defaultdict(list, {"b": [1]}), {"b": [1]}),
        ((), []),
        ((1, (2.0, ())), [1, [2.0, []]]),
        (Point(1, 2), [1, 2]),
        (OldPoint(1, 2), [1, 2]),
        ({Text("b"): 1, Colour.RED: 2}, {"b": 1, "red/~": 2}),
        ({OwnEncode("k"): 1}, {"k": 1}),
    ],
)
def test_subclasses_come_back_as_json_s_own_types(value: Any, plain: Any) -> None:
    assert encode(value) == encode(plain)
    assert encode([value, {"k": value}]) == encode([plain, {"k": plain}])
    assert repr(round_trip(value)) == repr(plain)


# Depth.


@for_each("wrap", [in_list, in_tuple, in_object])
@for_each("inner", [1, None, "", 2**70, [], {}, (), Items(), Members(), [1], (1,)])
def test_depth_is_counted_alike_for_every_container(wrap: Callable[[Any], Any], inner: Any) -> None:
    """200 levels are fine and 201 are not, so what was loaded can always be saved again."""
    own_levels = int(isinstance(inner, list | dict | tuple))
    deepest = nested(DEPTH_MAX - own_levels, inner, wrap)
    again = round_trip(deepest)
    assert encode(again) == encode(deepest)
    assert "levels deep" in refusal(wrap(deepest))
    assert "levels deep" in refusal(nested(300, inner, wrap))


def test_too_deep_is_refused_with_its_path_among_others() -> None:
    deep = nested(DEPTH_MAX, 1, in_list)
    assert refused_at({"a": 1, "b": deep}) == "/b" + "/0" * (DEPTH_MAX - 1)


def test_deep_tuples_are_refused_and_do_not_crash() -> None:
    """In a process of its own: `orjson` does not count tuples and writes beyond its memory."""
    script = """
import os
from limpet.core.codec import encode
from limpet.errors import InvalidInput
from tests.cases import for_each

for levels in (201, 255, 1_100, 1_999, 20_000, 100_000):
    state = ()
    for _ in range(levels):
        state = (state,)
    try:
        encode(state)
    except InvalidInput:
        continue
    os._exit(1)
os._exit(0)  # letting go of such a value takes its time
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_orjson_nests_254_levels() -> None:
    """`codec` relies on this limit to find what is nested too deeply without a walk."""
    for wrap in (in_list, in_object):
        inners: list[Any] = [1, [], {}]
        for inner in inners:
            deepest = nested(253, inner, wrap)
            orjson.dumps(wrap(deepest) if inner == 1 else deepest)
            with pytest.raises(TypeError, match=r"[Rr]ecursion"):
                orjson.dumps(nested(255, inner, wrap))


# Decoding.


@for_each(
    "damaged",
    [
        *(
            b"",
            b"{",
            b"[1",
            b"[1,]",
            b"[1] x",
            b"'a'",
            b"{1:2}",
            b"\xff",
            b'"\xed\xa0\x80"',
            b"NaN",
        ),
        *(b" ", b" {", b" [1", b" [1,]", b" [1] x", b" 'a'", b" {1:2}", b" \xff"),
        *(b" [NaN]", b" [Infinity]", b" [-Infinity]"),
    ],
)
def test_bytes_that_are_not_json_are_corrupt(damaged: bytes) -> None:
    with pytest.raises(Corrupt):
        decode(damaged)


def test_no_message_holds_damaged_text() -> None:
    secret = "-".join(("my", "pass", "word"))
    for mark in (b"", b" "):
        with pytest.raises(Corrupt) as caught:
            decode(mark + b'{"a": "' + secret.encode())
        assert secret not in "".join(traceback.format_exception(caught.value))


@for_each("value", [2**64, -(2**63) - 1, 10**30, 1.5, "1234567890123456789012"])
def test_json_of_other_tools_is_read_exactly(value: Any) -> None:
    """They do not mark integers that the fast parser would round."""
    assert repr(decode_foreign(json.dumps({"x": [value]}).encode())) == repr({"x": [value]})
    for damaged in (b"", b"{", b"\xff", b'{"x": NaN}', b"[12345678901234567890"):
        with pytest.raises(Corrupt):
            decode_foreign(damaged)


# Refusals.

NOT_JSON: list[Any] = [
    *(NAN, INF, -INF, Real("nan"), Real("-inf"), OwnEquality("nan"), OwnEquality("inf")),
    *(uuid.UUID(int=7), decimal.Decimal("1.5"), datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)),
    *(datetime.date(2024, 1, 1), datetime.time(1, 2), datetime.timedelta(1)),
    *(b"bytes", bytearray(b"bytes"), memoryview(b"bytes"), array.array("d", [1.0, 2.0])),
    *((ctypes.c_double * 2)(1.0, 2.0), {1}, frozenset({1}), range(2), (x for x in "ab"), {}.keys()),
    *(1j, Record(), BufferRecord(), Plain.RED, int, len, compile("1", "x", "eval"), ...),
    *(StopIteration, NotImplemented, object(), orjson.Fragment(b'{"a":1}')),
    *("a\ud800", "\udfffa", "\ud83d\ude00", Text("\ud800"), OwnEncode("\ud800")),
    *(10**INTEGER_DIGITS_MAX, -(10**INTEGER_DIGITS_MAX), 1 << 100_000),
    Whole(10**INTEGER_DIGITS_MAX),
]
BAD = for_each("bad", NOT_JSON)


@BAD
def test_what_is_not_json_is_refused_with_its_path(bad: Any) -> None:
    assert refused_at(bad) == ""
    assert refused_at([bad]) == "/0"
    assert refused_at((1, bad)) == "/1"
    assert refused_at({"a": [0, {"b": bad}]}) == "/a/1/b"
    assert refused_at({"": bad}) == "/"
    assert refused_at({"a/b": {"m~n": {"~1": bad}}}) == "/a~1b/m~0n/~01"
    assert refused_at({"a": bad, "wide": 2**70}) == "/a"


@BAD
def test_what_is_not_json_is_found_among_thousands(bad: Any) -> None:
    """Neither many nulls nor many texts nor many containers can hide it."""
    fillers: list[Any] = [None, 1.5, "text", [], {}]
    for filler in fillers:
        items = [filler] * 3_000
        for at in (0, 1_234, 3_000):
            assert refused_at([*items[:at], bad, *items[at:]]) == f"/{at}"


@for_each("key", ["\ud800", "a\udfff", Text("\ud83d"), OwnEncode("\udc00")])
def test_lone_surrogates_in_keys_are_refused(key: str) -> None:
    shown = str.encode(key, "utf-8", "backslashreplace").decode()
    assert refused_at({key: 1}) == f"/{shown}"
    assert refused_at({"a": [{key: 1}]}) == f"/a/0/{shown}"


def test_a_path_shows_the_text_of_a_key_whatever_it_prints_as() -> None:
    assert refused_at({Colour.RED: NAN}) == "/red~1~0"


def test_keys_of_the_same_text_are_refused() -> None:
    assert refused_at([{"k": 1, OwnHash("k"): 2}]) == "/0/k"


def test_circles_are_refused() -> None:
    items: list[Any] = []
    items.append(items)
    assert "a cycle" in refusal(items)
    members: dict[str, Any] = {}
    members["a"] = [members, members]
    assert "a cycle" in refusal({"x": members})
    assert "a cycle" in refusal([2**70, items])


def test_the_caller_names_what_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^metadata holds .* path=`/a`$"):
        encode({"a": NAN}, what="metadata")
    assert refusal({"a": NAN}).startswith("state ")


# Messages.


@BAD
def test_no_message_holds_the_text_of_a_state(bad: Any) -> None:
    secret = "-".join(("my", "pass", "word"))
    state = [secret, {"a": secret, "b": [bad, secret]}, (secret, 2**70)]
    for value in (state, [secret + "\ud800"], {"a": {secret: secret}, "b": bad}):
        with pytest.raises(InvalidInput) as caught:
            encode(value)
        assert secret not in "".join(traceback.format_exception(caught.value))


# Shared parts: few in memory, very many when they are written out.


def bomb(levels: int, inner: Any) -> Any:
    for _ in range(levels):
        inner = [inner] * 10
    return inner


SHARED = {
    "lists": bomb(30, 1),
    "lists that need the walk": bomb(30, Items([2**70])),
    "objects": {"a": bomb(30, {"k": "v"})},
    "a long text": ["x" * 1_000_000] * 100_000,
    "a long key": [{"x" * 1_000_000: 1}] * 100_000,
    "many lists of a long text": bomb(4, ["x" * 10_000] * 1_000),
    "empty": bomb(30, []),
}


@for_each("value", SHARED.values())
def test_parts_that_are_shared_are_counted_before_they_are_written(value: Any) -> None:
    begun_s = time.process_time()
    with pytest.raises(InvalidInput, match="too large"):
        encode(value, bytes_max=STATE_BYTES_MAX)
    assert time.process_time() - begun_s < 10  # it took minutes, and all memory


@for_each("inner", [1, 2**70, "text", {"k": [1.5]}, Items()])
def test_parts_that_are_shared_are_written_out(inner: Any) -> None:
    value = bomb(4, inner)
    assert decode(encode(value)) == value
    size = len(encode(value).strip())
    assert encode(value, bytes_max=size) == encode(value)


@for_each("wrap", [list, tuple, Items])
def test_a_list_that_holds_itself_twice_is_refused_at_once(wrap: Callable[[Any], Any]) -> None:
    value: list[Any] = []
    value += [wrap([value, value]), value]
    assert "a cycle" in refusal(value)
