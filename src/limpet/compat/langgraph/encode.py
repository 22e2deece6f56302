"""Encode values as JSON, or with one of the `tags`. The inverse of `decode`.

A value that could not be decoded exactly is refused with its path, before anything is stored.
"""

import dataclasses
import gc
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from math import isfinite
from operator import length_hint
from typing import Any, NamedTuple, TypeVar

import orjson
from orjson import Fragment
from pydantic import BaseModel

from limpet.api.integrations import codec, limits
from limpet.compat.langgraph import tags
from limpet.compat.langgraph.classes import (
    MESSAGE_NAMES,
    advice,
    attributes,
    is_derived,
    is_same,
    shown,
    slots,
)
from limpet.compat.langgraph.messages import (
    MessageCache,
    MessageRun,
    Template,
    template_of,
)
from limpet.compat.langgraph.serde import ValueRules
from limpet.errors import InvalidInput

T = TypeVar("T")

CONTAINERS: frozenset[type] = frozenset((dict, list))
ATOMS: frozenset[type] = frozenset((str, int, float, bool, type(None)))
_PLAIN = CONTAINERS | ATOMS
_ENVELOPE = 6  # levels of JSON around a value in a checkpoint or in writes
_SHARED_MIN = 1_000  # containers of a level, which is searched for shared ones
_KEPT_MIN = 64 * 1024  # bytes


def is_sound(text: str) -> bool:
    """Return whether a text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Met(NamedTuple):
    """A value that was met, which is held so that no other gets its id; and what is written."""

    value: Any
    tree: Any
    size: int


class ValueEncoder:
    """Makes trees of values, which orjson writes: plain parts are written already.

    What is longer than `bytes_max` is refused before it is written. A value that is met again and
    again is encoded at most twice, so that small values that refer to each other often take neither
    time nor memory.
    """

    def __init__(
        self,
        rules: ValueRules,
        cache: MessageCache,
        path: Iterable[str | int] = (),
        *,
        bytes_max: int = limits.STATE_BYTES_MAX,
    ) -> None:
        self._bytes_left = bytes_max
        self._rules = rules
        self._cache = cache
        self._path = list(path)
        self._inside: set[int] = set()  # ids of the containers that are being encoded
        self._met: dict[tuple[int, int], _Met] = {}  # by id and depth

    def value(self, value: Any) -> bytes:
        """Return a value as JSON."""
        if not self._rules.sealed:
            return self.open_value(value)
        items = []
        for each in value if type(value) is list else [value]:
            items.append(_body_of(self._sealed_item(each)))
            self._count(len(items[-1]))
        return b"[%b]" % b",".join(items) if type(value) is list else items[0]

    def open_value(self, value: Any) -> bytes:
        """Return a value that is never sealed: LangGraph's own versions and counters."""
        return orjson.dumps(self._tree(value, _ENVELOPE))

    def channel(self, name: str, value: Any, before: Any = None) -> MessageRun | bytes:
        """Return a value as JSON or a run of messages; `before` is its last value."""
        self._path.append(name)
        written = self._run(value, before) or self.value(value)
        self._path.pop()
        return written

    def _run(self, value: Any, before: Any) -> MessageRun | None:
        """Return a list of messages as a run, else None; also if one has no template."""
        if type(value) is not list or not value:
            return None
        if not MESSAGE_NAMES.keys() >= set(map(type, value)):
            return None
        bytes_left = self._bytes_left
        if isinstance(before, MessageRun):
            longer = before.extended(value, self._template)
            if longer is not None:
                return longer
            self._bytes_left = bytes_left
        templates = [self._template(at, each) for at, each in enumerate(value)]
        found = [each for each in templates if each is not None]
        if len(found) == len(templates):
            return MessageRun(found)
        self._bytes_left = bytes_left
        return None

    def _template(self, at: int, message: Any) -> Template | None:
        self._path.append(at)
        found = (
            self._sealed_item(message)
            if self._rules.sealed
            else self._message(message, _ENVELOPE + 1)
        )
        self._count(len(_body_of(found)))
        self._path.pop()
        return found if isinstance(found, Template) else None

    def _count(self, size: int) -> None:
        """Count bytes that are certain."""
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise self._refuse("is too large")

    def _written(self, body: bytes) -> Any:
        self._count(len(body))
        return Fragment(body)

    def _tree(self, value: Any, depth: int) -> Any:
        # Three or four frames per level: a caller may be deep inside a framework.
        kind = type(value)
        if kind in MESSAGE_NAMES:
            return self._written(_body_of(self._message(value, depth)))
        if kind in ATOMS:
            return self._atom(value)
        if depth >= limits.DEPTH_MAX:
            raise self._refuse(f"is nested more than {limits.DEPTH_MAX} levels deep")
        if kind in CONTAINERS and (id(value), depth) not in self._met:
            body = self._whole(value, depth)
            if body is not None:
                return self._written(body)
        return self._part(value, depth)

    def _whole(self, value: Any, depth: int) -> bytes | None:
        """Return what one call of orjson writes, if a value is all JSON with no key like a tag."""
        is_messages = type(value) is list and value and type(value[0]) in MESSAGE_NAMES
        if is_messages or not self._is_plain(value, limits.DEPTH_MAX - depth):
            return None
        try:
            body = orjson.dumps(value)
        except TypeError:
            return None  # another key than text, a lone surrogate, or an integer beyond 64 bits
        if tags.TAG_PREFIX in body:
            return None
        # Behind a short result orjson leaves some KB of unused room.
        return body if len(body) > _KEPT_MIN else bytes(memoryview(body))

    def _is_plain(self, value: Any, levels: int) -> bool:
        """Return whether a value is JSON, so that orjson encodes it exactly or refuses it.

        Level by level with `gc.get_referents`, which runs in C. False may be wrong, True never is.
        What was met so far must not be too long, however often it is shared.
        """
        level, bytes_left = [value], self._bytes_left
        for _ in range(levels):
            found = codec.is_plain_level(level, _PLAIN, CONTAINERS)
            if found is False:
                break
            bytes_left -= len(level) + sum(map(length_hint, level))  # texts, and commas
            if bytes_left < 0:
                raise self._refuse("is too large")
            if found:
                return True
            inner = [each for each in level if type(each) in CONTAINERS]
            if len(inner) > _SHARED_MIN and 2 * len({*map(id, inner)}) < len(inner):
                break  # it may contain itself, and then each level has twice as many
            level = gc.get_referents(*inner)
        return False

    def _part(self, value: Any, depth: int) -> Any:
        """Return the tree of a value that may be met again, or may contain itself."""
        at = (id(value), depth)
        met = self._met.get(at)
        if met is not None:
            if type(met.tree) is not Fragment:
                body = orjson.dumps(met.tree)
                met = self._met[at] = met._replace(tree=Fragment(body), size=len(body))
            self._count(met.size)
            return met.tree
        if id(value) in self._inside:
            raise self._refuse("contains itself")
        self._inside.add(id(value))
        bytes_left = self._bytes_left
        tree = self._maker(value, type(value))(value, depth)
        self._inside.remove(id(value))
        self._met[at] = _Met(value, tree, bytes_left - self._bytes_left)
        return tree

    def _maker(self, value: Any, kind: type) -> Callable[[Any, int], Any]:
        """Return the method that makes the tree of a value."""
        if kind is list:
            return self._list
        if kind is dict:
            return self._dict
        if kind in tags.SEQUENCES:
            return self._sequence
        if kind in (bytes, bytearray):
            return self._bytes
        if kind in MESSAGE_NAMES:
            return self._rich_message
        if isinstance(value, Enum):
            return self._enum
        if isinstance(value, str | int | float):  # of a subclass, which is not kept
            return self._plain_atom
        if isinstance(value, BaseModel):
            return self._model
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._named_tuple
        if isinstance(value, BaseException):
            # As text, as LangGraph's savers do: it is only shown.
            return lambda value, depth: self._atom(repr(value))
        if dataclasses.is_dataclass(value):
            return self._dataclass
        if isinstance(value, dict):  # OrderedDict, defaultdict: the subclass is not kept
            return lambda value, depth: self._tree(dict(value), depth)
        if isinstance(value, list):
            return lambda value, depth: self._tree(list(value), depth)
        return self._other

    # JSON

    def _atom(self, value: Any) -> Any:
        kind = type(value)
        self._count(len(value) if kind is str else 1)
        if kind is str and not value.isascii() and not is_sound(value):
            return {tags.TEXT: value.encode("unicode_escape").decode()}
        if kind is float and not isfinite(value):
            return {tags.FLOAT: repr(value)}
        if kind is not int or -(2**63) <= value < 2**64:
            return value
        # An integer of 14,280 bits is below 10 ** 4300, so most need no big power.
        if value.bit_length() > 14_280 and abs(value) >= 10**limits.INTEGER_DIGITS_MAX:
            raise self._refuse(f"is an integer of more than {limits.INTEGER_DIGITS_MAX} digits")
        return {tags.INT: self._atom(str(value))}

    def _plain_atom(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._atom(str.__str__(value))
        is_integer = isinstance(value, int)
        return self._atom(int.__pos__(value) if is_integer else float.__pos__(value))

    def _list(self, value: Iterable[Any], depth: int) -> list[Any]:
        made: list[Any] = []
        for index, each in enumerate(value):
            self._path.append(index)
            made.append(self._tree(each, depth + 1))
            self._path.pop()
        self._count(len(made))
        return made

    def _dict(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        if not all(type(key) is str and is_sound(key) for key in value):
            pairs = [[key, each] for key, each in value.items()]
            return {tags.MAP: self._list(pairs, depth + 1)}
        if next(iter(value), "").startswith("$"):
            return {tags.PLAIN: self._members(value, depth + 1)}
        return self._members(value, depth)

    def _members(self, value: Mapping[str, Any], depth: int) -> dict[str, Any]:
        if depth >= limits.DEPTH_MAX:
            raise self._refuse(f"is nested more than {limits.DEPTH_MAX} levels deep")
        made: dict[str, Any] = {}
        for key, each in value.items():
            self._count(len(key) + 4)
            self._path.append(key)
            made[key] = self._tree(each, depth + 1)
            self._path.pop()
        return made

    # Tagged values

    def _bytes(self, value: bytes | bytearray, depth: int) -> Any:
        tag = tags.BYTES if type(value) is bytes else tags.BYTEARRAY
        self._count(len(value))
        return {tag: b64encode(value).decode()}

    def _sequence(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in tags.UNORDERED:  # equal sets get equal bytes
            bodies = sorted(orjson.dumps(self._tree(each, depth + 2)) for each in value)
            return {tags.SEQUENCES[kind]: Fragment(b"[%b]" % b",".join(bodies))}
        tree = {tags.SEQUENCES[kind]: self._list(value, depth + 1)}
        maxlen = getattr(value, "maxlen", None)
        return tree if maxlen is None else {**tree, "maxlen": maxlen}

    def _enum(self, value: Enum, depth: int) -> Any:
        name = self._name_of(value)
        if type(value).__members__.get(value.name or "") is value:
            return {tags.ENUM: name, "name": value.name}
        # Several flags at once.
        return {tags.ENUM: name, "value": self._tree(value.value, depth + 1)}

    def _message(self, value: Any, depth: int) -> bytes | Template:
        """Return a message as JSON, which is kept."""
        known = self._cache.find(value)
        if known is not None:
            return known
        if value.__pydantic_private__:
            raise self._refuse("is a message with private attributes")
        body = None if value.__pydantic_extra__ else self._whole(value.__dict__, depth)
        if body is None:
            bytes_left = self._bytes_left
            body = orjson.dumps(self._part(value, depth))
            self._bytes_left = bytes_left
        else:
            body = b'{"$message":"%b",%b' % (MESSAGE_NAMES[type(value)].encode(), body[1:])
        return self._kept(value, body)

    def _kept(self, message: Any, body: bytes) -> bytes | Template:
        """Return the template of a message, and keep it; just what is given if it has none."""
        template = template_of(message, body)
        if template is None:
            return body
        self._cache.keep(template)
        return template

    def _rich_message(self, value: Any, depth: int) -> Any:
        extra = value.__pydantic_extra__
        fields = {**value.__dict__, tags.EXTRA: extra} if extra else value.__dict__
        return {tags.RICH: MESSAGE_NAMES[type(value)], **self._members(fields, depth)}

    def _model(self, value: BaseModel, depth: int) -> Any:
        if tags.is_langchain(value):
            tree = self._exactly(value, tags.dump_langchain, tags.load_langchain)
            return {tags.LANGCHAIN: self._tree(tree, depth + 1)}
        # Other attributes were computed from the fields, as by a cached property.
        names = type(value).model_fields
        fields = {name: value.__dict__[name] for name in names if name in value.__dict__}
        extra, private = value.__pydantic_extra__ or {}, value.__pydantic_private__
        unset = sorted({*fields, *extra} - value.__pydantic_fields_set__)
        parts = {"extra": extra, "private": private, "unset": unset}
        return self._object(value, {"fields": fields} | _given(parts), depth)

    def _named_tuple(self, value: Any, depth: int) -> Any:
        return self._object(value, {"items": list(value)}, depth)

    def _dataclass(self, value: Any, depth: int) -> Any:
        if isinstance(value, list | dict | set | frozenset | tuple | bytes):
            raise self._refuse("is a dataclass that is also a container")
        names = [field.name for field in dataclasses.fields(value)]
        held = attributes(value)
        fields = {name: held.pop(name) for name in names if name in held}
        extra = {name: held[name] for name in held if not is_derived(type(value), name)}
        unset = [name for name in names if name not in fields]
        parts = {"fields": fields} | _given({"extra": extra, "unset": unset})
        return self._object(value, parts, depth)

    def _object(self, value: Any, parts: dict[str, Any], depth: int) -> Any:
        made = {tags.OBJECT: self._name_of(value)}
        for part, each in parts.items():
            make: Any = self._members if type(each) is dict else self._list
            made[part] = make(each, depth + 1)
        return made

    def _other(self, value: Any, depth: int) -> Any:
        moment = tags.encoded_moment(value)
        if moment is not None:
            return dict((moment,))
        if self._rules.allowed.name_of(type(value)) and slots(type(value)):
            fields = {name: getattr(value, name) for name in slots(type(value))}
            return self._object(value, {"fields": fields}, depth)
        # LangGraph's serializer for all other classes, if it decodes them exactly.
        serde = self._rules.serde
        instead = ": use a dataclass, a pydantic model or plain values instead"
        form, body = self._exactly(value, serde.dumps_typed, serde.loads_typed, instead)
        self._count(len(body))
        return {tags.SERDE: [form, b64encode(body).decode(), shown(type(value))]}

    def _exactly(
        self, value: Any, dump: Callable[[Any], T], load: Callable[[T], Any], instead: str = ""
    ) -> T:
        """Return what `dump` makes of a value, if `load` returns the same value again."""
        where = f"class=`{shown(type(value))}`"
        try:
            written = dump(value)
            same = is_same(value, load(written))
        except Exception as cause:
            raise self._refuse(f"cannot be stored{instead}. {where}") from cause
        if not same:
            raise self._refuse(f"would not be decoded as it is. {where}")
        return written

    # Sealed values

    def _sealed_item(self, value: Any) -> bytes | Template:
        is_message = type(value) in MESSAGE_NAMES
        found = self._cache.find(value) if is_message else None
        if found is None:
            sealed = self._sealed(value)
            # Sealing a message again would give other bytes, which deltas cannot save.
            return self._kept(value, sealed) if is_message else sealed
        return found

    def _sealed(self, value: Any) -> bytes:
        # Our JSON is sealed, not the value: the serializer would change some, such as tuples.
        rules = self._rules._replace(sealed=False)
        plain = ValueEncoder(rules, MessageCache(), self._path, bytes_max=self._bytes_left)
        form, body = self._rules.serde.dumps_typed(plain.open_value(value))
        return orjson.dumps({tags.SEALED: [form, b64encode(body).decode()]})

    def _name_of(self, value: Any) -> str:
        name = self._rules.allowed.name_of(type(value))
        if name is None:
            raise self._refuse(f"is of a class that is not allowed: {advice(type(value))}")
        return name

    def _refuse(self, why: str) -> InvalidInput:
        pointer = "".join(
            "/" + str(part).replace("~", "~0").replace("/", "~1") for part in self._path
        )
        shown = pointer.encode("utf-8", "backslashreplace").decode()
        return InvalidInput(f"a value {why}. path=`{shown}`")


def _body_of(message: bytes | Template) -> bytes:
    return message if isinstance(message, bytes) else message.body


def _given(parts: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in parts.items() if each}
