"""Objects of classes of one's own, of LangChain and of numpy: exact, or refused with advice."""

import math
import re
import warnings
from collections import deque
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pytest
from langchain_core.agents import AgentAction, AgentFinish
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from limpet import InvalidInput
from limpet.compat.langgraph import LimpetSaver
from limpet.compat.langgraph.classes import Allowed
from limpet.compat.langgraph.decode import ValueDecoder
from limpet.compat.langgraph.encode import ValueEncoder
from limpet.compat.langgraph.messages import MessageCache
from limpet.compat.langgraph.serde import ValueRules, default_serde
from limpet.core import codec
from tests.cases import for_each
from tests.compat.langgraph.kit import Cipher, got, put

T = TypeVar("T")


class Shape(NamedTuple):
    sides: int


class Address(BaseModel):
    street: str


class Shop:
    class Order(BaseModel):
        to: Address | None = None

    class Shape(NamedTuple):
        sides: int


class Page(BaseModel, Generic[T]):
    items: list[T]


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


OWN = [Computed, Tight, Loose, Described, Box]


def encoded(value: Any, allow: Any = OWN, cache: MessageCache | None = None) -> bytes:
    out: list[bytes] = []
    rules = ValueRules(default_serde(), Allowed(allow))
    ValueEncoder(rules, cache or MessageCache(), ["v"]).write(value, out)
    return b"".join(out)


def decoded(body: bytes, allow: Any = OWN) -> Any:
    return ValueDecoder(ValueRules(default_serde(), Allowed(allow))).value(codec.decode(body))


def refusal(value: Any, allow: Any = ()) -> str:
    with pytest.raises(InvalidInput) as refused:
        encoded(value, allow)
    return str(refused.value)


def pasted(words: str) -> Any:
    """Return what the lines in a refusal allow."""
    found = re.search(r"`(from [^`]*; )LimpetSaver\(store, (allow=.*)\)`", words)
    assert found
    space: dict[str, Any] = {}
    exec(f"{found[1]}{found[2]}", space)
    return space["allow"]


# Dataclasses


def test_a_dataclass_that_computes_is_not_computed_again() -> None:
    value = Computed(1, factor=10)
    assert callable(value.half)
    found = decoded(encoded(value))
    wanted = {"given": 2, "total": 20, "memo": {"a": (1,)}}
    assert (type(found), vars(found), found) == (Computed, wanted, value)


@for_each("value", [Tight(x=1), Loose(x=1, z=2), Described(3), Box[int](5)])
def test_a_dataclass_comes_back_equal(value: Any) -> None:
    found = decoded(encoded(value))
    assert (type(found), found) == (type(value), value)


def test_a_dataclass_whose_class_has_changed() -> None:
    name = f"{__name__}:Computed"
    found = decoded(codec.encode({"$object": name, "fields": {"given": 1, "total": 5}}))
    assert (found.given, found.total) == (2, 4)
    for fields in ({}, {"given": 1, "gone": 1}):
        with pytest.raises(InvalidInput, match=f"does not fit its class. class=`{name}`"):
            decoded(codec.encode({"$object": name, "fields": fields}))


def test_an_exception_that_is_a_dataclass_becomes_text() -> None:
    assert decoded(encoded(Failed(5), ())) == "Failed(code=5)"


# Deques and arrays


@for_each("value", [deque([1, (2,)], maxlen=3), deque(maxlen=0), deque([1])])
def test_a_deque_keeps_its_maxlen(value: Any) -> None:
    found = decoded(encoded(value))
    assert (found, found.maxlen) == (value, value.maxlen)


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


@for_each(
    "artifacts",
    [("x", np.array(["x"])), (None, np.array([None, 1])[:0]), ([1, 2], [np.arange(2), 2])],
)
def test_an_array_in_place_of_what_was_known(artifacts: Any) -> None:
    """Arrays have no truth value, and one of a single item is equal to it."""
    cache = MessageCache()
    messages = [ToolMessage("x", tool_call_id="c", id="m", artifact=each) for each in artifacts]
    encoder = ValueEncoder(ValueRules(default_serde(), Allowed()), cache)
    before: Any = encoder.channel("messages", [messages[0]])
    try:
        after = encoder.channel("messages", [messages[1]], before)
    except InvalidInput:  # an array of objects
        return
    assert after == encoded([messages[1]])
    assert encoded([messages[1]], cache=cache) == encoded([messages[1]])


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
    assert refusal([message]) == f"{fact}. class=`{__name__}:Table`. path=`/v/0/artifact`"


# LangChain


def prompt(**kwargs: Any) -> Any:
    image = [{"type": "text", "text": "{q}"}, {"type": "image_url", "image_url": {"url": "{u}"}}]
    parts: Any = [
        ("system", "{x}"),
        MessagesPlaceholder("history"),
        HumanMessage("y"),
        ("human", image),
    ]
    return ChatPromptTemplate.from_messages(parts).partial(**kwargs)


@for_each(
    "value",
    [
        prompt(),
        prompt(x="5"),
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
def test_what_langchain_serializes_comes_back(value: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for each in (value, [{"deep": value}], ToolMessage("x", tool_call_id="c", artifact=value)):
            # Also where a schema refers to its class.
            for allow in ((), type(value)):
                found = decoded(encoded(each, allow), allow)
                assert (type(found), found) == (type(each), each)


@for_each(
    "value",
    [prompt(x=lambda: 1), AgentFinish({"a": (1,)}, "log")],
)
def test_what_langchain_would_change_is_refused(value: Any) -> None:
    words = refusal({"a": value})
    assert "cannot be stored" in words or "would not be decoded as it is" in words
    assert words.endswith("path=`/v/a`")


# What to do about a refusal


def test_a_refusal_has_the_line_to_paste() -> None:
    value = {"a": [Shop.Order()], "b": (Shape(3), {"c": Address(street="x")}), "d": Shape(4)}
    imports = f"from {__name__} import Address, Shape, Shop"
    line = f"`{imports}; LimpetSaver(store, allow=[Shop.Order, Shape, Address])`"
    fact = "a value is of a class that is not allowed: list it in `allow`"
    where = f"class=`{__name__}:Shop.Order`. path=`/v/a/0`"
    assert refusal(value) == f"{fact}: {line}. {where}"
    # What was given stays, and what the listed classes refer to need not be listed.
    given = [Shop.Order | None, ("m", "Other")]
    line = "LimpetSaver(store, allow=[Shop.Order, Address, ('m', 'Other'), Shape])"
    words = refusal(value, given)
    assert f"import Address, Shape, Shop; {line}" in words
    for each in (refusal(value), words):
        assert encoded(value, pasted(each))


def test_a_model_with_parameters_has_a_line_if_they_are_classes() -> None:
    value = Page[Page[Address]](items=[])
    line = "LimpetSaver(store, allow=[Page[Page[Address]]])"
    assert f"import Address, Page; {line}" in refusal(value)
    assert encoded(value, pasted(refusal(value)))
    words = refusal(Page[list[Address]](items=[]))
    assert f"list it in `allow`. class=`{__name__}:Page[list[Address]]`" in words


def test_a_class_in_a_function_cannot_be_listed() -> None:
    class Local(BaseModel):
        x: int

    words = "it cannot be imported: define it once, at the top level of its module, and list it in"
    assert words in refusal([Local(x=1)])


def test_what_is_stored_is_refused_with_the_line_to_paste() -> None:
    body = encoded([Shop.Order()], Shop.Order)
    line = f"`from {__name__} import Shape, Shop; LimpetSaver(store, allow=[Shape, Shop.Order])`"
    with pytest.raises(InvalidInput) as refused:
        decoded(body, Shape)
    fact = "a stored value is of a class that is not allowed: list it in `allow`"
    assert str(refused.value) == f"{fact}: {line}. class=`{__name__}:Shop.Order`"
    # A name that is no name of a class is not pasted anywhere.
    with pytest.raises(InvalidInput, match=r"list it in `allow`. class=`os:x; y`"):
        decoded(codec.encode({"$object": "os:x; y", "fields": {}}))


def test_a_listed_name_is_no_other_class_of_that_name() -> None:
    """LangGraph lists an inner class without the outer one: only if it is no class at the top."""
    listed = Allowed([(__name__, "Order"), (__name__, "Shape")])
    assert listed.class_of(f"{__name__}:Shop.Order") is Shop.Order
    assert listed.name_of(Shop.Order) == f"{__name__}:Shop.Order"
    assert listed.class_of(f"{__name__}:Shape") is Shape
    assert listed.class_of(f"{__name__}:Shop.Shape") is None
    assert listed.name_of(Shop.Shape) is None
    # Nor one of another module that is imported there.
    assert Allowed([(__name__, "ndarray")]).class_of(f"{__name__}:np.ndarray") is None


@for_each("wrap", [lambda serde: serde, lambda serde: EncryptedSerializer(Cipher(), serde)])
def test_a_serializer_that_may_pickle_is_refused(memory: LimpetSaver, wrap: Any) -> None:
    with pytest.raises(InvalidInput, match=r"must not pickle.*without pickle_fallback"):
        LimpetSaver(memory._sync, serde=wrap(JsonPlusSerializer(pickle_fallback=True)))


def test_a_saver_that_allows_them_already_is_the_same(memory: LimpetSaver) -> None:
    """LangGraph asks for each run, and another saver would encode all messages again."""
    names = [(__name__, "Address"), ("langgraph.types", "Send")]
    listed = memory.with_allowlist(names)
    assert listed is not memory
    assert listed.with_allowlist(names[:1]) is listed
