"""What is not JSON is refused with its path, wherever it hides, before anything is written."""

import array
import ctypes
import datetime
import decimal
import enum
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from limpet.core.codec import decode, encode
from limpet.core.limits import INTEGER_DIGITS_MAX, STATE_BYTES_MAX
from limpet.errors import InvalidInput
from tests.cases import for_each

NAN = float("nan")
INF = float("inf")


def refusal(value: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        encode(value)
    return str(caught.value)


def refused_at(value: Any) -> str:
    """Return the JSON Pointer at which `value` is refused."""
    return refusal(value).partition(" path=`")[2].removesuffix("`")


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Real(float):
    pass


class Colour(str, enum.Enum):  # noqa: UP042  # the older spelling prints as `Colour.RED`
    RED = "red/~"


class Plain(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Record:
    x: int = 1


@dataclass
class BufferRecord(bytearray):
    """Both `orjson` (as a dataclass) and `marshal` (as a buffer) take this."""

    x: int = 1


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


class OwnHash(str):
    """Text that a dict takes for another key than the same plain text."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        return self is other


# Refusals.

NOT_JSON: list[tuple[str, Any]] = [
    ("nan", NAN),
    ("inf", INF),
    ("-inf", -INF),
    ("nan of a subclass", Real("nan")),
    ("inf of a subclass", Real("-inf")),
    ("nan with its own equality", OwnEquality("nan")),
    ("inf with its own equality", OwnEquality("inf")),
    ("UUID", uuid.UUID(int=7)),
    ("datetime", datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)),
    ("date", datetime.date(2024, 1, 1)),
    ("time", datetime.time(1, 2)),
    ("timedelta", datetime.timedelta(1)),
    ("Decimal", decimal.Decimal("1.5")),
    ("bytes", b"bytes"),
    ("bytearray", bytearray(b"bytes")),
    ("memoryview", memoryview(b"bytes")),
    ("array", array.array("d", [1.0, 2.0])),
    ("ctypes", (ctypes.c_double * 2)(1.0, 2.0)),
    ("set", {1}),
    ("frozenset", frozenset({1})),
    ("range", range(2)),
    ("generator", (x for x in "ab")),
    ("dict view", {}.keys()),
    ("complex", 1j),
    ("dataclass", Record()),
    ("dataclass that is a buffer", BufferRecord()),
    ("plain Enum", Plain.RED),
    ("class", int),
    ("function", len),
    ("code", compile("1", "x", "eval")),
    ("Ellipsis", ...),
    ("StopIteration", StopIteration),
    ("NotImplemented", NotImplemented),
    ("object", object()),
    ("orjson.Fragment", orjson.Fragment(b'{"a":1}')),
    ("lone high surrogate", "a\ud800"),
    ("lone low surrogate", "\udfffa"),
    ("a pair of surrogates", "\ud83d\ude00"),
    ("lone surrogate of a subclass", Text("\ud800")),
    ("lone surrogate with its own encode", OwnEncode("\ud800")),
    ("too many digits", 10**INTEGER_DIGITS_MAX),
    ("too many digits below zero", -(10**INTEGER_DIGITS_MAX)),
    ("far too many digits", 1 << 100_000),
    ("too many digits of a subclass", Whole(10**INTEGER_DIGITS_MAX)),
]
BAD = for_each("name, bad", NOT_JSON)


@BAD
def test_what_is_not_json_is_refused_with_its_path(name: str, bad: Any) -> None:
    assert refused_at(bad) == ""
    assert refused_at([bad]) == "/0"
    assert refused_at((1, bad)) == "/1"
    assert refused_at({"a": [0, {"b": bad}]}) == "/a/1/b"
    assert refused_at({"": bad}) == "/"
    assert refused_at({"a/b": {"m~n": {"~1": bad}}}) == "/a~1b/m~0n/~01"
    assert refused_at({"a": bad, "wide": 2**70}) == "/a"


@BAD
def test_what_is_not_json_is_found_among_thousands(name: str, bad: Any) -> None:
    """Neither many nulls nor many texts nor many containers can hide it."""
    fillers: list[Any] = [None, 1.5, "text", [], {}]
    for filler in fillers:
        items = [filler] * 3_000
        for at in (0, 1_234, 3_000):
            assert refused_at([*items[:at], bad, *items[at:]]) == f"/{at}"


@for_each(
    "key, kind",
    [
        (1, "int"),
        (1.5, "float"),
        (True, "bool"),
        (None, "NoneType"),
        ((1, 2), "tuple"),
        (b"k", "bytes"),
        (Plain.RED, "Plain"),
        (Level.LOW, "Level"),
        (uuid.UUID(int=7), "UUID"),
        (datetime.date(2024, 1, 1), "date"),
    ],
)
def test_keys_that_are_not_text_are_refused(key: Any, kind: str) -> None:
    for at, state in (("", {key: 1}), ("/a/1", {"a": [0, {"b": 1, key: 2}]})):
        assert f"type=`{kind}`" in refusal(state)
        assert refused_at(state) == at


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
def test_no_message_holds_the_text_of_a_state(name: str, bad: Any) -> None:
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


class Odd(list[Any]):
    """A list that only the walk accepts."""


SHARED = {
    "lists": bomb(30, 1),
    "lists that need the walk": bomb(30, Odd([2**70])),
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


@for_each("inner", [1, 2**70, "text", {"k": [1.5]}, Odd()])
def test_parts_that_are_shared_are_written_out(inner: Any) -> None:
    value = bomb(4, inner)
    assert decode(encode(value)) == value
    size = len(encode(value).strip())
    assert encode(value, bytes_max=size) == encode(value)


@for_each("value", [1, "ab", [], {}, [[]], {"a": 1}, [1, 2], ["a", {"b": None}]])
def test_nothing_is_refused_that_fits(value: Any) -> None:
    encoded = encode(value)
    assert encode(value, bytes_max=len(encoded)) == encoded


@for_each("wrap", [list, tuple, Odd])
def test_a_list_that_holds_itself_twice_is_refused_at_once(wrap: Callable[[Any], Any]) -> None:
    value: list[Any] = []
    value += [wrap([value, value]), value]
    assert "a cycle" in refusal(value)
