"""Exact JSON (promise 9), case by case: what is JSON comes back as it was.

Refusals stand in test_codec_refusals.py, and the tests for any JSON in tests/property.
"""

import enum
import json
import subprocess
import sys
import traceback
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson
import pytest

from limpet.core.codec import decode, decode_foreign, encode
from limpet.core.limits import DEPTH_MAX, INTEGER_DIGITS_MAX
from limpet.errors import Corrupt, InvalidInput
from tests.cases import for_each

NAN = float("nan")


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


# Round trips.

EXACT: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    1.0,
    -1,
    0.0,
    -0.0,
    0.1,
    1e16,
    1e22,
    1e-7,
    5e-324,
    2.2250738585072014e-308,
    1.7976931348623157e308,
    2**53 + 1,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63),
    -(2**63) - 1,
    10**100,
    -(10**100),
    10**INTEGER_DIGITS_MAX - 1,
    1 - 10**INTEGER_DIGITS_MAX,
    "",
    "\0",
    "a\0b",
    "\x7f\x80\xff",
    "\u2028\u2029\ufeff\ufffe\uffff",
    "😀 \U0010ffff",
    '"\\/\b\f\n\r\t',
    "é vs e\u0301",
    "</script>",
    [],
    {},
    [[], {}, ""],
    {"": {}, "a": [], "\0": None, "😀": 1},
    [1, 1.0, True, 0, 0.0, -0.0, False, None],
    {"b": 1, "a": 2, "ä": 3, "A": 4, "10": 5, "9": 6},
    [2**64, 1, 1.0, True, None, "\0", "😀", -0.0, 1e16, {"b": [], "a": {}}],
]


@for_each("value", EXACT)
def test_comes_back_as_it_was(value: Any) -> None:
    """`repr` tells 1, 1.0 and True apart, and -0.0, the kinds of containers and key order too."""
    assert repr(round_trip(value)) == repr(value)
    assert repr(round_trip({"k": [value, value]})) == repr({"k": [value, value]})
    assert repr(json.loads(encode(value))) == repr(value), "for any parser"


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


def test_what_a_caller_does_later_changes_nothing() -> None:
    inner = [1]
    state = {"a": inner}
    encoded = encode(state)
    inner.append(2)
    first, second = decode(encoded), decode(encoded)
    first["a"].append(3)
    assert second == {"a": [1]}


def test_shared_parts_encode_like_separate_ones() -> None:
    shared = [1.5, "text", 2**40]
    separate = [[1.5, "text", 2**40] for _ in range(2)]
    assert encode([shared, shared]) == encode(separate)


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
