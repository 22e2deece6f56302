"""LangGraph's serializer, with all classes in the stored bytes checked before it decodes them.

By itself it silently returns something else for what it refuses: the fields of an object as a
dict, a time or an array as None.
"""

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from limpet.compat.langgraph import upstream
from limpet.compat.langgraph.classes import (
    MESSAGES,
    Allow,
    Allowed,
    default_serde,
    listed,
    not_allowed,
    safe_serde,
)
from limpet.compat.langgraph.upstream import SAFE_MSGPACK_TYPES
from limpet.errors import Corrupt, InvalidInput, LimpetError

# The codes of LangGraph's msgpack extensions. They are part of its stored format.
_METHOD_CALL = 3
_ARRAY = 6
_DELTA_SNAPSHOT = 7
_MODELS = frozenset((4, 5))
_CONSTRUCTOR_CALLS = _MODELS | {0, 1, 2}

_METHODS = frozenset((("datetime", "datetime", "fromisoformat"),))
_PLAIN = frozenset(("null", "bytes", "bytearray"))
_OWN = frozenset(("langchain", "langchain_core"))


def checked(serde: SerializerProtocol | None, allow: Allow) -> SerializerProtocol:
    """Return a serializer that decodes only allowed classes, also inside encrypted values.

    A serializer that is not LangGraph's own is returned as it is.
    """
    extra = listed(allow)
    if serde is None:
        return CheckedSerializer(default_serde(), extra)
    if isinstance(serde, JsonPlusSerializer):
        return CheckedSerializer(serde, extra)
    if isinstance(serde, EncryptedSerializer) and isinstance(serde.serde, JsonPlusSerializer):
        return EncryptedSerializer(serde.cipher, CheckedSerializer(serde.serde, extra))
    return serde


class CheckedSerializer(SerializerProtocol):
    """LangGraph's serializer, which raises an error for what it refuses."""

    def __init__(self, serde: JsonPlusSerializer, allow: Allow) -> None:
        serde = safe_serde(serde)
        extra = listed(allow)
        self._allowed = Allowed(upstream.allowed_modules(serde)).with_(extra)
        self._serde = serde.with_msgpack_allowlist(extra)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return self._serde.dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Decode a value.

        Raises:
            InvalidInput: it names a class that is not allowed, or has another format.
            Corrupt: it is malformed.
        """
        form, body = data
        refused: list[LimpetError] = []
        try:
            if form == "msgpack":
                _unpacked(body, self._checking(refused))
            elif form == "json":
                json.loads(body, object_hook=lambda each: self._check_json(each, refused))
            elif form not in _PLAIN:
                refused.append(_unknown_format(form))
            if not refused:
                return self._serde.loads_typed(data)
        except Exception as cause:
            if not refused:
                raise Corrupt(f"a stored value is malformed. format=`{form}`") from cause
        raise refused[0]

    def _checking(self, refused: list[LimpetError]) -> Callable[[int, bytes], None]:
        """Return a hook that checks each object in the bytes, and those inside it.

        It collects refusals in a list, because the decoder replaces what a hook raises.
        """

        def check(code: int, data: bytes) -> None:
            try:
                inside = None if code == _ARRAY else _unpacked(data, check)
                kind = self._kind_of(code, inside)
                if kind is not None and not refused:
                    self._check_made(code, data, kind)
            except LimpetError as refusal:
                refused.append(refusal)

        return check

    def _kind_of(self, code: int, inside: Any) -> type | None:
        """Return the class of an object, or raise InvalidInput; None if decoding cannot fail."""
        if code == _ARRAY:
            return object
        if code == _DELTA_SNAPSHOT:
            return None
        if code == _METHOD_CALL:
            if (inside[0], inside[1], inside[3]) not in _METHODS:
                raise not_allowed(f"{inside[0]}:{inside[1]}.{inside[3]}")
        elif code not in _CONSTRUCTOR_CALLS:
            raise _unknown_format(f"msgpack {code}")
        elif (inside[0], inside[1]) not in SAFE_MSGPACK_TYPES:
            name = f"{inside[0]}:{inside[1]}"
            # By this very name: LangGraph would not find a class under any other.
            if not self._allowed.includes([(inside[0], inside[1])]):
                raise not_allowed(name)
            return self._allowed.class_of(name)
        elif code in _MODELS:
            return None  # a message: all fields are accepted
        found = getattr(import_module(inside[0]), inside[1])
        return found if isinstance(found, type) else object

    def _check_made(self, code: int, data: bytes, kind: type) -> None:
        """Refuse an object that LangGraph cannot make, as when its class has other fields now."""
        made = self._serde.loads_typed(("msgpack", ormsgpack.packb(ormsgpack.Ext(code, data))))
        if made is None or not isinstance(made, kind):
            name = f"{kind.__module__}:{kind.__qualname__}"
            raise InvalidInput(f"a stored value does not fit its class any more. class=`{name}`")

    def _check_json(self, tree: dict[str, Any], refused: list[LimpetError]) -> dict[str, Any]:
        """Check an object in the JSON that older versions of LangGraph wrote."""
        if tree.get("lc") not in (1, 2) or "type" not in tree or "id" not in tree:
            return tree
        try:
            *path, name = tree["id"]
            if tree["type"] != "constructor" or tree.get("method"):
                refused.append(_unknown_format(f"json {tree['type']}"))
            elif not (_is_message(path, name) if tree["lc"] == 1 else _is_safe(path, name)):
                refused.append(not_allowed(f"{'.'.join(path)}:{name}"))
        except (TypeError, ValueError):
            refused.append(Corrupt("a stored value is malformed. format=`json`"))
        return tree


def _unpacked(data: bytes, check: Callable[[int, bytes], None]) -> Any:
    return ormsgpack.unpackb(data, ext_hook=check, option=ormsgpack.OPT_NON_STR_KEYS)


def _is_message(path: list[str], name: str) -> bool:
    return bool(path) and path[0] in _OWN and name in MESSAGES


def _is_safe(path: list[str], name: str) -> bool:
    return (".".join(path), name) in SAFE_MSGPACK_TYPES


def _unknown_format(form: object) -> InvalidInput:
    return InvalidInput(f"a stored value has a format that is not supported. format=`{form}`")
