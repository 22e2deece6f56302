"""The serializers that a saver may use, and LangGraph's with every class checked.

By itself LangGraph's serializer imports and calls whatever stored bytes name, or silently returns
something else for what it refuses: the fields of an object as a dict, a time or an array as None.
"""

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import ormsgpack
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from limpet.compat.langgraph import upstream
from limpet.compat.langgraph.classes import MESSAGES, Allow, Allowed, listed, not_allowed, shown
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


class ValueRules(NamedTuple):
    """How values are encoded. If `sealed`, all go through the serializer, which may encrypt."""

    serde: SerializerProtocol
    allowed: Allowed
    sealed: bool = False


def default_serde() -> JsonPlusSerializer:
    """Return LangGraph's serializer, allowed to make only the types that it considers safe."""
    return JsonPlusSerializer(allowed_msgpack_modules=None)


def safe_serde(serde: Any) -> Any:
    """Return a serializer that makes only objects of listed classes.

    Raises:
        InvalidInput: it may pickle, or is a subclass of LangGraph's that allows all classes.
    """
    if serde is None:
        return default_serde()
    inner = serde.serde if isinstance(serde, EncryptedSerializer) else serde
    if isinstance(inner, JsonPlusSerializer) and inner.pickle_fallback:
        raise InvalidInput(
            "the serializer must not pickle, because stored pickles can run any code: create it"
            " without pickle_fallback, and list your classes in `allow`"
        )
    if not isinstance(serde, JsonPlusSerializer) or not upstream.allows_all(serde):
        return serde
    if type(serde) is not JsonPlusSerializer:
        raise InvalidInput(
            "the serializer allows every class: create it with allowed_msgpack_modules=[...]"
        )
    return default_serde()


# What another saver wrote


def checked(serde: SerializerProtocol | None, allow: Allow) -> SerializerProtocol:
    """Return a serializer that decodes only allowed classes, also inside encrypted values.

    A serializer that is not LangGraph's own is returned as it is.
    """
    if serde is None or isinstance(serde, JsonPlusSerializer):
        return _CheckedSerializer(safe_serde(serde), allow)
    if isinstance(serde, EncryptedSerializer) and isinstance(serde.serde, JsonPlusSerializer):
        return EncryptedSerializer(serde.cipher, _CheckedSerializer(safe_serde(serde.serde), allow))
    return serde


class _CheckedSerializer(SerializerProtocol):
    """LangGraph's serializer, which raises an error for what it refuses."""

    def __init__(self, serde: JsonPlusSerializer, allow: Allow) -> None:
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
        # Collected, because the decoder replaces what a hook raises.
        refused: list[LimpetError] = []
        try:
            if form == "msgpack":
                _unpacked(body, self._checking(refused))
            elif form == "json":
                json.loads(body, object_hook=lambda each: _check_json(each, refused))
            elif form not in _PLAIN:
                refused.append(_unknown_format(form))
            if not refused:
                return self._serde.loads_typed(data)
        except Exception as cause:
            if not refused:
                raise Corrupt(f"a stored value is malformed. format=`{form}`") from cause
        raise refused[0]

    def _checking(self, refused: list[LimpetError]) -> Callable[[int, bytes], None]:
        """Return a hook that checks each object in the bytes, and those inside it."""

        def check(code: int, data: bytes) -> None:
            try:
                inside = None if code == _ARRAY else _unpacked(data, check)
                kind = self._kind_of(code, inside)
                if kind is None or refused:
                    return
                made = self._serde.loads_typed(
                    ("msgpack", ormsgpack.packb(ormsgpack.Ext(code, data)))
                )
                if made is None or not isinstance(made, kind):  # it may have other fields now
                    fact = "a stored value does not fit its class any more"
                    raise InvalidInput(f"{fact}. class=`{shown(kind)}`")
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


def _unpacked(data: bytes, check: Callable[[int, bytes], None]) -> Any:
    return ormsgpack.unpackb(data, ext_hook=check, option=ormsgpack.OPT_NON_STR_KEYS)


def _check_json(tree: dict[str, Any], refused: list[LimpetError]) -> dict[str, Any]:
    """Check an object in the JSON that older versions of LangGraph wrote."""
    if tree.get("lc") not in (1, 2) or "type" not in tree or "id" not in tree:
        return tree
    try:
        *path, name = tree["id"]
        is_message = bool(path) and path[0] in _OWN and name in MESSAGES
        if tree["type"] != "constructor" or tree.get("method"):
            refused.append(_unknown_format(f"json {tree['type']}"))
        elif not (is_message if tree["lc"] == 1 else (".".join(path), name) in SAFE_MSGPACK_TYPES):
            refused.append(not_allowed(f"{'.'.join(path)}:{name}"))
    except (TypeError, ValueError):
        refused.append(Corrupt("a stored value is malformed. format=`json`"))
    return tree


def _unknown_format(form: object) -> InvalidInput:
    return InvalidInput(f"a stored value has a format that is not supported. format=`{form}`")
