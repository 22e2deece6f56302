"""Typed state: `store.scope(..., model=…)` saves and loads objects of a class."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, Literal, NewType, NotRequired, Self, TypedDict
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field, field_validator, model_validator

import limpet
from limpet import JSON, InvalidInput, Snapshot, Store
from limpet.testing.kit import APIS, close_loop, through
from tests.cases import for_each


class Mood(StrEnum):
    CALM = "calm"
    BOLD = "bold"


@dataclass
class Message:
    role: Literal["user", "assistant"]
    content: str


@dataclass
class Chat:
    title: str
    messages: list[Message] = field(default_factory=list)
    mood: Mood = Mood.CALM


class PydanticMessage(BaseModel):
    role: Literal["user", "assistant"]
    content: str


class PydanticChat(BaseModel):
    title: str
    messages: list[PydanticMessage] = []
    mood: Mood = Mood.CALM


class DictMessage(TypedDict):
    role: Literal["user", "assistant"]
    content: str


class DictChat(TypedDict):
    title: str
    messages: list[DictMessage]
    mood: NotRequired[Mood]


class Kind:
    """One way to write the same model."""

    def __init__(self, chat: Any, message: Any) -> None:
        self.model, self.message = chat, message

    def chat(self, title: str, *contents: str) -> Any:
        said = [self.message(role="user", content=each) for each in contents]
        return self.model(title=title, messages=said, mood=Mood.BOLD)


KINDS = {
    "dataclass": Kind(Chat, Message),
    "pydantic": Kind(PydanticChat, PydanticMessage),
    "typed dict": Kind(DictChat, DictMessage),
}


@pytest.fixture(params=KINDS.values(), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture(params=APIS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with limpet.open(f"sqlite:///{tmp_path}/typed.db") as opened:
        yield through(request.param, opened)
        close_loop()


def loaded(found: Snapshot[Any] | None) -> Any:
    assert found is not None
    return found.state


def retitled(state: Any, title: str) -> Any:
    if isinstance(state, dict):
        return {**state, "title": title}
    state.title = title
    return state


def test_a_state_comes_back_as_it_was(store: Store, kind: Kind) -> None:
    scope = store.scope("chat", model=kind.model)
    assert scope.load() is None
    info = scope.save(kind.chat("first", "hello"))
    scope.save(kind.chat("second"))
    assert loaded(scope.load(info.id)) == kind.chat("first", "hello")
    assert loaded(scope.load()) == kind.chat("second")
    assert type(loaded(scope.load())) is type(kind.chat("second"))
    assert type(scope.info(info.id)) is limpet.SnapshotInfo
    assert [type(each) for each in scope.history()] == [limpet.SnapshotInfo] * 2
    many = [each.state for each in scope.load_many([info.id, "no-such-id"])]
    assert many == [kind.chat("first", "hello")]
    assert loaded(store.scope("chat").load(info.id)) == {
        "title": "first",
        "messages": [{"role": "user", "content": "hello"}],
        "mood": "bold",
    }


def test_every_verb_takes_and_gives_the_model(store: Store, kind: Kind) -> None:
    scope = store.scope("chat", model=kind.model)
    first = scope.save(kind.chat("first", "one"))
    scope.append("messages", [kind.message(role="user", content="two")])
    assert loaded(scope.load()) == kind.chat("first", "one", "two")
    scope.update(first.id, lambda found: found.with_(state=retitled(found.state, "changed")))
    assert loaded(scope.load(first.id)) == kind.chat("changed", "one")
    assert scope.update(first.id, lambda found: None) is None

    said = [kind.message(role="user", content="new")]
    fork = scope.fork(first.id, patch={"messages": said, "title": "fork"})
    assert loaded(fork.load()) == kind.chat("fork", "new")
    assert loaded(fork.fork(loaded_id(fork)).load()) == kind.chat("fork", "new")
    other = scope.fork(first.id, patch=lambda state: retitled(state, "again"))
    assert loaded(other.load()) == kind.chat("again", "one")

    scope.restore(first.id)
    assert loaded(scope.load()) == kind.chat("changed", "one")
    with scope.claim(owner="worker") as lease:
        lease.save(kind.chat("leased"))
        assert loaded(lease.load()) == kind.chat("leased")
    (change,) = scope.diff(first.id, loaded_id(scope)).changes[:1]
    assert change.path in ("/title", "/messages", "/messages/0")
    assert type(next(iter(scope.watch(timeout_s=100)))) is limpet.SnapshotInfo


def loaded_id(scope: limpet.Scope[Any]) -> str:
    found = scope.info()
    assert found is not None
    return found.id


def test_a_state_that_does_not_fit_names_the_snapshot_and_the_field(
    store: Store, kind: Kind
) -> None:
    plain = store.scope("chat", "planner")
    info = plain.save({"title": "t", "messages": [{"role": "user"}]})
    scope = store.scope("chat", "planner", model=kind.model)
    with pytest.raises(InvalidInput) as caught:
        scope.load()
    said = str(caught.value)
    assert "path=`/messages/0/content`" in said
    for part in ("scope without model", f"id=`{info.id}`", "session=`chat`", "scope=`planner`"):
        assert part in said
    for call in (
        lambda: list(scope.load_many([info.id])),
        lambda: scope.update(info.id, lambda found: found),
        lambda: scope.fork(info.id, patch=lambda state: state),
    ):
        with pytest.raises(InvalidInput, match="/messages/0/content"):
            call()
    assert plain.load() == plain.load(info.id)
    assert len(list(store.scopes())) == 1


def test_what_could_not_be_loaded_again_is_not_saved(store: Store, kind: Kind) -> None:
    scope = store.scope("chat", model=kind.model)
    info = scope.save(kind.chat("first"))
    with pytest.raises(InvalidInput, match=r"not of the scope's model.*type=`list`"):
        scope.save([])
    with pytest.raises(InvalidInput, match="use one of title, messages, mood"):
        scope.append("mesages", [])
    with pytest.raises(InvalidInput, match="path=`/messages/0/role`"):
        scope.append("messages", [{"role": "usr", "content": "x"}])
    with pytest.raises(InvalidInput, match="path=`/title`"):
        scope.fork(info.id, patch={"title": 5})
    with pytest.raises(InvalidInput, match="no such field"):
        scope.fork(info.id, patch={"titel": "x"})
    with pytest.raises(InvalidInput, match="not of the scope's model"):
        scope.update(info.id, lambda found: found.with_(state="text"))
    assert [each.id for each in store.history()] == [info.id]


def test_a_wrong_field_of_a_dataclass_is_refused(store: Store) -> None:
    wrong: Any = Chat(title="t", messages=[Message("user", 5)])  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="path=`/messages/0/content` problem=`must be text"):
        store.scope("chat", model=Chat).save(wrong)
    own: Any = Chat(title="t")
    own.messages.append(own)
    with pytest.raises(InvalidInput, match=r"inside itself\. path=`/messages/0`"):
        store.scope("chat", model=Chat).save(own)
    assert list(store.scopes()) == []


UserId = NewType("UserId", str)


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Image:
    text: str
    url: str


class Level(Enum):
    LOW = 1


@dataclass
class Everything:
    day: date
    at: datetime
    key: UUID
    price: Decimal
    path: Path
    raw: bytes
    level: Level
    pair: tuple[int, str]
    many: tuple[float, ...]
    tags: set[str]
    frozen: frozenset[int]
    parts: list[Text | Image]
    table: Mapping[str, list[Text]]
    user: UserId
    inner: PydanticMessage
    maybe: Text | None
    count: int | str
    free: Any
    tree: "Everything | None" = None
    derived: int = field(init=False, default=0)


def everything() -> Everything:
    made = Everything(
        day=date(2024, 2, 29),
        at=datetime(2024, 2, 29, 12, tzinfo=UTC),
        key=UUID(int=7),
        price=Decimal("1.10"),
        path=Path("a/b"),
        raw=b"\x00\xff",
        level=Level.LOW,
        pair=(1, "x"),
        many=(1.0, 2),
        tags={"a", "b"},
        frozen=frozenset({1}),
        parts=[Image("i", "u"), Text("t")],
        table={"k": [Text("t")]},
        user=UserId("u"),
        inner=PydanticMessage(role="user", content="x"),
        maybe=None,
        count="2",
        free={"any": [None, 1.5]},
    )
    made.derived = 5
    return made


def test_fields_of_a_dataclass_may_have_these_types(store: Store) -> None:
    scope = store.scope("s", model=Everything)
    state = everything()
    state.tree = everything()
    scope.save(state)
    assert loaded(scope.load()) == state


@for_each(
    "path, value",
    [
        (("at",), "yesterday"),
        (("at",), 5),
        (("key",), "no uuid"),
        (("price",), "much"),
        (("raw",), "?"),
        (("level",), 2),
        (("pair",), [1]),
        (("pair", 1), 1),
        (("many", 0), True),
        (("tags",), "ab"),
        (("parts", 0), {"url": "u"}),
        (("parts", 1, "text"), None),
        (("table", "k", 0), []),
        (("inner", "role"), "system"),
        (("maybe",), 5),
        (("count",), 1.5),
        (("tree",), {}),
    ],
)
def test_a_value_of_another_type_is_named(path: tuple[str | int, ...], value: Any) -> None:
    with limpet.open("memory:") as store:
        store.scope("s", model=Everything).save(everything())
        plain = store.scope("s")
        state = target = loaded(plain.load())
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value
        plain.save(state)
        with pytest.raises(InvalidInput) as caught:
            store.scope("s", model=Everything).load()
        assert "path=`/" + "/".join(map(str, path)) in str(caught.value)
        said, _, _ = str(caught.value).partition(" id=")
        assert not isinstance(value, str) or value not in said  # never a state


def test_a_class_that_cannot_be_read_back_is_refused() -> None:
    @dataclass
    class Odd:
        things: SimpleNamespace

    with limpet.open("memory:") as store, pytest.raises(InvalidInput, match="path=`/things`"):
        store.scope("s", model=with_types(Odd)).save(Odd(SimpleNamespace()))


def with_types(model: Any) -> Any:
    return model


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    name: str = Field(alias="userName")
    at: datetime
    tags: set[int] = set()
    entries: list[PydanticMessage] = Field(default=[], alias="logEntries")

    @computed_field
    def upper(self) -> str:
        return self.name.upper()


def test_pydantic_aliases_strict_mode_and_computed_fields(store: Store) -> None:
    scope = store.scope("s", model=Strict)
    at = datetime(2024, 1, 1, tzinfo=UTC)
    scope.save(Strict(userName="ann", at=at, tags={1}))
    scope.append("entries", [PydanticMessage(role="user", content="x")])
    found = loaded(scope.load())
    assert (found.name, found.at, found.tags, found.upper) == ("ann", at, {1}, "ANN")
    assert [each.content for each in found.entries] == ["x"]
    assert set(loaded(store.scope("s").load())) == {"userName", "at", "tags", "logEntries"}


class Renamed(BaseModel):
    name: str
    added: int = 7

    @model_validator(mode="before")
    @classmethod
    def from_first_version(cls, data: Any) -> Any:
        if "login" in data:
            data["name"] = data.pop("login")
        return data


def test_schema_changes_are_the_models_business(store: Store) -> None:
    store.scope("s").save({"login": "ann"})
    assert loaded(store.scope("s", model=Renamed).load()) == Renamed(name="ann", added=7)
    # A dataclass takes the default of what is missing, and ignores what it does not know.
    store.scope("d").save({"title": "t", "gone": 1})
    assert loaded(store.scope("d", model=Chat).load()) == Chat("t")
    # A TypedDict keeps it.
    store.scope("d").save({"title": "t", "messages": [], "gone": 1})
    assert loaded(store.scope("d", model=DictChat).load())["gone"] == 1


class Picky(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def known(cls, name: str) -> str:
        raise KeyError(name)


@dataclass
class Guarded:
    count: int

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("count is negative")


def test_errors_of_the_models_own_code_are_explained() -> None:
    with limpet.open("memory:") as store:
        store.scope("s").save({"name": "x", "count": -1})
        with pytest.raises(InvalidInput, match="problem=`KeyError") as caught:
            store.scope("s", model=Picky).load()
        assert isinstance(caught.value.__cause__, KeyError)
        with pytest.raises(InvalidInput, match="problem=`ValueError: count is negative`"):
            store.scope("s", model=Guarded).load()


@dataclass
class Loose:
    anything: Any


class Own:
    """Not Pydantic: any class with the two methods."""

    def __init__(self, name: str) -> None:
        self.name = name

    def model_dump(self, **options: Any) -> dict[str, Any]:
        return {"name": self.name}

    @classmethod
    def model_validate(cls, value: Any) -> Self:
        return cls(value["name"])


def test_any_class_with_the_two_methods(store: Store) -> None:
    scope = store.scope("s", model=Own)
    scope.save(Own("x"))
    assert loaded(scope.load()).name == "x"
    store.scope("s").save({})
    with pytest.raises(InvalidInput, match="problem=`KeyError"):
        scope.load()


class OwnDict(dict[str, JSON]):
    """A class with the two methods that is JSON by itself."""

    def model_dump(self, **options: Any) -> dict[str, Any]:
        return {"version": 2, "members": dict(self)}

    @classmethod
    def model_validate(cls, value: Any) -> Self:
        return cls(value["members"])


def test_a_dict_with_the_two_methods_is_asked_for_its_json(store: Store) -> None:
    scope = store.scope("s", model=OwnDict)
    scope.save(OwnDict(a=1))
    assert loaded(store.scope("s").load()) == {"version": 2, "members": {"a": 1}}
    assert loaded(scope.load()) == OwnDict(a=1)


class Listed(BaseModel):
    items: list[dict[str, int]]


def test_what_pydantic_makes_is_not_walked_part_by_part() -> None:
    """It takes a call of Python code for each part, several times as long as Pydantic itself."""
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    with limpet.open("memory:") as store:
        scope = store.scope("s", model=Listed)
        state = Listed(items=[{"n": number} for number in range(1_000)])
        scope.save(state)
        sys.setprofile(count)
        try:
            scope.save(state)
        finally:
            sys.setprofile(None)
    assert calls < len(state.items)


def test_a_value_that_nothing_converts_is_called_not_json(store: Store) -> None:
    """Also without a `default`, which the caller cannot have got wrong then."""
    with pytest.raises(InvalidInput, match=r"is not JSON: convert it.* type=`object`") as caught:
        store.scope("s", model=Loose).save(Loose([object()]))
    assert caught.value.path == "/anything/0"


@for_each("model", [dict, int, "Chat", Chat("t"), list[Chat]])
def test_other_models_are_refused(model: Any) -> None:
    with limpet.open("memory:") as store, pytest.raises(InvalidInput, match="a dataclass or a T"):
        store.scope("s", model=model)


def test_types_that_cannot_be_resolved_are_refused() -> None:
    @dataclass
    class Local:
        other: "Nowhere"  # type: ignore[name-defined]  # noqa: F821

    with limpet.open("memory:") as store, pytest.raises(InvalidInput, match="cannot be resolved"):
        store.scope("s", model=Local)


def test_async_functions_are_given_the_model(kind: Kind) -> None:
    async def change(found: Snapshot[Any]) -> Snapshot[Any]:
        return found.with_(state=retitled(found.state, "changed"))

    async def patch(state: Any) -> Any:
        return retitled(state, "patched")

    async def main() -> None:
        async with limpet.open_async("memory:") as store:
            scope = store.scope("chat", model=kind.model)
            first = await scope.save(kind.chat("first"))
            fork = await scope.fork(first.id, patch=patch)
            await scope.update(first.id, change)
            assert loaded(await scope.load()) == kind.chat("changed")
            assert loaded(await fork.load()) == kind.chat("patched")

    asyncio.run(main())
