"""What is written is read back as it was, or refused with its path; and nothing else is made."""

import math
import re
import warnings
from base64 import b64encode
from collections import OrderedDict, deque, namedtuple
from dataclasses import InitVar, dataclass, field, fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import ormsgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.agents import AgentAction, AgentFinish
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from limpet import Corrupt, InvalidInput
from limpet.compat.langgraph.classes import Allowed
from limpet.compat.langgraph.decode import ValueDecoder
from limpet.compat.langgraph.encode import ValueEncoder
from limpet.compat.langgraph.messages import MessageCache
from limpet.compat.langgraph.serde import ValueRules, default_serde
from limpet.core import codec
from tests.cases import for_each
from tests.effort import times

T = TypeVar("T")


class Colour(Enum):
    RED = 1
    BLUE = "b"


class Mood(StrEnum):
    CALM = "calm"


class Right(Flag):
    READ = 1
    WRITE = 2


@dataclass
class Point:
    x: float
    tags: tuple[str, ...] = ()
    inner: "Point | None" = None


@dataclass(frozen=True, slots=True)
class Frozen:
    key: str
    at: list[int] = field(default_factory=list)


Pair = namedtuple("Pair", "left right")


class Model(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str = "x"
    size: int | None = None
    inner: Any = None
    _hidden: int = PrivateAttr(default=3)


class Stranger(BaseModel):
    name: str


@dataclass
class Computed:
    given: int
    factor: InitVar[int] = 2
    total: int = field(init=False)
    never: int = field(init=False, repr=False, compare=False)

    def __post_init__(self, factor: int) -> None:
        self.given += 1
        self.total = self.given * factor
        self.memo = {"a": (1,)}

    @cached_property
    def half(self) -> object:
        return lambda: self.total / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Tight:
    x: int
    y: list[int] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "y", [self.x])


@dataclass(frozen=True)
class Loose(Tight):
    z: int = 0


class Doubling:
    """A descriptor: what is assigned is not what is kept."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return 1 if instance is None else instance.__dict__[self.name]

    def __set__(self, instance: Any, value: int) -> None:
        instance.__dict__[self.name] = 2 * value


@dataclass
class Described:
    x: int = Doubling()  # type: ignore[assignment]


@dataclass
class Box(Generic[T]):
    inside: T


@dataclass
class Failed(Exception):
    code: int


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: int = Field(alias="no")

    @cached_property
    def twice(self) -> int:
        return 2 * self.number


@dataclass
class Basket(list[int]):
    owner: str = "alice"


def prompt(**kwargs: Any) -> Any:
    image = [{"type": "text", "text": "{q}"}, {"type": "image_url", "image_url": {"url": "{u}"}}]
    parts: Any = [
        ("system", "{x}"),
        MessagesPlaceholder("history"),
        HumanMessage("y"),
        ("human", image),
    ]
    return ChatPromptTemplate.from_messages(parts).partial(**kwargs)


ALLOWED = [Colour, Mood, Right, Point, Frozen, Pair, Model]
ALLOWED += [Computed, Tight, Loose, Described, Box, Order, Basket]
SHAPE = ValueRules(default_serde(), Allowed(ALLOWED))


def encoded(value: Any, shape: ValueRules = SHAPE, cache: MessageCache | None = None) -> bytes:
    return ValueEncoder(shape, cache or MessageCache()).value(value)


def decoded(body: bytes, shape: ValueRules = SHAPE) -> Any:
    return ValueDecoder(shape).value(codec.decode(body))


def back(value: Any) -> Any:
    return decoded(encoded(value))


def same(a: Any, b: Any) -> bool:
    """Tell whether two values are the same, their classes too; NaN is itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, dict):
        pairs = zip(a.items(), b.items(), strict=False)
        return len(a) == len(b) and all(
            same(x, y) for p, q in pairs for x, y in zip(p, q, strict=True)
        )
    if isinstance(a, list | tuple | deque):
        same_max = getattr(a, "maxlen", None) == getattr(b, "maxlen", None)
        return same_max and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, set | frozenset):
        return a == b and sorted(map(repr, a)) == sorted(map(repr, b))
    if is_dataclass(a):
        return all(same(getattr(a, each.name), getattr(b, each.name)) for each in fields(a))
    if isinstance(a, BaseModel):
        return same(a.__dict__, b.__dict__) and same(a.__pydantic_extra__, b.__pydantic_extra__)
    return bool(a == b)


TEXT = st.text(st.characters()) | st.text(st.characters(categories=["Cs", "Lu", "Cc"]), max_size=4)
TAGS = st.sampled_from(["$tuple", "$message", "$plain", "$", "$object", "$map", "a"])
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**62, max_value=2**70)
    | st.floats()
    | TEXT
    | TAGS
    | st.binary(max_size=8)
    | st.datetimes(timezones=st.none() | st.just(UTC) | st.just(ZoneInfo("Europe/Berlin")))
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.decimals(allow_nan=False)
    | st.sampled_from([Colour.RED, Colour.BLUE, Mood.CALM, Right.READ, Right.READ | Right.WRITE])
)
HASHABLE = st.integers() | TEXT | st.binary(max_size=4) | st.tuples(st.integers(), TEXT)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few = st.lists(inner, max_size=4)
    members = st.dictionaries(TEXT | TAGS, inner, max_size=4)
    return (
        few
        | few.map(tuple)
        | few.map(deque)
        | few.map(lambda each: deque(each, maxlen=5))
        | members
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.sets(HASHABLE, max_size=3)
        | st.frozensets(HASHABLE, max_size=3)
        | st.builds(Point, inner, few.map(tuple))
        | st.builds(Pair, inner, inner)
        | st.builds(Model, inner=inner)
        | st.builds(HumanMessage, TEXT, additional_kwargs=members)
        | st.builds(AIMessage, TEXT, response_metadata=members, name=st.none() | TEXT)
        | st.builds(lambda c, a: ToolMessage(c, tool_call_id="t", artifact=a), TEXT, inner)
    )


@settings(max_examples=times(80, full=250), deadline=None)
@given(st.recursive(ATOMS, nested, max_leaves=12))
def test_whatever_is_written_is_read_back_as_it_was(value: Any) -> None:
    cache = MessageCache()
    body = encoded(value, cache=cache)
    assert body == encoded(value, cache=cache) == encoded(value)
    assert same(decoded(body), value)


NAMED = timezone(timedelta(hours=1), "CET")


@for_each(
    "value",
    [
        HumanMessage("hi", id="1", name="ann"),
        HumanMessage([{"type": "text", "text": "hi"}, "there"], custom="x", other=(1, 2)),
        AIMessage("", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c", "type": "tool_call"}]),
        AIMessage("x", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
        AIMessageChunk(content="x", tool_call_chunks=[]),
        ToolMessage("x", tool_call_id="c", artifact={"rows": [(1, b"x")]}, status="error"),
        SystemMessage("s", additional_kwargs={"$tuple": [1]}),
        SystemMessage("lone \ud800", response_metadata={"big": 10**30, "nan": math.inf}),
        RemoveMessage(id="5"),
        Send("node", {"messages": [HumanMessage("x")], 5: (1,)}),
        Command(goto=Send("a", 1), update={"x": (1, 2)}, resume={"i": 1}),
        Interrupt(value={"question": ("ok?",)}, id="i"),
        Overwrite([1, (2,)]),
        _DeltaSnapshot([HumanMessage("x", id="1")]),
        Path("/a/b"),
        re.compile("a+", re.IGNORECASE),
        datetime(2026, 1, 1, tzinfo=NAMED),
        time(1, 2, tzinfo=UTC),
        Frozen("k", [1]),
        Point(1.0, inner=Point(math.nan)),
        Decimal("NaN"),
        timedelta.min,
        date.max,
        UUID(int=5),
        bytearray(b"x"),
        [[[]], {}, [{}], ((),)],
        {"$plain": {"$plain": {"$x": 1}}},
        {1: "int", "1": "text", None: 0, (1, 2): [3], False: "no"},
        "\ud83d\ude00",
        10**4299,
        deque([1, (2,)], maxlen=3),
        deque(maxlen=0),
        Tight(x=1),
        Loose(x=1, z=2),
        Described(3),
        Box[int](5),
        prompt(x={"lc": 1, "type": "constructor", "id": ["os"], "$tuple": [1]}),
        PromptTemplate.from_template("{{a}}", template_format="mustache"),
        PromptTemplate.from_template("a {b}").invoke({"b": 1}),
        ChatPromptTemplate.from_template("a {b}").invoke({"b": 1}),
        ChatGeneration(message=AIMessage("x", id="1")),
        AgentAction("tool", {"a": 1}, "log"),
        AgentFinish({"a": [1]}, "log"),
        Document("x", metadata={"a": (1,)}),
    ],
)
def test_examples(value: Any) -> None:
    kind = type(value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Those of LangChain also where a schema refers to them.
        allow = [*ALLOWED, *([kind] if kind.__module__.startswith("langchain_core.") else [])]
        for shape in (SHAPE, ValueRules(default_serde(), Allowed(allow))):
            for each in (value, ToolMessage("x", tool_call_id="c", artifact=[{"deep": value}])):
                found = decoded(encoded(each, shape), shape)
                found = found if each is value else found.artifact[0]["deep"]
                assert (type(found), repr(found)) == (kind, repr(value))
                if not (isinstance(value, Decimal) and value.is_nan()) and kind is not Point:
                    assert found == value


def test_a_model_comes_back_with_what_was_set_and_hidden() -> None:
    model = Model.model_validate({"size": 5, "more": "m"})
    model._hidden = 7
    found = back(model)
    assert (found, found._hidden, found.model_extra) == (model, 7, {"more": "m"})
    assert found.model_fields_set == model.model_fields_set
    found.size = 6
    assert model.size == 5


def test_a_dataclass_that_computes_is_not_computed_again() -> None:
    value = Computed(1, factor=10)
    assert callable(value.half)
    found = back(value)
    wanted = {"given": 2, "total": 20, "memo": {"a": (1,)}}
    assert (type(found), vars(found), found) == (Computed, wanted, value)


def test_a_model_that_was_computed_with() -> None:
    order = Order(no=21)
    assert order.twice == 42
    found = back(order)
    assert (found, found.twice, found.model_fields_set) == (order, 42, {"number"})


def test_a_dataclass_whose_class_has_changed() -> None:
    name = f"{__name__}:Computed"
    found = decoded(codec.encode({"$object": name, "fields": {"given": 1, "total": 5}}))
    assert (found.given, found.total) == (2, 4)
    for others in ({}, {"given": 1, "gone": 1}):
        with pytest.raises(InvalidInput, match=f"does not fit its class. class=`{name}`"):
            decoded(codec.encode({"$object": name, "fields": others}))


def test_messages_read_back_behave_like_others() -> None:
    message = AIMessage("x", id="1")
    found = back([message])[0]
    found.content = "y"
    found.additional_kwargs["k"] = 1
    assert (message.content, message.additional_kwargs) == ("x", {})
    assert found.model_copy(update={"id": "2"}).id == "2"
    assert BaseMessage.model_validate(found.model_dump()).content == "y"
    assert found.model_dump().keys() == message.model_dump().keys()


class Text(str):
    __slots__ = ()


@for_each(
    "value, plain",
    [
        (Text("x"), "x"),
        (OrderedDict(x=1), {"x": 1}),
        (ValueError("no"), "ValueError('no')"),
        (Failed(5), "Failed(code=5)"),
    ],
)
def test_what_becomes_plain(value: Any, plain: Any) -> None:
    found = back({"a": value})["a"]
    assert (type(found), found) == (type(plain), plain)


@for_each(
    "value, words",
    [
        (
            {"a": [Stranger(name="x")]},
            "not allowed: list it in `allow` as `Stranger`, after `from tests.",
        ),
        ({"a": [object()]}, "cannot be stored"),
        ({"a": [lambda: 1]}, "cannot be stored"),
        ({"a": [10**4300]}, "more than 4300 digits"),
        ({"a": [np.array([1, None])]}, "would not be decoded as it is. class=`numpy:ndarray`"),
        ({"a": [Basket()]}, "is a dataclass that is also a container"),
        ({"a": [prompt(x=lambda: 1)]}, "cannot be stored"),
        ({"a": [AgentFinish({"a": (1,)}, "log")]}, "would not be decoded as it is"),
    ],
)
def test_what_cannot_come_back_is_refused_with_its_path(value: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match="path=`/a/0`") as refusal:
        encoded(value)
    assert words in str(refusal.value)


def test_long_integers_of_older_checkpoints_are_read() -> None:
    assert decoded(b' {"a": [%d]}' % 10**30) == {"a": [10**30]}


def test_nesting_has_a_limit() -> None:
    for wrap in (lambda x: [x], lambda x: (x,), lambda x: {1: x}):
        value: Any = None
        for _ in range(250):
            value = wrap(value)
        with pytest.raises(InvalidInput, match="levels deep"):
            encoded(value)


# What a store holds may have been put there by somebody else.


def hostile() -> list[Any]:
    call = ormsgpack.Ext(0, ormsgpack.packb(("os", "system", "touch /tmp/never")))
    method = ormsgpack.Ext(3, ormsgpack.packb(("os", "path", "x", "exists")))
    packed = [b64encode(ormsgpack.packb(each)).decode() for each in (call, method)]
    lc = {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["touch /tmp/never"]}
    model = {**lc, "lc": 1, "id": ["langchain", "chat_models", "openai", "ChatOpenAI"]}
    runnable = {**model, "id": ["langchain_core", "runnables", "base", "RunnableSequence"]}
    template = {"template": "{{ x }}", "input_variables": ["x"], "template_format": "jinja2"}
    prompt = {**model, "id": ["langchain", "prompts", "prompt", "PromptTemplate"]}
    return [
        {"$langchain": lc},
        {"$langchain": model},
        {"$langchain": runnable},
        {"$langchain": {**prompt, "kwargs": template}},
        {"$langchain": {**prompt, "id": ["os", "system"]}},
        {"$langchain": {**prompt, "id": ["langchain_core", "load", "load", "load"]}},
        {"$langchain": {"lc": 1, "type": "secret", "id": ["HOME"]}},
        {"$langchain": {"a": 1}},
        {"$deque": [1], "maxlen": "x"},
        {"$object": f"{__name__}:Point", "fields": {"a": 1}},
        {"$object": f"{__name__}:Stranger", "fields": {"name": "x"}},
        {"$serde": ["msgpack", packed[0], "builtins:int"]},
        {"$serde": ["msgpack", packed[1], "builtins:bool"]},
        {"$serde": ["json", b64encode(codec.encode(lc)).decode(), "builtins:int"]},
        {"$serde": ["pickle", b64encode(b"cos\nsystem\n(S'x'\ntR.").decode(), "builtins:int"]},
        {"$object": "os:system", "fields": {}},
        {"$object": "subprocess:Popen", "fields": {"args": ["true"]}},
        {"$object": "builtins:type", "fields": {}},
        {"$object": "langgraph.types:interrupt", "fields": {}},
        {"$object": "antigravity:x", "fields": {}},
        {"$object": 5, "fields": {}},
        {"$enum": "subprocess:Popen", "name": "x"},
        {"$enum": "langgraph.types:Send", "name": "x"},
        {"$message": "Popen", "content": ""},
        {"$message": "HumanMessage", "content": {}},
        {"$nothing": 1},
        {"$tuple": 5},
        {"$bytes": "é"},
        {"$datetime": ["x"]},
        {"$map": [[[], 1]]},
        {"$sealed": ["msgpack", packed[0]]},
        {"$text": "\\N{no such}"},
    ]


@for_each("tree", hostile())
def test_nothing_is_made_or_called_that_is_not_allowed(tree: Any, capfd: Any) -> None:
    import sys

    with pytest.raises((InvalidInput, Corrupt)):
        ValueDecoder(SHAPE).value({"deep": [tree]})
    assert not Path("/tmp/never").exists()
    assert "antigravity" not in sys.modules


# Messages are encoded once, unless they were changed.


def test_what_is_remembered_is_bounded() -> None:
    for bounds in ({"entries_max": 20}, {"bytes_max": 4_000}):
        cache = MessageCache(**bounds)
        messages = [HumanMessage("x" * 100, id=str(index)) for index in range(50)]
        assert encoded(messages, cache=cache) == encoded(messages)
        assert len(cache._known) + len(cache._before) <= 22
        assert encoded(messages[::-1], cache=cache) == encoded(messages[::-1])


def test_another_message_with_the_same_id_is_itself() -> None:
    cache = MessageCache()
    messages = [HumanMessage("x", id="1"), AIMessage("x", id="1"), HumanMessage("y", id="1")]
    for message in messages:
        encoded([message], cache=cache)
    assert encoded(messages, cache=cache) == encoded(messages)
