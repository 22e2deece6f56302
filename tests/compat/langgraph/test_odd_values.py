"""Values that are nearly something else: they come back as they were, or are refused at once."""

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from langchain_core.agents import AgentFinish
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

import limpet
from limpet import InvalidInput
from limpet.compat.langgraph import LimpetSaver
from tests.cases import for_each
from tests.compat.langgraph.kit import Cipher, checkpoint, config, got, put
from tests.compat.langgraph.test_values import encoded

ARRAYS: list[Any] = [
    np.arange(6).reshape(2, 3),
    np.array([[1.5, math.nan], [0, 1]], order="F"),
    np.arange(10)[::2],
    np.array(5),
    np.zeros((0, 3)),
    np.array(["x"]),
    np.array([True]),
]


@for_each("sealed", [False, True])
def test_an_artifact_that_is_an_array(memory: LimpetSaver, sealed: bool) -> None:
    serde = EncryptedSerializer(Cipher()) if sealed else None
    memory.delete_thread("t")
    one, other = (LimpetSaver(memory._sync, serde=serde) for _ in range(2))
    for number, array in enumerate(ARRAYS):
        message = ToolMessage("x", tool_call_id="c", id="m", artifact=array)
        put(one, number + 1, number or None, messages=[message], bare=array, deep={"a": [array]})
        for saver in (one, other):
            values = got(saver).checkpoint["channel_values"]
            for found in (values["messages"][0].artifact, values["bare"], values["deep"]["a"][0]):
                assert (found.dtype, found.shape) == (array.dtype, array.shape)
                assert found.tobytes() == array.tobytes()
                assert found.flags.writeable


class Table:
    """As a data frame: it has no truth value, and is compared item by item."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")

    def __eq__(self, other: object) -> Any:
        return Table()

    __hash__ = None  # type: ignore[assignment]


def test_an_artifact_that_cannot_be_stored_is_named() -> None:
    message = ToolMessage("x", tool_call_id="c", id="m", artifact=Table())
    fact = "a value cannot be stored: use a dataclass, a pydantic model or plain values instead"
    with pytest.raises(InvalidInput) as refused:
        encoded([message])
    assert str(refused.value) == f"{fact}. class=`{__name__}:Table`. path=`/0/artifact`"


@for_each(
    "value",
    [
        [{"a": 1, "$message": {"a": 1}}],
        [{"a": 1, "$message": ["x"]}],
        [{"content": "x", "$message": "HumanMessage", "type": "human"}],
        [{"$message": "HumanMessage", "content": "x"}],
        [{"$message": 5}],
        [{}],
        [],
    ],
)
def test_whatever_keys_an_object_has(value: Any) -> None:
    with limpet.open("memory:") as store:
        one, other = LimpetSaver(store), LimpetSaver(store)
        put(one, 1, messages=value)
        for saver in (one, other, one):
            assert got(saver).checkpoint["channel_values"]["messages"] == value
        put(other, 2, 1, messages=value)
        assert next(one.list(config())).checkpoint["channel_values"]["messages"] == value


def test_an_answer_that_only_seems_the_same_is_recorded() -> None:
    with limpet.open("memory:") as store:
        saver = LimpetSaver(store)
        at = put(saver, 1, x=1)
        for answer in (1, True, 1.0, 0.0, -0.0):
            saver.put_writes(at, [("__resume__", answer)], "task")
            writes = got(saver).pending_writes
            assert writes is not None
            assert [repr(write[2]) for write in writes] == [repr(answer)]


def test_names_that_are_no_text_are_refused() -> None:
    with limpet.open("memory:") as store:
        saver = LimpetSaver(store)
        at = put(saver, 1, x=1)
        for name in (1, None, "\ud800"):
            channel: Any = name
            made = got(saver).checkpoint
            made["id"] = "2"
            made["channel_values"] = {channel: 1}
            with pytest.raises(InvalidInput, match="must be valid text"):
                saver.put(at, made, {}, {})
            with pytest.raises(InvalidInput, match="must be valid text"):
                saver.put_writes(at, [(channel, 1)], "task")
        with pytest.raises(InvalidInput, match="no thread_id"):
            saver.get_tuple({"configurable": {"thread_id": None}})


def test_what_holds_itself_is_refused_at_once() -> None:
    twice: list[Any] = []
    twice += [twice, twice]
    members: dict[str, Any] = {}
    members |= {"a": members, "b": (members,)}
    after_a_message: list[Any] = [ToolMessage("done", tool_call_id="1", id="m")]
    after_a_message += [after_a_message, after_a_message]
    with limpet.open("memory:") as store:
        saver = LimpetSaver(store)
        for value in (twice, members, after_a_message):
            with pytest.raises(InvalidInput, match="contains itself"):
                put(saver, 1, x=value)
        shared = [1, {"a": (2,)}]
        put(saver, 1, x=[shared, shared, (shared,)])  # twice is not inside
        assert got(saver).checkpoint["channel_values"]["x"] == [shared, shared, (shared,)]


def test_a_checkpoint_that_could_not_be_told_from_a_form_is_refused(memory: LimpetSaver) -> None:
    odd: Any = {"$set": [], **checkpoint(1, a=1)}
    with pytest.raises(InvalidInput, match="must not begin with"):
        memory.put(config(), odd, {}, {})
    assert memory.get_tuple(config()) is None
    last: Any = {**checkpoint(1, a=1), "$set": []}
    memory.put(config(), last, {}, {})
    found: Any = got(memory).checkpoint
    assert found["$set"] == []


def doubled(inner: Any, make: Any = lambda each: [each, each], times: int = 60) -> Any:
    """Return a value that refers to the same inner one again and again: small, but long as JSON."""
    for _ in range(times):
        inner = make(inner)
    return inner


def subsets(count: int) -> frozenset[Any]:
    found: list[frozenset[Any]] = []
    for _ in range(count):
        found.append(frozenset(found))
    return found[-1]


def message(**kwargs: Any) -> HumanMessage:
    return HumanMessage("x", additional_kwargs=kwargs)


def message_twice() -> HumanMessage:
    found = message()
    found.additional_kwargs |= {"a": [found], "b": (found,)}
    return found


@dataclass
class Pair:
    one: Any = None
    other: Any = None


LONG = "x" * 100_000
SHARED: dict[str, Any] = {
    "lists": lambda: doubled([], lambda each: [each] * 10, 30),
    "lists around a tuple": lambda: doubled((), times=60),
    "tuples": lambda: doubled((), lambda each: (each, each)),
    "frozensets": lambda: subsets(60),
    "maps": lambda: doubled({}, lambda each: {1: each, 2: each}),
    "texts": lambda: [LONG] * 1_000_000,
    "texts in a tuple": lambda: (LONG,) * 100_000,
    "bytes": lambda: [LONG.encode()] * 100_000,
    "in a message": lambda: [message(a=doubled(()))],
    "messages": lambda: doubled(message(), lambda each: message(a=[each], b=(each,)), 40),
    "a message in itself": message_twice,
    "in an object of LangChain": lambda: AgentFinish({"a": doubled([])}, "log"),
    "dataclasses in one": lambda: AgentFinish({"a": doubled(Pair(), lambda x: Pair(x, x))}, "log"),
    "deques in one": lambda: AgentFinish({"a": doubled(0, lambda x: deque([x, x]))}, "log"),
    "one message": lambda: [HumanMessage(LONG, id="m")] * 100_000,
    "one message without an id": lambda: [HumanMessage(LONG)] * 1_000,
}


SEALED = ("tuples", "texts", "in a message", "one message")


@for_each("kind, sealed", [*((each, False) for each in SHARED), *((each, True) for each in SEALED)])
def test_shared_references_are_refused_before_they_fill_the_memory(kind: str, sealed: bool) -> None:
    value = SHARED[kind]()
    serde = EncryptedSerializer(Cipher()) if sealed else None
    with limpet.open("memory:?state_bytes_max=1000000") as store:
        saver = LimpetSaver(store, serde=serde)
        with pytest.raises(InvalidInput, match=r"too large|contains itself|nested|cannot"):
            put(saver, 1, value=value)
        with pytest.raises(InvalidInput, match=r"too large|contains itself|nested|cannot"):
            saver.put_writes(config(number=1), [("value", value)], "task")


def test_shared_values_come_back_wherever_they_are() -> None:
    pair = (1, (2, b"x"))
    value = [
        pair,
        [pair, {"a": pair, 5: [pair]}],
        {pair, frozenset([pair])},
        message(a=pair, b=[pair]),
    ]
    with limpet.open("memory:") as store:
        one, other = LimpetSaver(store), LimpetSaver(store)
        put(one, 1, value=value, messages=[message(a=pair)] * 3)
        for saver in (one, other):
            values = got(saver).checkpoint["channel_values"]
            assert (values["value"], values["messages"]) == (value, [message(a=pair)] * 3)


def test_a_shared_value_is_not_nested_deeper_than_allowed() -> None:
    deep = doubled((), lambda each: (each,), 60)
    value = [deep, deep, doubled(deep, lambda each: [each], 150)]
    with (
        limpet.open("memory:") as store,
        pytest.raises(InvalidInput, match="nested more than 200"),
    ):
        put(LimpetSaver(store), 1, value=value)
