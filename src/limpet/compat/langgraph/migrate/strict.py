"""Values that LangGraph's serializer wrote, read by it once nothing in them is refused.

By itself it would hand over what it refuses as something else, without a word: the fields of an
object as a dict, a time or an array as None. So what the bytes name is looked at first, and
nothing is made or imported that is not allowed.
"""

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from limpet.compat.langgraph.allowed import MESSAGES, Allow, Allowed, default_serde, strict_serde
from limpet.errors import Corrupt, InvalidInput, LimpetError

# LangGraph's extensions of msgpack, by the codes that they have in stored bytes.
_CALLED = 3  # a method, with an argument
_ARRAY = 6
_SNAPSHOT = 7  # the value of a channel that keeps deltas
_MODELS = frozenset((4, 5))
_MADE = _MODELS | {0, 1, 2}  # calls of a class, with an argument, with several, by name

_METHODS = frozenset((("datetime", "datetime", "fromisoformat"),))
_PLAIN = frozenset(("null", "bytes", "bytearray"))
_OWN = frozenset(("langchain", "langchain_core"))


def strict(serde: SerializerProtocol | None, allow: Allow) -> SerializerProtocol:
    """Return what reads the values of a serializer, and makes nothing but what is allowed.

    Also what it has encrypted. One that is not LangGraph's own goes by its own rules.
    """
    extra = list(allow)
    if serde is None:
        return Strict(default_serde(), extra)
    if isinstance(serde, JsonPlusSerializer):
        return Strict(serde, extra)
    if isinstance(serde, EncryptedSerializer) and isinstance(serde.serde, JsonPlusSerializer):
        return EncryptedSerializer(serde.cipher, Strict(serde.serde, extra))
    return serde


class Strict(SerializerProtocol):
    """LangGraph's serializer, which refuses aloud."""

    def __init__(self, serde: JsonPlusSerializer, allow: Allow) -> None:
        serde = strict_serde(serde)
        listed = getattr(serde, "_allowed_msgpack_modules", None)
        known = Allowed(listed if isinstance(listed, set) else ())
        extra = list(allow)
        self._allowed = known.with_(extra)
        self._serde = serde.with_msgpack_allowlist(extra)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return a value as LangGraph's serializer writes it."""
        return self._serde.dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return a value that was written.

        Raises:
            InvalidInput: it names what is not allowed, or is in a form that is not read.
            Corrupt: it makes no sense.
        """
        form, body = data
        refused: list[LimpetError] = []
        try:
            if form == "msgpack":
                _unpacked(body, self._looking(refused))
            elif form == "json":
                json.loads(body, object_hook=lambda each: self._look_json(each, refused))
            elif form not in _PLAIN:
                refused.append(_no_form(form))
            if not refused:
                return self._serde.loads_typed(data)
        except Exception as cause:
            if not refused:
                raise Corrupt(f"a stored value makes no sense. form=`{form}`") from cause
        raise refused[0]

    def _looking(self, refused: list[LimpetError]) -> Callable[[int, bytes], None]:
        """Return what looks at each object in the bytes, and at those inside it.

        It tells by the list, since what it would raise is replaced by the decoder.
        """

        def look(code: int, data: bytes) -> None:
            try:
                inside = None if code == _ARRAY else _unpacked(data, look)
                kind = self._kind_of(code, inside)
                if kind is not None and not refused:
                    self._check_made(code, data, kind)
            except LimpetError as refusal:
                refused.append(refusal)

        return look

    def _kind_of(self, code: int, inside: Any) -> type | None:
        """Return the class that an object in the bytes is of; None if it is sure to be made.

        Raises:
            InvalidInput: it is not allowed.
        """
        if code == _ARRAY:
            return object
        if code == _SNAPSHOT:
            return None
        if code == _CALLED:
            if (inside[0], inside[1], inside[3]) not in _METHODS:
                raise _no_class(inside[0], f"{inside[1]}.{inside[3]}")
        elif code not in _MADE:
            raise _no_form(f"msgpack {code}")
        elif (inside[0], inside[1]) not in SAFE_MSGPACK_TYPES:
            return self._allowed.class_of(f"{inside[0]}:{inside[1]}")
        elif code in _MODELS:
            return None  # a message, which is made whatever its fields are
        found = getattr(import_module(inside[0]), inside[1])
        return found if isinstance(found, type) else object

    def _check_made(self, code: int, data: bytes, kind: type) -> None:
        """Refuse an object that LangGraph cannot make: its class is gone, or has other fields."""
        made = self._serde.loads_typed(("msgpack", ormsgpack.packb(ormsgpack.Ext(code, data))))
        if made is None or not isinstance(made, kind):
            name = f"{kind.__module__}:{kind.__qualname__}"
            raise InvalidInput(f"a stored value cannot be made again. class=`{name}`")

    def _look_json(self, tree: dict[str, Any], refused: list[LimpetError]) -> dict[str, Any]:
        """Look at an object in what LangGraph wrote before it wrote msgpack."""
        if tree.get("lc") not in (1, 2) or "type" not in tree or "id" not in tree:
            return tree
        try:
            *path, name = tree["id"]
            if tree["type"] != "constructor" or tree.get("method"):
                refused.append(_no_form(f"json {tree['type']}"))
            elif not (_is_message(path, name) if tree["lc"] == 1 else _is_safe(path, name)):
                refused.append(_no_class(".".join(path), name))
        except (TypeError, ValueError):
            refused.append(Corrupt("a stored value makes no sense. form=`json`"))
        return tree


def _unpacked(data: bytes, look: Callable[[int, bytes], None]) -> Any:
    return ormsgpack.unpackb(data, ext_hook=look, option=ormsgpack.OPT_NON_STR_KEYS)


def _is_message(path: list[str], name: str) -> bool:
    return bool(path) and path[0] in _OWN and name in MESSAGES


def _is_safe(path: list[str], name: str) -> bool:
    return (".".join(path), name) in SAFE_MSGPACK_TYPES


def _no_class(module: str, name: str) -> InvalidInput:
    what = f"class=`{module}:{name}`"
    return InvalidInput(f"a stored value is of a class that is not allowed. {what}")


def _no_form(form: object) -> InvalidInput:
    return InvalidInput(f"a stored value is in a form that is not read. form=`{form}`")
