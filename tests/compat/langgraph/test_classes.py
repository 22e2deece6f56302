"""Which classes are allowed: those of a schema and nothing else; and what a refusal advises."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from types import ModuleType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Required,
    TypedDict,
    TypeVar,
    Union,
)

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import MessagesState
from pydantic import BaseModel, PrivateAttr
from typing_extensions import ReadOnly, TypeAliasType
from typing_extensions import TypedDict as NewTypedDict

from limpet import InvalidInput
from limpet.compat.langgraph import LimpetSaver
from limpet.compat.langgraph.classes import MESSAGE_NAMES, Allowed, classes_in, listed
from limpet.compat.langgraph.decode import ValueDecoder
from limpet.compat.langgraph.encode import ValueEncoder
from limpet.compat.langgraph.messages import MessageCache
from limpet.compat.langgraph.serde import ValueRules, default_serde
from limpet.core import codec
from tests.cases import for_each
from tests.compat.langgraph.kit import Cipher, Places, got, put


class A(Enum):
    X = 1


class B(IntEnum):
    X = 1


class C(NamedTuple):
    a: "A | None"


@dataclass
class D:
    later: "E"
    never: "Missing"  # type: ignore[name-defined] # noqa: F821
    not_a_field: ClassVar[B] = B.X


class E(BaseModel):
    again: "list[E]" = []
    unknown: Any = None
    _hidden: A = PrivateAttr(default=A.X)


T = TypeVar("T")
Bound = TypeVar("Bound", bound=D)
Either = TypeVar("Either", A, B)


class Page(BaseModel, Generic[T]):
    items: list[T]


@dataclass
class Box(Generic[T]):
    inside: T


class Parent(TypedDict):
    a: Required[A]


class Child(Parent, total=False):
    c: NotRequired[Annotated[list[C], lambda old, new: new]]


class Other(NewTypedDict):
    e: ReadOnly["E"]


class Plain:
    b: B
    messages: MessagesState


class Unrelated:
    b: B


@dataclass
class Unstored:
    what: Unrelated
    pages: "Page[D]" = field(default_factory=lambda: Page(items=[]))


Number = NewType("Number", B)
Alias = TypeAliasType("Alias", dict[str, A])


@for_each(
    "schema, wanted",
    [
        (A, {A}),
        (C, {C, A}),
        (D, {D, E, A}),
        (Parent, {A}),
        (Child, {A, C}),
        (Other, {E, A}),
        (Plain, {B}),
        (Unstored, {Unstored, Page[D], D, E, A}),
        (Page[A], {Page[A], A}),
        (Box[A], {Box, A}),
        (Union[A, None, "list[C]"], {A}),
        (A | B, {A, B}),
        (list[dict[str, tuple[A, ...]]], {A}),
        (Mapping[A, Sequence[B]], {A, B}),
        (set[frozenset[A]], {A}),
        (Callable[[A], B], {A, B}),
        (Literal[A.X, "x"], {A}),
        (type[A], {A}),
        (Number, {B}),
        (Alias, {A}),
        (Bound, {D, E, A}),
        (Either, {A, B}),
        (Annotated[A, B.X], {A}),
        (MessagesState, set()),
        (dict[str, Any], set()),
        (Any, set()),
        (HumanMessage, set()),
    ],
)
def test_the_classes_of_a_schema(schema: Any, wanted: set[type]) -> None:
    found = classes_in(schema, MESSAGE_NAMES)
    assert len(found) == len(set(found))
    assert set(found) == wanted


def test_a_module_with_deferred_annotations(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("deferred_shop")
    monkeypatch.setitem(sys.modules, "deferred_shop", module)
    source = """
from __future__ import annotations
from dataclasses import InitVar, dataclass
from typing import NotRequired, TypedDict

class State(TypedDict):
    first: NotRequired[list[First]]
    nothing: Nothing

@dataclass
class First:
    second: Second | None = None
    given: InitVar[int] = 0

class Second(tuple):
    _fields = ()
    Second: Third

class Third(First): pass
"""
    exec(compile(source, "deferred_shop.py", "exec"), module.__dict__)
    assert classes_in(module.State) == [module.First, module.Second]


@for_each("allow", [Child, [Child], [C], (C, A), {C}, list[C], C | None, iter([C])])
def test_one_schema_or_many(places: Places, allow: Any) -> None:
    with places.open("memory") as store:
        saver = LimpetSaver(store, allow=allow)
        put(saver, 1, c=[C(A.X)])
        assert got(saver).checkpoint["channel_values"]["c"] == [C(A.X)]
        with pytest.raises(InvalidInput, match="not allowed"):
            put(saver, 2, b=B.X)


@for_each("allow", ["C", 5, [5], ["C"], [("m", "a", "b")], ("m", "a"), [print]])
def test_anything_else_is_refused(allow: Any) -> None:
    with pytest.raises(InvalidInput, match="allow takes classes, schemas, or"):
        Allowed(allow)


def test_a_class_that_is_listed_is_allowed_whatever_it_is() -> None:
    assert listed([Unrelated, ("m", "n"), Child, Child]) == [Unrelated, B, ("m", "n"), A, C]
    # A schema that refers to it does not allow it: it is of no kind that is stored.
    assert Allowed(Unstored).name_of(Unrelated) is None


# What to do about a refusal


class Shape(NamedTuple):
    sides: int


class Address(BaseModel):
    street: str


class Shop:
    class Crate(BaseModel, Generic[T]):
        of: list[T]

    class Order(BaseModel):
        to: Address | None = None

    class Shape(NamedTuple):
        sides: int


def encoded(value: Any, allow: Any = ()) -> bytes:
    rules = ValueRules(default_serde(), Allowed(allow))
    return ValueEncoder(rules, MessageCache(), ["v"]).value(value)


def decoded(body: bytes, allow: Any = ()) -> Any:
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
    for each in (value, Shop.Crate[Shop.Order](of=[])):
        assert encoded(each, pasted(refusal(each)))
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
    assert Allowed([(__name__, "Pattern")]).class_of(f"{__name__}:re.Pattern") is None


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
