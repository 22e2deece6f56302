"""The state that an append makes of the head's, decided without storage."""

from typing import Any

import pytest

from limpet.core.codec import decode, encode
from limpet.core.commits import appended
from limpet.errors import Corrupt, InvalidInput
from limpet.protocol import Append
from tests.cases import for_each


def append(key: str = "k", items: Any = (1,), *, bytes_max: int = 1_000) -> Append:
    return Append(key, encode(items), bytes_max)


@for_each(
    "state, addition, result",
    [
        ({}, append(), {"k": [1]}),
        ({"k": []}, append(), {"k": [1]}),
        ({"k": [0]}, append(), {"k": [0, 1]}),
        ({"k": [0]}, append(items=[]), {"k": [0]}),
        ({}, append(items=[]), {"k": []}),
        ({"b": 1, "k": [0], "a": 2}, append(), {"b": 1, "k": [0, 1], "a": 2}),
        ({"b": 1}, append(), {"b": 1, "k": [1]}),
        ({"": [0.0]}, append("", [-0.0, 2**70]), {"": [0.0, -0.0, 2**70]}),
        ({"k": [[1]]}, append(items=[[2]]), {"k": [[1], [2]]}),
        ({"a/b": [{}], "k": None}, append("a/b"), {"a/b": [{}, 1], "k": None}),
    ],
)
def test_append_adds_to_one_list_and_changes_nothing_else(
    state: Any, addition: Append, result: Any
) -> None:
    assert appended(addition, encode(state))[0] == encode(result)


def test_append_without_a_head_makes_the_object() -> None:
    assert decode(appended(append(), None)[0]) == {"k": [1]}


@for_each("state", [[], [1], "text", 1, 1.5, True, None])
def test_append_needs_an_object(state: Any) -> None:
    with pytest.raises(InvalidInput, match=f"not an object. type=`{type(state).__name__}`"):
        appended(append(), encode(state))


@for_each("value", [{}, "text", 1, 1.5, True, None])
def test_append_needs_a_list(value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"not a list. key=`k` type=`{type(value).__name__}`"):
        appended(append(), encode({"k": value}))


def test_append_stays_within_the_limit() -> None:
    exact = len(encode({"k": [0, 1]}))
    body = encode({"k": [0]})
    assert len(appended(append(bytes_max=exact), body)[0]) == exact
    with pytest.raises(InvalidInput, match=f"too large. bytes=`{exact}` max=`{exact - 1}`"):
        appended(append(bytes_max=exact - 1), body)


def test_append_to_a_damaged_state_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        appended(append(), b"{")
