"""`default=`, and `limpet.jsonable` for it: values that are not JSON, in all places."""

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

import pytest

import limpet
from limpet.core import codec
from tests.cases import for_each


class Color(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    tags: set[str]
    inner: Any = None


class Model:
    """What Pydantic's models look like from outside."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return {"mode": mode}


class Scalar:
    """What numpy's scalars and arrays look like from outside."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def tolist(self) -> Any:
        return self.value


VALUES: dict[str, tuple[Any, Any]] = {
    "model": (Model(), {"mode": "json"}),
    "dataclass": (
        Point(1, {"b", "a"}, Point(2, set())),
        {"x": 1, "tags": ["a", "b"], "inner": {"x": 2, "tags": [], "inner": None}},
    ),
    "enum": (Color.RED, "red"),
    "datetime": (datetime(2026, 3, 1, tzinfo=UTC), "2026-03-01T00:00:00+00:00"),
    "date": (date(2026, 3, 1), "2026-03-01"),
    "time": (time(12, 30), "12:30:00"),
    "uuid": (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "decimal": (Decimal("1.50"), "1.50"),
    "set": ({10, 9}, [9, 10]),
    "mixed set": (frozenset(("1", 1)), ["1", 1]),
    "path": (PurePosixPath("a/b"), "a/b"),
    "bytes": (b"\xff\0", "/wA="),
    "bytearray": (bytearray(b"x"), "eA=="),
    "memoryview": (memoryview(b"x"), "eA=="),
    "scalar": (Scalar(1.5), 1.5),
    "array": (Scalar([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    "a date from an array": (Scalar(date(2026, 3, 1)), "2026-03-01"),
    "none": (Scalar(None), None),
}


@for_each("name", VALUES)
def test_values(name: str) -> None:
    value, expected = VALUES[name]
    state = {"a": [value, value], "wide": 2**70}
    encoded = codec.encode(state, default=limpet.jsonable)
    assert codec.decode(encoded) == {"a": [expected, expected], "wide": 2**70}
    assert json.loads(json.dumps(value, default=limpet.jsonable)) == expected


def test_real_numpy_and_pydantic() -> None:
    numpy = pytest.importorskip("numpy")
    pydantic = pytest.importorskip("pydantic")

    class Chat(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        at: datetime
        seen: set[int]

    state = {
        "i": numpy.int64(5),
        "f": numpy.float32(0.5),
        "d": numpy.float64(0.25),
        "b": numpy.bool_(True),
        "a": numpy.arange(4).reshape(2, 2),
        "t": numpy.datetime64("2026-03-01"),
        "chat": Chat(at=datetime(2026, 3, 1, tzinfo=UTC), seen={1}),
    }
    assert codec.decode(codec.encode(state, default=limpet.jsonable)) == {
        "i": 5,
        "f": 0.5,
        "d": 0.25,
        "b": True,
        "a": [[0, 1], [2, 3]],
        "t": "2026-03-01",
        "chat": {"at": "2026-03-01T00:00:00Z", "seen": [1]},
    }
    with pytest.raises(limpet.InvalidInput, match="not finite") as caught:
        codec.encode({"a": numpy.array([1.0, float("nan")])}, default=limpet.jsonable)
    assert caught.value.path == "/a/1"


def test_what_default_returns_is_checked() -> None:
    def refused(default: Any, value: Any = None) -> limpet.InvalidInput:
        with pytest.raises(limpet.InvalidInput) as caught:
            codec.encode({"x": [object() if value is None else value]}, default=default)
        return caught.value

    assert refused(lambda value: float("nan")).path == "/x/0"
    assert refused(lambda value: {"k": "\ud800"}).path == "/x/0/k"
    assert refused(lambda value: {1: 2}).path == "/x/0"
    assert "never makes JSON" in str(refused(lambda value: value))
    assert "levels deep" in str(refused(lambda value: [object()]))
    assert "cycle" in str(refused(lambda value: [value]))
    assert "have the store's `default` do it. type=`object`" in str(refused(limpet.jsonable))
    assert "have the store's `default` do it" in str(refused(limpet.jsonable, Point))

    def broken(value: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        codec.encode(object(), default=broken)


def test_default_is_called_once_for_a_shared_value() -> None:
    asked: list[Any] = []

    def default(value: Any) -> Any:
        asked.append(value)
        return [1]

    shared = object()
    assert codec.encode([shared] * 5, default=default) == b"[[1],[1],[1],[1],[1]]"
    assert asked == [shared]
