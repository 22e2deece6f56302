"""Encode values as JSON, or with one of the `tags`. The inverse of `decode`.

A value that could not be decoded exactly is refused with its path, before anything is stored.
"""

import dataclasses
import gc
from base64 import b64encode
from collections.abc import Callable, Iterable
from enum import Enum
from math import isfinite
from operator import length_hint
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel

from limpet.api.integrations import codec, limits
from limpet.compat.langgraph import tags
from limpet.compat.langgraph.classes import (
    MESSAGE_NAMES,
    attributes,
    is_derived,
    is_same,
    shown,
    slots,
)
from limpet.compat.langgraph.messages import (
    Encoded,
    MessageCache,
    MessageRun,
    Template,
    template_of,
)
from limpet.compat.langgraph.serde import ValueRules
from limpet.errors import InvalidInput

T = TypeVar("T")

CONTAINERS: frozenset[type] = frozenset((dict, list))
TEXTS: frozenset[type] = frozenset((str, type(None)))
ATOMS = TEXTS | {int, float, bool}
_PLAIN = CONTAINERS | ATOMS
_ENVELOPE = 6  # levels of JSON around a value in a checkpoint or in writes
_PARTS_MAX = 1024
_MANY = 100_000  # containers of a level
_FEW = 1_000
_SAMPLED_MIN = 1_000  # parts of a level
_SAMPLE_STEPS = (17, 31)  # primes: no two follow the columns of a table


class TooLarge(Exception):
    """The JSON of a value has more bytes than are allowed."""


def is_plain(
    value: Any,
    levels: int = limits.DEPTH_MAX,
    bytes_max: int = limits.STATE_BYTES_MAX,
    many: int = _MANY,
) -> bool:
    """Return whether a value is JSON, so that orjson encodes it exactly or refuses it.

    Level by level with `gc.get_referents`, which runs in C. False may be wrong, True never is.

    Raises:
        TooLarge: what was met so far is longer than `bytes_max`, however often it is shared.
    """
    level = [value]
    bytes_left = bytes_max
    for _ in range(levels):
        found = codec.is_plain_level(level, _PLAIN, CONTAINERS)
        if found is not False:
            bytes_left -= len(level) + _inner_bytes(level, bytes_left)
            if bytes_left < 0:
                raise TooLarge
        if found is not None:
            return found
        inner = [each for each in level if type(each) in CONTAINERS]
        if len(inner) > many and 2 * len({*map(id, inner)}) < len(inner):
            return False  # it may contain itself, and then each level has twice as many
        level = gc.get_referents(*inner)
    return False


def _inner_bytes(level: list[Any], bytes_left: int) -> int:
    """Return at least how many bytes the texts and the commas in the containers of a level have.

    In a long level they are only added up if two samples of it say that they may be too many.
    """
    if len(level) > _SAMPLED_MIN and not any(
        step * sum(map(length_hint, level[::step])) > bytes_left for step in _SAMPLE_STEPS
    ):
        return 0
    return sum(map(length_hint, level))


def is_sound(text: str) -> bool:
    """Return whether a text has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def plain_atom(value: Any) -> Any:
    """Return a value of a subclass of str, int or float as one of that class."""
    if isinstance(value, str):
        return str.__str__(value)
    return int.__pos__(value) if isinstance(value, int) else float.__pos__(value)


def _join_many(out: list[bytes], start: int) -> int:
    """Join the parts since `start` if they are many; return the next start.

    A result of orjson takes 4 KB of memory, however short it is.
    """
    if len(out) - start < _PARTS_MAX:
        return start
    out[start:] = [b"".join(out[start:])]
    return start + 1


class ValueEncoder:
    """Encodes values into a list of byte strings, which joined are JSON.

    `wide`: some of them are integers beyond 64 bits. What is longer than `bytes_max` is refused
    while it is encoded. A value that is met again and again is encoded at most twice, so that small
    values that refer to each other often take neither time nor memory.
    """

    def __init__(
        self,
        rules: ValueRules,
        cache: MessageCache,
        path: Iterable[str | int] = (),
        *,
        bytes_max: int = limits.STATE_BYTES_MAX,
    ) -> None:
        self.wide = False
        self._bytes_left = bytes_max
        self._many = _MANY
        self._rules = rules
        self._cache = cache
        self._path = list(path)
        self._root: Any = None  # what is encoded as a whole: a channel, or what a task wrote
        self._inside: set[int] = set()  # ids of the containers that are being encoded
        # What was met at a depth, by its id, and its JSON if it was met twice. The values are held,
        # so that no other value gets such an id.
        self._met: dict[tuple[int, int], tuple[Any, Encoded | None]] = {}

    def _inner(self, rules: ValueRules) -> "ValueEncoder":
        """Return an encoder for a part, which is then one value of this one."""
        made = ValueEncoder(rules, self._cache, self._path, bytes_max=self._bytes_left)
        made._root = self._root
        return made

    def _add(self, encoded: bytes, out: list[bytes]) -> None:
        self._bytes_left -= len(encoded)
        if self._bytes_left < 0:
            raise self._refuse("is too large")
        out.append(encoded)

    def write(self, value: Any, out: list[bytes]) -> None:
        self._root = value
        if self._rules.sealed:
            self._seal(value, out)
        else:
            self._any(value, out, _ENVELOPE)

    def write_open(self, value: Any, out: list[bytes]) -> None:
        """Add a value that is never sealed: LangGraph's own versions and counters."""
        self._any(value, out, _ENVELOPE)

    def channel(self, name: str, value: Any, before: Any = None) -> MessageRun | bytes:
        """Return a value as JSON or a run of messages; `before` is its last value."""
        self._path.append(name)
        self._root = value
        found = self._run(value, before)
        if found is not None:
            self.wide = self.wide or found.wide
        out: list[bytes] = []
        if found is None:
            self.write(value, out)
        self._path.pop()
        return b"".join(out) if found is None else found

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
        found = self._cache.find(message) or (
            self._sealed_item(message)
            if self._rules.sealed
            else self._encoded_message(message, _ENVELOPE + 1)
        )
        self._add(found.body, [])
        self._path.pop()
        return found if isinstance(found, Template) else None

    def _any(self, value: Any, out: list[bytes], depth: int) -> None:
        kind = type(value)
        if kind in MESSAGE_NAMES:
            self._message(value, out, depth)
        elif kind in ATOMS:
            self._atom(value, out)
        elif depth >= limits.DEPTH_MAX:
            raise self._refuse(f"is nested more than {limits.DEPTH_MAX} levels deep")
        elif (
            (kind is list and value and type(value[0]) in MESSAGE_NAMES)
            or kind not in CONTAINERS
            or not self._whole(value, out, depth)
        ):
            self._parts(value, kind, out, depth)

    def _whole(self, value: Any, out: list[bytes], depth: int) -> bool:
        """Add a value with one call of orjson, if it is all JSON and has no key like a tag."""
        if (id(value), depth) in self._met or not self._is_plain(value, limits.DEPTH_MAX - depth):
            return False
        try:
            encoded = orjson.dumps(value)
        except TypeError:
            return False  # another key than text, a lone surrogate, or an integer beyond 64 bits
        if tags.TAG_PREFIX in encoded:
            return False
        self._add(encoded, out)
        return True

    def _is_plain(self, value: Any, levels: int) -> bool:
        try:
            plain = is_plain(value, levels, self._bytes_left, self._many)
        except TooLarge:
            raise self._refuse("is too large") from None
        if not plain:
            self._many = _FEW  # its parts are checked one by one, and must not take as long each
        return plain

    def _parts(self, value: Any, kind: type, out: list[bytes], depth: int) -> None:
        again, known = self._enter(value, depth)
        if known is None:
            parts = list[bytes]() if again else out
            bytes_left = self._bytes_left
            self._part(value, kind, parts, depth)
            self._inside.remove(id(value))
            if not again:
                return
            known = Encoded(b"".join(parts), self.wide)
            self._met[id(value), depth] = (value, known)
            self._bytes_left = bytes_left
        self.wide = self.wide or known.wide
        self._add(known.body, out)

    def _enter(self, value: Any, depth: int) -> tuple[bool, Encoded | None]:
        """Return whether a value was met before, and if it was met twice, its JSON."""
        at = (id(value), depth)
        met = self._met.get(at)
        if met is None:
            self._met[at] = (value, None)
        elif met[1] is not None:
            return True, met[1]
        if id(value) in self._inside:
            raise self._refuse("contains itself")
        self._inside.add(id(value))
        return met is not None, None

    def _part(self, value: Any, kind: type, out: list[bytes], depth: int) -> None:
        if kind is list:
            self._list(value, out, depth)
        elif kind is dict:
            self._dict(value, out, depth)
        elif kind in tags.SEQUENCES:
            self._sequence(value, kind, out, depth)
        elif kind in (bytes, bytearray):
            tag = tags.BYTES if kind is bytes else tags.BYTEARRAY
            self._tagged(tag, b64encode(value).decode(), out)
        elif isinstance(value, Enum):
            self._enum(value, out, depth)
        elif isinstance(value, str | int | float):  # of a subclass, which is not kept
            self._atom(plain_atom(value), out)
        elif isinstance(value, BaseModel):
            self._model(value, out, depth)
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            self._object(value, {"items": list(value)}, out, depth)
        elif isinstance(value, BaseException):
            # As text, as LangGraph's savers do: it is only shown.
            self._atom(repr(value), out)
        elif dataclasses.is_dataclass(value):
            self._dataclass(value, out, depth)
        elif isinstance(value, dict):  # OrderedDict, defaultdict: the subclass is not kept
            self._any(dict(value), out, depth)
        elif isinstance(value, list):
            self._any(list(value), out, depth)
        else:
            self._other(value, out, depth)

    # JSON

    def _atom(self, value: Any, out: list[bytes]) -> None:
        try:
            if type(value) is not float or isfinite(value):
                self._add(orjson.dumps(value), out)
            else:
                self._tagged(tags.FLOAT, repr(value), out)
        except TypeError:
            if type(value) is str:
                self._tagged(tags.TEXT, value.encode("unicode_escape").decode(), out)
            else:
                self._add(self._wide(value), out)

    def _wide(self, value: int) -> bytes:
        # An integer of 14,280 bits is below 10 ** 4300, so most need no big power.
        if value.bit_length() > 14_280 and abs(value) >= 10**limits.INTEGER_DIGITS_MAX:
            raise self._refuse(f"is an integer of more than {limits.INTEGER_DIGITS_MAX} digits")
        self.wide = True
        return str(value).encode()

    def _list(self, value: list[Any], out: list[bytes], depth: int) -> None:
        separator, start = b"[", len(out)
        for index, each in enumerate(value):
            start = _join_many(out, start)
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
        self._members(value, out, depth)
        if first.startswith("$"):
            out.append(b"}")

    def _members(self, value: dict[str, Any], out: list[bytes], depth: int) -> None:
        if depth >= limits.DEPTH_MAX:
            raise self._refuse(f"is nested more than {limits.DEPTH_MAX} levels deep")
        separator, start = b"{", len(out)
        for key, each in value.items():
            start = _join_many(out, start)
            out += (separator, orjson.dumps(key), b":")
            separator = b","
            self._path.append(key)
            self._any(each, out, depth + 1)
            self._path.pop()
        out.append(b"}" if separator == b"," else b"{}")

    # Tagged values

    def _tagged(self, tag: str, written: Any, out: list[bytes]) -> None:
        self._add(orjson.dumps({tag: written}), out)

    def _map(self, value: dict[Any, Any], out: list[bytes], depth: int) -> None:
        out.append(b'{"$map":')
        self._list([[key, each] for key, each in value.items()], out, depth + 1)
        out.append(b"}")

    def _sequence(self, value: Any, kind: type, out: list[bytes], depth: int) -> None:
        out.append(orjson.dumps({tags.SEQUENCES[kind]: None})[:-5])
        if kind in tags.UNORDERED:  # equal sets get equal bytes
            each_alone = sorted(self._alone(each, depth + 2) for each in value)
            out += (b"[", b",".join(each_alone), b"]")
        else:
            self._list(list(value), out, depth + 1)
        maxlen = getattr(value, "maxlen", None)
        out.append(b"}" if maxlen is None else b',"maxlen":%d}' % maxlen)

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
        self._add(known.body, out)

    def _encoded_message(self, value: Any, depth: int) -> Encoded | Template:
        if value.__pydantic_private__:
            raise self._refuse("is a message with private attributes")
        encoded = self._plain_message(value, depth) or self._rich_message(value, depth)
        return self._kept(value, encoded)

    def _kept(self, message: Any, encoded: Encoded) -> Encoded | Template:
        """Return the template of a message, and keep it; just what is given if it has none."""
        template = template_of(message, encoded)
        if template is None:
            return encoded
        self._cache.keep(template)
        return template

    def _plain_message(self, value: Any, depth: int) -> Encoded | None:
        fields = value.__dict__
        if value.__pydantic_extra__ or not all(
            self._is_plain(each, limits.DEPTH_MAX - depth - 1)
            for each in fields.values()
            if type(each) not in TEXTS and (type(each) not in CONTAINERS or each)
        ):
            return None
        try:
            body = orjson.dumps({tags.MESSAGE: MESSAGE_NAMES[type(value)], **fields})
        except TypeError:
            return None
        return None if body.find(tags.TAG_PREFIX, 1) >= 0 else Encoded(body, wide=False)

    def _rich_message(self, value: Any, depth: int) -> Encoded:
        again, known = self._enter(value, depth)
        if known is not None:
            return known
        inner = self._inner(self._rules)
        inner._inside, inner._met = self._inside, self._met
        parts = [b'{"$message+":', orjson.dumps(MESSAGE_NAMES[type(value)])]
        extra = value.__pydantic_extra__
        for key, each in (*value.__dict__.items(), *([(tags.EXTRA, extra)] if extra else [])):
            parts += (b",", orjson.dumps(key), b":")
            inner._path.append(key)
            inner._any(each, parts, depth + 1)
            inner._path.pop()
        parts.append(b"}")
        self._inside.remove(id(value))
        found = Encoded(b"".join(parts), inner.wide)
        if again:
            self._met[id(value), depth] = (value, found)
        return found

    def _model(self, value: BaseModel, out: list[bytes], depth: int) -> None:
        if tags.is_langchain(value):
            self._langchain(value, out, depth)
            return
        # Other attributes were computed from the fields, as by a cached property.
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

    def _langchain(self, value: Any, out: list[bytes], depth: int) -> None:
        tree = self._exactly(value, tags.dump_langchain, tags.load_langchain)
        out.append(b'{"$langchain":')
        self._any(tree, out, depth + 1)
        out.append(b"}")

    def _dataclass(self, value: Any, out: list[bytes], depth: int) -> None:
        if isinstance(value, list | dict | set | frozenset | tuple | bytes):
            raise self._refuse("is a dataclass that is also a container")
        names = [field.name for field in dataclasses.fields(value)]
        held = attributes(value)
        parts: dict[str, Any] = {"fields": {name: held.pop(name) for name in names if name in held}}
        extra = {name: held[name] for name in held if not is_derived(type(value), name)}
        if extra:
            parts["extra"] = extra
        unset = [name for name in names if name not in parts["fields"]]
        if unset:
            parts["unset"] = unset
        self._object(value, parts, out, depth)

    def _object(self, value: Any, parts: dict[str, Any], out: list[bytes], depth: int) -> None:
        out += (b'{"$object":', orjson.dumps(self._name_of(value)))
        for part, each in parts.items():
            out += (b',"', part.encode(), b'":')
            if part in ("fields", "extra", "private"):
                self._members(each, out, depth + 1)
            else:
                self._list(each, out, depth + 1)
        out.append(b"}")

    def _other(self, value: Any, out: list[bytes], depth: int) -> None:
        moment = tags.encoded_moment(value)
        if moment is not None:
            self._tagged(*moment, out)
        elif self._rules.allowed.name_of(type(value)) and slots(type(value)):
            fields = {name: getattr(value, name) for name in slots(type(value))}
            self._object(value, {"fields": fields}, out, depth)
        else:
            self._serialized(value, out)

    def _serialized(self, value: Any, out: list[bytes]) -> None:
        """Use LangGraph's serializer for all other classes, if it decodes them exactly."""
        serde = self._rules.serde
        advice = ": use a dataclass, a pydantic model or plain values instead"
        form, body = self._exactly(value, serde.dumps_typed, serde.loads_typed, advice)
        name = shown(type(value))
        self._tagged(tags.SERDE, [form, b64encode(body).decode(), name], out)

    def _exactly(
        self, value: Any, dump: Callable[[Any], T], load: Callable[[T], Any], advice: str = ""
    ) -> T:
        """Return what `dump` makes of a value, if `load` returns the same value again."""
        where = f"class=`{shown(type(value))}`"
        try:
            written = dump(value)
            same = is_same(value, load(written))
        except Exception as cause:
            raise self._refuse(f"cannot be stored{advice}. {where}") from cause
        if not same:
            raise self._refuse(f"would not be decoded as it is. {where}")
        return written

    def _seal(self, value: Any, out: list[bytes]) -> None:
        if type(value) is not list:
            self._add(self._sealed(value), out)
            return
        separator = b"["
        for each in value:
            known = self._cache.find(each) if type(each) in MESSAGE_NAMES else None
            out.append(separator)
            self._add((known or self._sealed_item(each)).body, out)
            separator = b","
        out.append(b"]" if value else b"[]")

    def _sealed_item(self, value: Any) -> Encoded | Template:
        sealed = Encoded(self._sealed(value), wide=False)
        # Sealing a message again would give other bytes, which deltas cannot save.
        return self._kept(value, sealed) if type(value) in MESSAGE_NAMES else sealed

    def _sealed(self, value: Any) -> bytes:
        # Our JSON is sealed, not the value: the serializer would change some, such as tuples.
        plain = self._inner(self._rules._replace(sealed=False))
        plain._cache = MessageCache()
        parts: list[bytes] = []
        plain._any(value, parts, _ENVELOPE)
        text = b"".join((b" ", *parts) if plain.wide else parts)
        form, body = self._rules.serde.dumps_typed(text)
        return orjson.dumps({tags.SEALED: [form, b64encode(body).decode()]})

    def _name_of(self, value: Any) -> str:
        name = self._rules.allowed.name_of(type(value))
        if name is None:
            advice = self._rules.allowed.advice(value, self._root)
            raise self._refuse(f"is of a class that is not allowed: {advice}")
        return name

    def _refuse(self, why: str) -> InvalidInput:
        pointer = "".join(
            "/" + str(part).replace("~", "~0").replace("/", "~1") for part in self._path
        )
        shown = pointer.encode("utf-8", "backslashreplace").decode()
        return InvalidInput(f"a value {why}. path=`{shown}`")
