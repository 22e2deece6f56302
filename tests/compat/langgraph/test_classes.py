"""Which classes are allowed: those of a schema and nothing else; and what a refusal advises."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from pathlib import Path
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


class Shop:
    class Order(BaseModel):
        to: Shape | None = None

    class Shape(NamedTuple):
        sides: int


class Local(BaseModel):
    __qualname__ = "function.<locals>.Local"


LINE = f"list it in `allow` as `Shop.Order`, after `from {__name__} import Shop`"
TOP = (
    "it cannot be imported: define it once, at the top level of its module, and list it in `allow`"
)


@for_each(
    "value, advice",
    [
        (Shop.Order(), LINE),
        (Page[Shape](items=[]), "list it in `allow`"),
        (Local(), TOP),
    ],
)
def test_a_refusal_has_the_line_to_paste(memory: LimpetSaver, value: Any, advice: str) -> None:
    name = f"class=`{__name__}:{type(value).__qualname__}`"
    with pytest.raises(InvalidInput) as refused:
        put(memory, 1, v=[value])
    fact = f"a value is of a class that is not allowed: {advice}. {name}"
    assert str(refused.value) == f"{fact}. path=`/channel_values/v/0`"
    allowing = LimpetSaver(memory._sync, allow=type(value))
    put(allowing, 1, v=[value])
    assert got(allowing).checkpoint["channel_values"]["v"] == [value]
    if advice == LINE:
        with pytest.raises(InvalidInput) as refused:
            got(memory)
        assert str(refused.value) == f"a stored {fact.removeprefix('a ')}"


def test_a_listed_name_is_no_other_class_of_that_name() -> None:
    """LangGraph lists an inner class without the outer one: only if it is no class at the top."""
    listed = Allowed([(__name__, "Order"), (__name__, "Shape")])
    assert listed.class_of(f"{__name__}:Shop.Order") is Shop.Order
    assert listed.name_of(Shop.Order) == f"{__name__}:Shop.Order"
    assert listed.class_of(f"{__name__}:Shape") is Shape
    assert listed.class_of(f"{__name__}:Shop.Shape") is None
    assert listed.name_of(Shop.Shape) is None
    # Nor one of another module that is imported there.
    assert Allowed([(__name__, "MonkeyPatch")]).class_of(f"{__name__}:pytest.MonkeyPatch") is None


def test_a_listed_name_in_a_module_that_is_not_imported_yet(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "new_shop.py").write_text("class Order: ...\nclass Legacy:\n    class Order: ...")
    monkeypatch.syspath_prepend(tmp_path)
    assert Allowed([("new_shop", "Order")]).class_of("new_shop:Legacy.Order") is None


@for_each("wrap", [lambda serde: serde, lambda serde: EncryptedSerializer(Cipher(), serde)])
def test_a_serializer_that_may_pickle_is_refused(memory: LimpetSaver, wrap: Any) -> None:
    with pytest.raises(InvalidInput, match=r"must not pickle.*without pickle_fallback"):
        LimpetSaver(memory._sync, serde=wrap(JsonPlusSerializer(pickle_fallback=True)))


def test_a_saver_that_allows_them_already_is_the_same(memory: LimpetSaver) -> None:
    """LangGraph asks for each run, and another saver would encode all messages again."""
    names = [(__name__, "Shape"), ("langgraph.types", "Send")]
    listed = memory.with_allowlist(names)
    assert listed is not memory
    assert listed.with_allowlist(names[:1]) is listed
