"""Decode values: the inverse of `encode`. Only objects of allowed classes are made."""

import dataclasses
from base64 import b64decode
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, TypeAlias

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from limpet.api.integrations import codec
from limpet.compat.langgraph import tags, upstream
from limpet.compat.langgraph.classes import MESSAGES, all_slots, refusal, shown
from limpet.compat.langgraph.messages import FIELDS, make
from limpet.compat.langgraph.serde import ValueRules
from limpet.errors import Corrupt, InvalidInput, LimpetError

_CONTAINERS = frozenset((dict, list))
_set = object.__setattr__

Decode: TypeAlias = Callable[[dict[str, Any], Any], Any]
"""Decodes one tagged object: its other members, and the value of the tag."""


class ValueDecoder:
    """Decodes values in place: the JSON that it is given becomes part of the value."""

    def __init__(self, rules: ValueRules) -> None:
        self._rules = rules
        self._by_tag: dict[str, Decode] = {
            tags.MESSAGE: self._message,
            tags.RICH: self._rich,
            tags.OBJECT: self._object,
            tags.ENUM: self._enum,
            tags.MAP: lambda tree, inner: {self.read(key): self.read(each) for key, each in inner},
            tags.PLAIN: lambda tree, inner: self._members(inner),
            tags.SERDE: self._serialized,
            tags.SEALED: _refuse_sealed,
            tags.LANGCHAIN: lambda tree, inner: tags.load_langchain(self.read(inner)),
            tags.JAVASCRIPT: _javascript,
            **{tag: partial(self._sequence, kind) for kind, tag in tags.SEQUENCES.items()},
            **{tag: partial(_read_text, read) for tag, read in tags.TEXTS.items()},
        }

    def value(self, tree: Any) -> Any:
        """Return the value of a tree of JSON.

        Raises:
            InvalidInput: a class is not allowed, or another serializer is needed.
            Corrupt: the JSON is malformed.
        """
        if self._rules.sealed:
            is_list = type(tree) is list
            return [*map(self._unsealed, tree)] if is_list else self._unsealed(tree)
        return self.read(tree)

    def read(self, tree: Any) -> Any:
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
                return self._tagged(first, tree)
            break
        return self._members(tree)

    def _members(self, tree: dict[str, Any]) -> dict[str, Any]:
        for key, each in tree.items():
            if type(each) in _CONTAINERS:
                tree[key] = self.read(each)
        return tree

    def _tagged(self, tag: str, tree: dict[str, Any]) -> Any:
        read = self._by_tag.get(tag)
        if read is None:
            raise Corrupt(f"a stored value has an unknown tag. tag=`{tag}`")
        try:
            return read(tree, tree.pop(tag))
        except (InvalidInput, Corrupt):
            raise
        except Exception as cause:
            raise Corrupt(f"a stored value is malformed. tag=`{tag}`") from cause

    def _message(self, tree: dict[str, Any], name: Any) -> Any:
        kind = MESSAGES[name]
        if tuple(tree) == FIELDS[kind]:
            return make(kind, tree)
        return _restored(kind, tree, {})

    def _rich(self, tree: dict[str, Any], name: Any) -> Any:
        extra = self.read(tree.pop(tags.EXTRA, {}))
        return _restored(MESSAGES[name], self._members(tree), extra)

    def _class_of(self, name: Any) -> Any:
        found = self._rules.allowed.class_of(name)
        if found is None:
            raise refusal(str(name))
        return found

    def _object(self, tree: dict[str, Any], name: Any) -> Any:
        kind = self._class_of(name)
        if issubclass(kind, tuple):
            return tuple.__new__(kind, self.read(tree["items"]))
        fields = self._members(tree["fields"])
        if issubclass(kind, BaseModel):
            extra, private = (self._members(tree.get(name, {})) for name in ("extra", "private"))
            return _restored(kind, fields, extra, tree.get("unset", ()), private or None)
        if dataclasses.is_dataclass(kind):
            return self._dataclass(kind, fields, tree)
        if not hasattr(kind, "__slots__"):
            raise _misfit(kind)
        made = object.__new__(kind)
        for field, each in fields.items():
            _set(made, field, each)
        return made

    def _dataclass(self, kind: Any, fields: dict[str, Any], tree: dict[str, Any]) -> Any:
        """Return a dataclass as it was: `__init__` and `__post_init__` could change its values.

        If its class has other fields now, the constructor is called with those that it takes.
        """
        known = {field.name: field.init for field in dataclasses.fields(kind)}
        missing = known.keys() ^ fields.keys()
        if missing and missing != {*tree.get("unset", ())}:
            taken = {name: each for name, each in fields.items() if known.get(name, True)}
            try:
                return kind(**taken)
            except TypeError as cause:
                raise _misfit(kind) from cause
        if "extra" in tree:
            fields |= self._members(tree["extra"])
        made = object.__new__(kind)
        # Into `__dict__` unless it is a slot: a descriptor may convert what is assigned.
        for name in fields.keys() & (all_slots(kind) if kind.__dictoffset__ else fields):
            _set(made, name, fields.pop(name))
        if fields:
            made.__dict__.update(fields)
        return made

    def _enum(self, tree: dict[str, Any], name: Any) -> Any:
        kind = self._class_of(name)
        if not issubclass(kind, Enum):
            raise InvalidInput(f"a stored value names a class that is not an enum. class=`{name}`")
        return kind[tree["name"]] if "name" in tree else kind(self.read(tree["value"]))

    def _sequence(self, kind: Any, tree: dict[str, Any], inner: Any) -> Any:
        items = self.read(inner)
        return deque(items, tree.get("maxlen")) if kind is deque else kind(items)

    def _serialized(self, tree: dict[str, Any], inner: Any) -> Any:
        form, body, name = inner
        serde = self._rules.serde
        if form == "json" and isinstance(serde, JsonPlusSerializer):
            # We never write it, and its decoder allows more classes than that of msgpack.
            raise InvalidInput("a stored value is in a format that is not allowed. format=`json`")
        value = serde.loads_typed((form, b64decode(body, validate=True)))
        if shown(type(value)) != name:
            raise refusal(str(name))
        # An array would be a read-only view of the stored bytes.
        return value.copy("K") if name == "numpy:ndarray" else value

    def _unsealed(self, tree: Any) -> Any:
        match tree:
            case {tags.SEALED: [str(form), str(body)]}:
                serde = self._rules.serde
                text = loaded(lambda: serde.loads_typed((form, b64decode(body, validate=True))))
                if type(text) is bytes:
                    return self.read(codec.decode(text))
        # Or anyone who can write to the store could replace a value by one that was never sealed.
        raise InvalidInput("a stored value was not saved with this serializer")


def loaded(load: Callable[[], Any]) -> Any:
    """Call a serializer, which may raise anything, and raise Corrupt instead."""
    try:
        return load()
    except LimpetError:
        raise
    except Exception as cause:
        kind = type(cause).__name__
        raise Corrupt(f"a stored value cannot be decoded. error=`{kind}`") from cause


def _restored(
    kind: Any, fields: dict[str, Any], extra: dict[str, Any], unset: Any = (), private: Any = None
) -> Any:
    """Return a model as it was; if its class has other fields now, it is validated."""
    if fields.keys() != kind.model_fields.keys():
        return kind.model_validate({**fields, **extra})
    made = kind.__new__(kind)
    upstream.set_fields(made, fields)
    upstream.set_fields_set(made, {*fields, *extra} - {*unset})
    upstream.set_extra(made, extra if kind.model_config.get("extra") == "allow" else None)
    upstream.set_private(made, private)
    if private is None and kind.__private_attributes__:
        made.model_post_init(None)
    return made


def _misfit(kind: type) -> InvalidInput:
    return InvalidInput(f"a stored value does not fit its class. class=`{shown(kind)}`")


def _refuse_sealed(tree: dict[str, Any], inner: Any) -> None:
    fact = "a stored value needs the serializer that it was saved with"
    raise InvalidInput(f"{fact}: pass it as serde")


def _javascript(tree: dict[str, Any], inner: Any) -> None:
    kind = inner["type"]
    if kind != "undefined":
        named = ".".join(inner.get("id", [kind]))
        raise InvalidInput(f"a stored value is of a type of LangGraph.js. type=`{named}`")


def _read_text(read: Callable[[Any], Any], tree: dict[str, Any], inner: Any) -> Any:
    return read(inner)
