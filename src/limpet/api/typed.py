"""The states of a scope as objects of a class: `store.scope(..., model=ChatState)`.

A class with `model_dump` and `model_validate` (Pydantic) is asked to do both by itself. Dataclasses
and TypedDicts are read by the types of their fields: JSON, the classes below, and each other.
Nothing is saved that could not be loaded again.
"""

import base64
import dataclasses
from collections import abc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from limpet.api.jsonable import jsonable
from limpet.api.opened import JsonModel, Tools
from limpet.core import codec
from limpet.errors import InvalidInput
from limpet.model import JSON, SnapshotInfo

_FROM_TEXT: dict[type, Callable[[str], Any]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    UUID: UUID,
    Decimal: Decimal,
    Path: Path,
    PurePath: PurePath,
    bytes: lambda text: base64.b64decode(text, validate=True),
}
_FROM_LIST: dict[type, Callable[[list[Any]], Any]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Set: set,
}
_OBJECTS = (dict, abc.Mapping, abc.MutableMapping)
_SCALARS: dict[type, type | UnionType] = {
    str: str,
    bool: bool,
    int: int,
    float: float | int,
    NoneType: NoneType,
}


class _Misfit(Exception):
    """A value does not fit its type. `path` leads to it."""

    def __init__(self, problem: str, path: abc.Iterable[str | int] = ()) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = list(path)


class TypedModel(JsonModel):
    """How the states of one class become JSON and come back."""

    def __init__(self, model: Any, tools: Tools) -> None:
        if not _is_model(model) and not _is_dataclass(model) and not _is_typed_dict(model):
            found = getattr(model, "__name__", type(model).__name__)
            raise InvalidInput(
                "model must be a Pydantic model (a class with model_dump and model_validate), a "
                f"dataclass or a TypedDict. found=`{found}`"
            )
        self._class = model
        self._bytes_max, self._default = tools.state_bytes_max, tools.default
        try:
            self._types = _types_of(model)
        except (NameError, TypeError) as cause:
            raise InvalidInput(
                "the types of the model's fields cannot be resolved: define them where the model "
                f"is defined, in a module and not in a function. model=`{model.__name__}`"
            ) from cause

    def dump(self, state: Any) -> JSON:
        expected = dict if _is_typed_dict(self._class) else self._class
        if not isinstance(state, expected):
            raise InvalidInput(
                "the state is not of the scope's model: save one of it, or use a scope without "
                f"model. model=`{self._class.__name__}` type=`{type(state).__name__}`"
            )
        with self._checked_for_loading():
            dumped = self._json_of(state)
            _read(self._class, dumped)
        return dumped

    def dump_member(self, key: str, value: Any) -> tuple[str, JSON]:
        if key not in self._types:
            known = ", ".join(self._types)
            raise InvalidInput(
                f"the model has no such field: use one of {known}. "
                f"model=`{self._class.__name__}` key=`{key}`"
            )
        field = getattr(self._class, "model_fields", {}).get(key)
        stored_key = getattr(field, "serialization_alias", None) or key
        with self._checked_for_loading(key):
            ((_, dumped),) = self._json_of({stored_key: value}).items()
            _read(self._types[key], dumped)
        return stored_key, dumped

    def load(self, info: SnapshotInfo, body: bytes) -> Any:
        try:
            return _read(self._class, codec.decode(body))
        except _Misfit as misfit:
            session_id, scope_id, kind = info.scope
            raise self._refused(
                "the stored state is intact, but does not fit the model: give a new field a "
                "default, convert old states in the model, or load it in a scope without model",
                misfit,
                f" id=`{info.id}` session=`{session_id}` scope=`{scope_id}` kind=`{kind}`",
            ) from misfit.__cause__

    @contextmanager
    def _checked_for_loading(self, *path: str) -> Iterator[None]:
        """Refuse what could not be loaded again."""
        try:
            yield
        except RecursionError:
            raise InvalidInput("the state is nested too deeply") from None
        except _Misfit as misfit:
            misfit.path[:0] = path
            refused = "the state could not be loaded again, so it is not saved: change the value"
            raise self._refused(f"{refused} or the model", misfit) from misfit.__cause__

    def _json_of(self, value: Any) -> JSON:
        # Before the codec sees it: that would walk all parts of what the model makes, one by one,
        # and would not ask a model that is a dict.
        made = self._part(value) if _is_model(type(value)) else value
        return codec.decode(codec.encode(made, bytes_max=self._bytes_max, default=self._part))

    def _part(self, value: Any) -> JSON:
        """Return a part of a state that is not JSON as what the model, or else the store makes."""
        if _is_model(type(value)):
            return _made(lambda: value.model_dump(mode="json", by_alias=True, round_trip=True))
        try:
            return jsonable(value)
        except TypeError:
            if self._default is None:
                raise
            return self._default(value)

    def _refused(self, what: str, misfit: _Misfit, where: str = "") -> InvalidInput:
        path = "".join(f"/{each}" for each in misfit.path)
        model = self._class.__name__
        return InvalidInput(
            f"{what}. model=`{model}` path=`{path}` problem=`{misfit.problem}`{where}", path=path
        )


def _is_model(kind: Any) -> bool:
    verbs = ("model_dump", "model_validate")
    return isinstance(kind, type) and all(hasattr(kind, verb) for verb in verbs)


def _is_dataclass(kind: Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _is_typed_dict(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "__required_keys__")  # also by an extension


@lru_cache(1000)
def _types_of(kind: Any) -> dict[str, Any]:
    """Return the fields of a class with their types; none if it has no fields."""
    fields = getattr(kind, "model_fields", None)
    if fields is not None:
        return {name: field.annotation for name, field in fields.items()}
    has_fields = _is_model(kind) or _is_dataclass(kind) or _is_typed_dict(kind)
    return get_type_hints(kind) if has_fields else {}


def _read(kind: Any, value: JSON) -> Any:
    """Return a JSON value as an object of a type."""
    kind = getattr(kind, "__supertype__", getattr(kind, "__value__", kind))  # NewType; type X = Y
    origin: Any = get_origin(kind) or kind
    inner = get_args(kind)
    if origin is Annotated:
        return _read(inner[0], value)
    if origin is Union or origin is UnionType:
        return _read_union(inner, value)
    if origin is Literal:
        if not any(value == each and type(value) is type(each) for each in inner):
            raise _Misfit(f"must be one of {', '.join(map(repr, inner))}")
        return value
    if _is_typed_dict(origin):
        return _read_members(origin, value, origin.__required_keys__)
    if origin is Any or origin is object or not isinstance(origin, type):
        return value
    if _is_model(origin):
        return _made(_validated, origin, value)
    if _is_dataclass(origin):
        return _read_dataclass(origin, value)
    if issubclass(origin, Enum):
        return _parsed(origin, origin, value)
    if origin in _FROM_TEXT:
        return _parsed(origin, _FROM_TEXT[origin], _checked(str, value))
    if origin in _FROM_LIST:
        return _FROM_LIST[origin](_read_items(origin, inner, _checked(list, value)))
    if origin in _OBJECTS:
        each_kind = inner[1] if inner else Any
        return {key: _at(key, each_kind, each) for key, each in _checked(dict, value).items()}
    return _checked(origin, value)


def _checked(kind: type, value: JSON) -> Any:
    expected = _SCALARS.get(kind, kind)
    if not isinstance(value, expected) or (type(value) is bool and kind is not bool):
        raise _Misfit(f"must be {_name(kind)}, found {_name(type(value))}")
    return value


def _name(kind: Any) -> str:
    return {dict: "an object", list: "a list", str: "text", NoneType: "null"}.get(
        kind, getattr(kind, "__name__", str(kind))
    )


def _at(step: str | int, kind: Any, value: JSON) -> Any:
    try:
        return _read(kind, value)
    except _Misfit as misfit:
        misfit.path.insert(0, step)
        raise


def _read_items(origin: type, inner: tuple[Any, ...], items: list[JSON]) -> list[Any]:
    if origin is tuple and inner and inner[-1] is not Ellipsis:
        if len(inner) != len(items):
            raise _Misfit(f"must have {len(inner)} items, found {len(items)}")
        return [_at(number, *each) for number, each in enumerate(zip(inner, items, strict=True))]
    each_kind = inner[0] if inner else Any
    return [_at(number, each_kind, each) for number, each in enumerate(items)]


def _read_members(kind: Any, value: JSON, required: abc.Set[str]) -> dict[str, Any]:
    types, members = _types_of(kind), _checked(dict, value)
    for name in types:
        if name in required and name not in members:
            raise _Misfit("is missing", [name])
    return {name: _at(name, types.get(name, Any), each) for name, each in members.items()}


def _read_dataclass(kind: type[Any], value: JSON) -> Any:
    """Make an object; keys that are no fields of it are ignored, as Pydantic does."""
    fields = dataclasses.fields(kind)
    missing = dataclasses.MISSING
    members = _read_members(
        kind,
        value,
        {f.name for f in fields if f.init and f.default is f.default_factory is missing},
    )
    given = {f.name: members[f.name] for f in fields if f.init and f.name in members}
    made = _made(lambda: kind(**given))
    for field in fields:
        if not field.init and field.name in members:
            object.__setattr__(made, field.name, members[field.name])  # it may be frozen
    return made


def _read_union(kinds: tuple[Any, ...], value: JSON) -> Any:
    misfits = []
    if isinstance(value, dict):
        # Most classes ignore what they do not know: the one that knows most of it comes first.
        kinds = tuple(sorted(kinds, key=lambda kind: -len(value.keys() & _types_of(kind).keys())))
    for kind in kinds:
        try:
            return _read(kind, value)
        except _Misfit as misfit:
            misfits.append(misfit)
    nearest = max(misfits, key=lambda misfit: len(misfit.path))
    if nearest.path:
        raise nearest
    names = " or ".join(_name(kind) for kind in kinds)
    raise _Misfit(f"must be {names}, found {_name(type(value))}")


def _validated(kind: Any, value: JSON) -> Any:
    # From JSON a strict model takes the text of a date, and a list for a set.
    if hasattr(kind, "model_validate_json"):
        return kind.model_validate_json(codec.encode(value))
    return kind.model_validate(value)


def _made(make: Callable[..., Any], *args: Any) -> Any:
    try:
        return make(*args)
    except InvalidInput:
        raise  # what is not JSON
    except Exception as cause:  # of the model's own code
        raise _misfit_of(cause) from cause


def _parsed(kind: type, parse: Callable[[Any], Any], value: JSON) -> Any:
    try:
        return parse(value)
    except (ValueError, ArithmeticError):  # whose text holds the value
        raise _Misfit(f"is not a valid {kind.__name__}") from None


def _misfit_of(error: Exception) -> _Misfit:
    """Return what an error says; that of Pydantic has several, with their places."""
    errors = getattr(error, "errors", None)
    if callable(errors) and (found := errors()):
        return _Misfit(found[0]["msg"], found[0]["loc"])
    return _Misfit(f"{type(error).__name__}: {error}")
