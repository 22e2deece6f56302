"""From values to JSON: exact, readable, and each message encoded once.

What stands in the state of a graph is written as JSON as it is, or in one of the `forms`. A value
that would not come back as it was is refused with its path, before anything is stored.
"""

import dataclasses
import gc
from base64 import b64encode
from collections.abc import Iterable
from enum import Enum
from math import isfinite
from typing import Any

import orjson
from pydantic import BaseModel

from limpet.compat.langgraph import forms
from limpet.compat.langgraph.allowed import MESSAGE_NAMES, Shape
from limpet.compat.langgraph.messages import (
    Encoded,
    MessageCache,
    Run,
    Template,
    settled,
    template_of,
)
from limpet.core.codec import is_plain_level
from limpet.core.limits import DEPTH_MAX, INTEGER_DIGITS_MAX
from limpet.errors import InvalidInput

# What can be said of a value without taking it apart.

CONTAINERS: frozenset[type] = frozenset((dict, list))
TEXTS: frozenset[type] = frozenset((str, type(None)))
ATOMS = TEXTS | {int, float, bool}
_PLAIN = CONTAINERS | ATOMS
_MANY = 100_000  # containers of a level, of which some may be the same


def is_plain(value: Any, levels: int = DEPTH_MAX) -> bool:
    """Tell whether orjson writes a value exactly, if it does at all; True is certain.

    Level by level, by the garbage collector's view of what refers to what: that runs in C.
    """
    level = [value]
    for _ in range(levels):
        found = is_plain_level(level, _PLAIN, CONTAINERS)
        if found is not None:
            return found
        inner = [each for each in level if type(each) in CONTAINERS]
        if len(inner) > _MANY and 2 * len({*map(id, inner)}) < len(inner):
            return False  # perhaps it holds itself, and then twice as often at each level
        level = gc.get_referents(*inner)
    return False


def is_sound(text: str) -> bool:
    """Tell whether a text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def plain_atom(value: Any) -> Any:
    """Return a text or a number of a class of its own as a plain one."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__pos__(value) if isinstance(value, int) else float.__pos__(value)


def slots(kind: type) -> tuple[str, ...]:
    """Return the names of the slots that a class has."""
    found = getattr(kind, "__slots__", ())
    return (found,) if isinstance(found, str) else tuple(found)


def is_same(value: Any, back: Any) -> bool:
    """Tell whether a value came back as it was: its class, and what it says of itself."""
    if type(value) is not type(back):
        return False
    if type(getattr(value, "tzinfo", None)) is not type(getattr(back, "tzinfo", None)):
        return False  # two times are equal also if one knows its place and the other its offset
    equal = value == back
    if isinstance(equal, bool):
        return equal
    # An array compares each of its elements; two that are not a number are not equal.
    facts = [(each.dtype, each.shape, each.tobytes()) for each in (value, back)]
    return bool(facts[0] == facts[1])


_ENVELOPE = 6  # levels that stand around a value: those of the checkpoint, or of the writes


class Writer:
    """Writes values into a list of byte strings, which joined are JSON.

    `wide` says that there are integers beyond 64 bits among them.
    """

    def __init__(self, shape: Shape, cache: MessageCache, path: Iterable[str | int] = ()) -> None:
        self.wide = False
        self._shape = shape
        self._cache = cache
        self._path = list(path)
        self._inside: set[int] = set()  # the containers that are being written

    def write(self, value: Any, out: list[bytes]) -> None:
        """Add a value.

        Raises:
            InvalidInput: it could not be read back as it is; the message has its path.
        """
        if self._shape.sealed:
            self._seal(value, out)
        else:
            self._any(value, out, _ENVELOPE)

    def write_open(self, value: Any, out: list[bytes]) -> None:
        """Add a value that is not sealed in any case: what LangGraph itself keeps count of."""
        self._any(value, out, _ENVELOPE)

    def channel(self, name: str, value: Any, before: Any = None) -> Run | bytes:
        """Return a value as JSON, or as a run of messages; `before` is what it was last."""
        self._path.append(name)
        found = None if self._shape.sealed else self._run(value, before)
        if found is not None:
            self.wide = self.wide or found.wide
        out: list[bytes] = []
        if found is None:
            self.write(value, out)
        self._path.pop()
        return b"".join(out) if found is None else found

    def _run(self, value: Any, before: Any) -> Run | None:
        """Return a list of messages as a run; None if it holds others, or some without template."""
        if type(value) is not list or not value:
            return None
        if not MESSAGE_NAMES.keys() >= set(map(type, value)):
            return None
        if isinstance(before, Run):
            longer = before.extended(value, self._template)
            if longer is not None:
                return longer
        templates = [self._template(at, each) for at, each in enumerate(value)]
        return None if None in templates else Run(templates)  # type: ignore[arg-type]

    def _template(self, at: int, message: Any) -> Template | None:
        known = self._cache.find(message)
        if known is not None:
            return known
        self._path.append(at)
        found = self._encoded_message(message, _ENVELOPE + 1)
        self._path.pop()
        return found if isinstance(found, Template) else None

    def _any(self, value: Any, out: list[bytes], depth: int) -> None:
        kind = type(value)
        if kind in MESSAGE_NAMES:
            self._message(value, out, depth)
        elif kind in ATOMS:
            self._atom(value, out)
        elif depth >= DEPTH_MAX:
            raise self._refuse(f"is nested more than {DEPTH_MAX} levels deep")
        elif kind is list and value and type(value[0]) in MESSAGE_NAMES:
            self._parts(value, kind, out, depth)  # to look whether it is plain would be in vain
        elif kind not in CONTAINERS or not self._whole(value, out, depth):
            self._parts(value, kind, out, depth)

    def _whole(self, value: Any, out: list[bytes], depth: int) -> bool:
        """Add a value in one go if it is all JSON, and nothing in it looks like a form."""
        if not is_plain(value, DEPTH_MAX - depth):
            return False
        try:
            encoded = orjson.dumps(value)
        except TypeError:
            return False  # a key that is no text, a lone surrogate, or an integer too wide
        if forms.MARK in encoded:
            return False
        out.append(encoded)
        return True

    def _parts(self, value: Any, kind: type, out: list[bytes], depth: int) -> None:
        if id(value) in self._inside:
            raise self._refuse("holds itself")
        self._inside.add(id(value))
        self._part(value, kind, out, depth)
        self._inside.remove(id(value))

    def _part(self, value: Any, kind: type, out: list[bytes], depth: int) -> None:
        if kind is list:
            self._list(value, out, depth)
        elif kind is dict:
            self._dict(value, out, depth)
        elif kind in forms.SEQUENCES:
            self._sequence(value, kind, out, depth)
        elif kind in (bytes, bytearray):
            tag = forms.BYTES if kind is bytes else forms.BYTEARRAY
            self._tagged(tag, b64encode(value).decode(), out)
        elif isinstance(value, Enum):
            self._enum(value, out, depth)
        elif isinstance(value, str | int | float):  # of a class of its own: equal, but plain
            self._atom(plain_atom(value), out)
        elif isinstance(value, BaseModel):
            self._model(value, out, depth)
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            self._object(value, {"items": list(value)}, out, depth)
        elif dataclasses.is_dataclass(value):
            self._dataclass(value, out, depth)
        elif isinstance(value, dict):  # an OrderedDict, a defaultdict: equal, but plain
            self._any(dict(value), out, depth)
        elif isinstance(value, list):
            self._any(list(value), out, depth)
        else:
            self._other(value, out, depth)

    # JSON's own

    def _atom(self, value: Any, out: list[bytes]) -> None:
        try:
            if type(value) is not float or isfinite(value):
                out.append(orjson.dumps(value))
            else:
                self._tagged(forms.FLOAT, repr(value), out)
        except TypeError:
            if type(value) is str:
                self._tagged(forms.TEXT, value.encode("unicode_escape").decode(), out)
            else:
                out.append(self._wide(value))

    def _wide(self, value: int) -> bytes:
        # An integer of 14,280 bits is below 10 ** 4300, so most need no big power.
        if value.bit_length() > 14_280 and abs(value) >= 10**INTEGER_DIGITS_MAX:
            raise self._refuse(f"is an integer of more than {INTEGER_DIGITS_MAX} digits")
        self.wide = True
        return str(value).encode()

    def _list(self, value: list[Any], out: list[bytes], depth: int) -> None:
        separator, mark = b"[", len(out)
        for index, each in enumerate(value):
            mark = settled(out, mark)
            out.append(separator)
            separator = b","
            self._path.append(index)
            self._any(each, out, depth + 1)
            self._path.pop()
        out.append(b"]" if value else b"[]")

    def _dict(self, value: dict[Any, Any], out: list[bytes], depth: int) -> None:
        if not all(type(key) is str and is_sound(key) for key in value):
            self._map(value, out, depth)
            return
        first = next(iter(value), "")
        if first.startswith("$"):
            out.append(b'{"$plain":')
            depth += 1
        self._members(value.items(), out, depth, lambda each, o: self._any(each, o, depth + 1))
        if first.startswith("$"):
            out.append(b"}")

    def _members(self, items: Any, out: list[bytes], depth: int, write: Any) -> None:
        if depth >= DEPTH_MAX:
            raise self._refuse(f"is nested more than {DEPTH_MAX} levels deep")
        separator, mark = b"{", len(out)
        for key, each in items:
            mark = settled(out, mark)
            out += (separator, orjson.dumps(key), b":")
            separator = b","
            self._path.append(key)
            write(each, out)
            self._path.pop()
        out.append(b"}" if separator == b"," else b"{}")

    # Forms

    def _tagged(self, tag: str, written: Any, out: list[bytes]) -> None:
        out.append(orjson.dumps({tag: written}))

    def _map(self, value: dict[Any, Any], out: list[bytes], depth: int) -> None:
        out.append(b'{"$map":')
        self._list([[key, each] for key, each in value.items()], out, depth + 1)
        out.append(b"}")

    def _sequence(self, value: Any, kind: type, out: list[bytes], depth: int) -> None:
        if getattr(value, "maxlen", None) is not None:
            raise self._refuse("is a deque with a greatest length")
        out.append(orjson.dumps({forms.SEQUENCES[kind]: None})[:-5])
        if kind in forms.UNORDERED:  # the same set is always the same bytes
            each_alone = sorted(self._alone(each, depth + 2) for each in value)
            out += (b"[", b",".join(each_alone), b"]")
        else:
            self._list(list(value), out, depth + 1)
        out.append(b"}")

    def _alone(self, value: Any, depth: int) -> bytes:
        parts: list[bytes] = []
        self._any(value, parts, depth)
        return b"".join(parts)

    def _enum(self, value: Enum, out: list[bytes], depth: int) -> None:
        name = self._name_of(value)
        out += (b'{"$enum":', orjson.dumps(name))
        if type(value).__members__.get(value.name or "") is value:
            out += (b',"name":', orjson.dumps(value.name), b"}")
        else:  # several flags at once
            out.append(b',"value":')
            self._any(value.value, out, depth + 1)
            out.append(b"}")

    def _message(self, value: Any, out: list[bytes], depth: int) -> None:
        known = self._cache.find(value) or self._encoded_message(value, depth)
        self.wide = self.wide or known.wide
        out.append(known.body)

    def _encoded_message(self, value: Any, depth: int) -> Encoded | Template:
        if value.__pydantic_private__:
            raise self._refuse("is a message with private attributes")
        encoded, plain = self._plain_message(value, depth), True
        if encoded is None:
            encoded, plain = self._rich_message(value, depth), False
        template = template_of(value, encoded, plain=plain)
        if template is None:
            return encoded
        self._cache.keep(template)
        return template

    def _plain_message(self, value: Any, depth: int) -> Encoded | None:
        """Return a message in one go, if all that it holds is JSON."""
        fields = value.__dict__
        if value.__pydantic_extra__ or not all(
            is_plain(each, DEPTH_MAX - depth - 1)
            for each in fields.values()
            if type(each) not in TEXTS and (each or type(each) not in CONTAINERS)
        ):
            return None
        try:
            body = orjson.dumps({forms.MESSAGE: MESSAGE_NAMES[type(value)], **fields})
        except TypeError:
            return None
        return None if body.find(forms.MARK, 1) >= 0 else Encoded(body, wide=False)

    def _rich_message(self, value: Any, depth: int) -> Encoded:
        inner = Writer(self._shape, self._cache, self._path)
        parts = [b'{"$message+":', orjson.dumps(MESSAGE_NAMES[type(value)])]
        extra = value.__pydantic_extra__
        for key, each in (*value.__dict__.items(), *([(forms.EXTRA, extra)] if extra else [])):
            parts += (b",", orjson.dumps(key), b":")
            inner._path.append(key)
            inner._any(each, parts, depth + 1)
            inner._path.pop()
        parts.append(b"}")
        return Encoded(b"".join(parts), inner.wide)

    def _model(self, value: BaseModel, out: list[bytes], depth: int) -> None:
        # What else stands there was computed from the fields, as by a cached property.
        names = type(value).model_fields
        fields = {name: value.__dict__[name] for name in names if name in value.__dict__}
        parts: dict[str, Any] = {"fields": fields}
        if value.__pydantic_extra__:
            parts["extra"] = value.__pydantic_extra__
        if value.__pydantic_private__:
            parts["private"] = value.__pydantic_private__
        unset = sorted({*fields, *parts.get("extra", ())} - value.__pydantic_fields_set__)
        if unset:
            parts["unset"] = unset
        self._object(value, parts, out, depth)

    def _dataclass(self, value: Any, out: list[bytes], depth: int) -> None:
        if isinstance(value, list | dict | set | frozenset | tuple | bytes):
            raise self._refuse("is a dataclass that is a container, too")
        names = [field.name for field in dataclasses.fields(value)]
        missing = [name for name in names if not hasattr(value, name)]
        if missing or not getattr(value, "__dict__", {}).keys() <= set(names):
            raise self._refuse("is a dataclass with other attributes than its fields")
        self._object(value, {"fields": {name: getattr(value, name) for name in names}}, out, depth)

    def _object(self, value: Any, parts: dict[str, Any], out: list[bytes], depth: int) -> None:
        out += (b'{"$object":', orjson.dumps(self._name_of(value)))
        for part, each in parts.items():
            out += (b',"', part.encode(), b'":')
            if part in ("fields", "extra", "private"):
                self._members(
                    each.items(), out, depth + 1, lambda one, o: self._any(one, o, depth + 2)
                )
            else:
                self._list(each, out, depth + 1)
        out.append(b"}")

    def _other(self, value: Any, out: list[bytes], depth: int) -> None:
        moment = forms.written_moment(value)
        if moment is not None:
            self._tagged(*moment, out)
        elif isinstance(value, BaseException):
            # It is shown and never raised again, as with the other savers.
            self._atom(repr(value), out)
        elif self._shape.allowed.name_of(type(value)) and slots(type(value)):
            fields = {name: getattr(value, name) for name in slots(type(value))}
            self._object(value, {"fields": fields}, out, depth)
        else:
            self._serialized(value, out)

    def _serialized(self, value: Any, out: list[bytes]) -> None:
        """Let LangGraph's serializer write what is left, if it is read back as it was."""
        serde, kind = self._shape.serde, type(value)
        name = f"{kind.__module__}:{kind.__qualname__}"
        try:
            form, body = serde.dumps_typed(value)
            same = is_same(value, serde.loads_typed((form, body)))
        except Exception as cause:
            raise self._refuse(f"cannot be stored. class=`{name}`") from cause
        if not same:
            raise self._refuse(f"would not be read back as it is: see `allow`. class=`{name}`")
        self._tagged(forms.SERDE, [form, b64encode(body).decode(), name], out)

    def _seal(self, value: Any, out: list[bytes]) -> None:
        if type(value) is not list:
            out.append(self._sealed(value))
            return
        separator = b"["
        for each in value:
            known = self._cache.find(each) if type(each) in MESSAGE_NAMES else None
            out += (separator, self._sealed_item(each) if known is None else known.body)
            separator = b","
        out.append(b"]" if value else b"[]")

    def _sealed_item(self, value: Any) -> bytes:
        body = self._sealed(value)
        if type(value) in MESSAGE_NAMES:
            # What is sealed again is other bytes each time, so this spares room as well.
            template = template_of(value, Encoded(body, wide=False), plain=False)
            if template is not None:
                self._cache.keep(template)
        return body

    def _sealed(self, value: Any) -> bytes:
        # Our own form is sealed, and not the value: the serializer would change some, as tuples.
        plain = Writer(self._shape._replace(sealed=False), MessageCache(), self._path)
        parts: list[bytes] = []
        plain._any(value, parts, _ENVELOPE)
        text = b"".join((b" ", *parts) if plain.wide else parts)
        form, body = self._shape.serde.dumps_typed(text)
        return orjson.dumps({forms.SEALED: [form, b64encode(body).decode()]})

    def _name_of(self, value: Any) -> str:
        name = self._shape.allowed.name_of(type(value))
        if name is None:
            kind = type(value)
            shown = f"{kind.__module__}:{kind.__qualname__}"
            raise self._refuse(f"is of a class that is not allowed: see `allow`. class=`{shown}`")
        return name

    def _refuse(self, why: str) -> InvalidInput:
        pointer = "".join(
            "/" + str(part).replace("~", "~0").replace("/", "~1") for part in self._path
        )
        shown = pointer.encode("utf-8", "backslashreplace").decode()
        return InvalidInput(f"a value {why}. path=`{shown}`")
