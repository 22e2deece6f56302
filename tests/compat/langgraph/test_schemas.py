"""`allow=State` allows the classes that a schema refers to, and nothing else."""

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
from langgraph.graph import MessagesState
from pydantic import BaseModel, PrivateAttr
from typing_extensions import ReadOnly, TypeAliasType
from typing_extensions import TypedDict as NewTypedDict

from limpet import InvalidInput
from limpet.compat.langgraph import LimpetSaver
from limpet.compat.langgraph.classes import MESSAGE_NAMES, Allowed, classes_in, listed
from tests.cases import for_each
from tests.compat.langgraph.kit import Places, got, put


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
