"""From JSON to values: the inverse of `values`. Nothing is made but what is allowed."""

import dataclasses
from base64 import b64decode
from collections.abc import Callable
from typing import Any, TypeAlias

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from limpet.compat.langgraph import forms
from limpet.compat.langgraph.allowed import MESSAGES, Shape
from limpet.compat.langgraph.messages import FIELDS, make
from limpet.core import codec
from limpet.errors import Corrupt, InvalidInput, LimpetError

_CONTAINERS = frozenset((dict, list))
_set = object.__setattr__

Form: TypeAlias = Callable[[dict[str, Any], Any], Any]
"""Reads one form: from what stands beside its tag, and what stands under it."""


class Reader:
    """Reads values. What it is given becomes part of what it returns, or is changed."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._forms: dict[str, Form] = {
            forms.MESSAGE: self._message,
            forms.RICH: self._rich,
            forms.OBJECT: self._object,
            forms.ENUM: self._enum,
            forms.MAP: lambda tree, inner: {self.read(key): self.read(each) for key, each in inner},
            forms.PLAIN: lambda tree, inner: self._members(inner),
            forms.TEXT: lambda tree, inner: inner.encode("ascii").decode("unicode_escape"),
            forms.FLOAT: lambda tree, inner: float(inner),
            forms.BYTES: lambda tree, inner: b64decode(inner, validate=True),
            forms.BYTEARRAY: lambda tree, inner: bytearray(b64decode(inner, validate=True)),
            forms.SERDE: self._serialized,
            forms.SEALED: self._sealed,
            **{tag: self._sequence(kind) for tag, kind in forms.SEQUENCE_OF.items()},
            **{tag: _moment(tag) for tag in forms.MOMENTS},
        }

    def value(self, tree: Any) -> Any:
        """Return the value that a tree of JSON stands for.

        Raises:
            InvalidInput: it is of a class that is not allowed, or needs another serializer.
            Corrupt: it makes no sense.
        """
        if self._shape.sealed:
            return self._unseal(tree)
        return self.read(tree)

    def read(self, tree: Any) -> Any:
        """Return the value of a tree or of a part of it."""
        kind = type(tree)
        if kind is list:
            for index, each in enumerate(tree):
                if type(each) in _CONTAINERS:
                    tree[index] = self.read(each)
            return tree
        if kind is not dict:
            return tree
        for first in tree:
            if first.startswith("$"):
                return self._form(first, tree)
            break
        return self._members(tree)

    def _members(self, tree: dict[str, Any]) -> dict[str, Any]:
        for key, each in tree.items():
            if type(each) in _CONTAINERS:
                tree[key] = self.read(each)
        return tree

    def _form(self, tag: str, tree: dict[str, Any]) -> Any:
        read = self._forms.get(tag)
        if read is None:
            raise Corrupt(f"a stored value has a form that is not known. form=`{tag}`")
        try:
            return read(tree, tree.pop(tag))
        except (InvalidInput, Corrupt):
            raise
        except Exception as cause:
            raise Corrupt(f"a stored value makes no sense. form=`{tag}`") from cause

    def _message(self, tree: dict[str, Any], name: Any) -> Any:
        kind = MESSAGES[name]
        if tuple(tree) == FIELDS[kind]:
            return make(kind, tree)
        return self._restored(kind, tree, {})

    def _rich(self, tree: dict[str, Any], name: Any) -> Any:
        tree = self._members(tree)
        extra = tree.pop(forms.EXTRA, {})
        return self._restored(MESSAGES[name], tree, extra)

    def _restored(self, kind: Any, fields: dict[str, Any], extra: dict[str, Any]) -> Any:
        """Return a model with what it held; if its class has other fields now, it is made anew."""
        if fields.keys() != kind.model_fields.keys():
            return kind.model_validate({**fields, **extra})
        made = kind.__new__(kind)
        _set(made, "__dict__", fields)
        _set(made, "__pydantic_fields_set__", set(fields))
        _set(made, "__pydantic_extra__", _extra(kind, extra))
        _set(made, "__pydantic_private__", None)
        return made

    def _object(self, tree: dict[str, Any], name: Any) -> Any:
        kind: Any = self._shape.allowed.class_of(name)
        if issubclass(kind, tuple):
            return tuple.__new__(kind, self.read(tree["items"]))
        fields = self._members(tree["fields"])
        if issubclass(kind, BaseModel):
            return self._model(kind, fields, tree)
        if dataclasses.is_dataclass(kind):
            names = {field.name for field in dataclasses.fields(kind)}
            if names != fields.keys():
                return self._shape.allowed.class_of(name)(**fields)
        elif not hasattr(kind, "__slots__"):
            raise InvalidInput(f"a stored value names a class that it cannot be of. class=`{name}`")
        made = object.__new__(kind)
        for field, each in fields.items():
            _set(made, field, each)
        return made

    def _model(self, kind: Any, fields: dict[str, Any], tree: dict[str, Any]) -> Any:
        extra = self._members(tree.get("extra", {}))
        made = self._restored(kind, fields, extra)
        if fields.keys() == kind.model_fields.keys():
            _set(made, "__pydantic_fields_set__", {*fields, *extra} - {*tree.get("unset", ())})
            private = tree.get("private")
            if private is not None:
                _set(made, "__pydantic_private__", self._members(private))
            elif kind.__private_attributes__:
                made.model_post_init(None)
        return made

    def _enum(self, tree: dict[str, Any], name: Any) -> Any:
        kind = self._shape.allowed.enum_of(name)
        return kind[tree["name"]] if "name" in tree else kind(self.read(tree["value"]))

    def _sequence(self, kind: Any) -> Form:
        return lambda tree, inner: kind(self.read(inner))

    def _serialized(self, tree: dict[str, Any], inner: Any) -> Any:
        form, body, name = inner
        serde = self._shape.serde
        if form == "json" and isinstance(serde, JsonPlusSerializer):
            # We never write it, and it can name more than the rest of the serializer allows.
            raise InvalidInput("a stored value is in a form that is not allowed. form=`json`")
        value = serde.loads_typed((form, b64decode(body, validate=True)))
        kind = type(value)
        if f"{kind.__module__}:{kind.__qualname__}" != name:
            raise InvalidInput(f"a stored value is of a class that is not allowed. class=`{name}`")
        return value

    def _sealed(self, tree: dict[str, Any], inner: Any) -> Any:
        raise InvalidInput("a stored value needs the serializer that it was saved with")

    def _unseal(self, tree: Any) -> Any:
        if type(tree) is list:
            return [self._unsealed(each) for each in tree]
        return self._unsealed(tree)

    def _unsealed(self, tree: Any) -> Any:
        match tree:
            case {forms.SEALED: [str(form), str(body)]}:
                serde = self._shape.serde
                text = loaded(lambda: serde.loads_typed((form, b64decode(body, validate=True))))
                if type(text) is bytes:
                    return self.read(codec.decode(text))
        # Else whoever can write to the store could put in place what was never sealed.
        raise InvalidInput("a stored value was not saved with this serializer")


def loaded(load: Callable[[], Any]) -> Any:
    """Return what is loaded. What somebody's serializer raises, which may be any, is ours then."""
    try:
        return load()
    except LimpetError:
        raise
    except Exception as cause:
        kind = type(cause).__name__
        raise Corrupt(f"a stored value cannot be read. error=`{kind}`") from cause


def _extra(kind: Any, extra: dict[str, Any]) -> dict[str, Any] | None:
    return extra if kind.model_config.get("extra") == "allow" else None


def _moment(tag: str) -> Form:
    return lambda tree, inner: forms.read_moment(tag, inner)
