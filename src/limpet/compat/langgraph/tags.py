"""How values that are not JSON are stored: as an object whose first key is a tag.

| in Python                               | stored                                               |
|-----------------------------------------|------------------------------------------------------|
| None, bool, int, finite float, text     | itself                                               |
| int beyond 64 bits                      | `{"$int": "<digits>"}`; itself from LangGraph.js     |
| list, dict with text keys               | itself                                               |
| a message                               | `{"$message": "AIMessage", "content": ..., ...}`     |
| the same with values in it that are not | `{"$message+": "AIMessage", ...}`                    |
| tuple, set, frozenset, deque            | `{"$tuple": [...]}`, ...                             |
| deque with maxlen                       | `{"$deque": [...], "maxlen": 5}`                     |
| bytes, bytearray                        | `{"$bytes": "<base64>"}`, ...                        |
| NaN, infinities                         | `{"$float": "nan"}`                                  |
| text with lone surrogates               | `{"$text": "<unicode escapes>"}`                     |
| dict with other keys                    | `{"$map": [[key, value], ...]}`                      |
| dict whose first key begins with `$`    | `{"$plain": {...}}`                                  |
| datetime, date, time, timedelta         | `{"$datetime": "<ISO 8601>"}`, ...                   |
| Decimal                                 | `{"$decimal": "..."}`                                |
| member of an enum                       | `{"$enum": "module:Name", "name": "RED"}`            |
| named tuple                             | `{"$object": "module:Name", "items": [...]}`         |
| dataclass, pydantic model, ...          | `{"$object": "module:Name", "fields": {...}}`        |
| prompts, ... of langchain-core          | `{"$langchain": <as LangChain writes it>}`           |
| anything else                           | `{"$serde": ["msgpack", "<base64>", "module:Name"]}` |
| what only LangGraph.js has              | `{"$js": {"lc": 2, ...}}`: `undefined` is None here  |

`module` is the name that a class is imported by, also in the script that was started (see `names`).

With a serializer that is not LangGraph's own, such as one that encrypts, each value is
`{"$sealed": [type, "<base64>"]}`, lists item by item.
"""

from base64 import b64decode
from collections import deque
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cache
from importlib import import_module
from typing import Any
from zoneinfo import ZoneInfo

import orjson
from langchain_core.documents import Document
from langchain_core.load.serializable import Serializable
from pydantic import BaseModel

from limpet.compat.langgraph import upstream
from limpet.compat.langgraph.classes import MESSAGES, attributes
from limpet.errors import InvalidInput

MESSAGE = "$message"
RICH = "$message+"
OBJECT = "$object"
ENUM = "$enum"
MAP = "$map"
PLAIN = "$plain"
TEXT = "$text"
FLOAT = "$float"
INT = "$int"
BYTES = "$bytes"
BYTEARRAY = "$bytearray"
SERDE = "$serde"
SEALED = "$sealed"
DATETIME = "$datetime"
DATE = "$date"
TIME = "$time"
TIMEDELTA = "$timedelta"
DECIMAL = "$decimal"
EXTRA = "$extra"
LANGCHAIN = "$langchain"
DEQUE = "$deque"
JAVASCRIPT = "$js"

SEQUENCES: dict[type, str] = {tuple: "$tuple", set: "$set", frozenset: "$frozenset", deque: DEQUE}
UNORDERED = frozenset((set, frozenset))

_LANGCHAIN_PARTS_MAX = 100_000
TAG_PREFIX = b'{"$'
"""Where a tagged object begins in encoded JSON, and nowhere else: in a string it is escaped."""


def encoded_name(name: object) -> bytes:
    try:
        if type(name) is str:
            return orjson.dumps(name)
    except TypeError:
        pass  # lone surrogates
    raise InvalidInput(f"the name of a channel must be valid text. name=`{name!a}`")


def encoded_moment(value: Any) -> tuple[str, Any] | None:
    """Return tag and text of a date, time or Decimal; None for others, also for subclasses."""
    kind = type(value)
    if kind is datetime and (zone := _zone_of(value.tzinfo)) is not None:
        text, (is_zone_info, name) = value.isoformat(), zone
        is_plain = name is None and not value.fold
        return DATETIME, text if is_plain else [text, is_zone_info, name, value.fold]
    if kind is date:
        return DATE, value.isoformat()
    if kind is time and value.tzinfo is None:
        return TIME, [value.isoformat(), value.fold] if value.fold else value.isoformat()
    if kind is timedelta:
        return TIMEDELTA, [value.days, value.seconds, value.microseconds]
    if kind is Decimal:
        return DECIMAL, str(value)
    return None


def _zone_of(zone: Any) -> tuple[bool, str | None] | None:
    """Return whether a zone is a `ZoneInfo`, and the name it was given; None if it is another."""
    if type(zone) is ZoneInfo:  # one that was read from a file has no key
        return (True, zone.key) if isinstance(zone.key, str) else None
    if type(zone) is timezone:
        # `tzname` would make up a name.
        _, *names = zone.__getinitargs__()  # type: ignore[attr-defined]
        return False, names[0] if names else None
    return (False, None) if zone is None else None


def _read_datetime(written: Any) -> datetime:
    if isinstance(written, str):
        return datetime.fromisoformat(written)
    text, is_zone_info, name, fold = written
    moment = datetime.fromisoformat(text).replace(fold=fold)
    offset = moment.utcoffset()
    if is_zone_info:
        return moment.replace(tzinfo=ZoneInfo(name))
    if name is None or offset is None:
        return moment
    return moment.replace(tzinfo=timezone(offset, name))


def _read_time(written: Any) -> time:
    if isinstance(written, str):
        return time.fromisoformat(written)
    text, fold = written
    return time.fromisoformat(text).replace(fold=fold)


TEXTS: dict[str, Any] = {
    TEXT: lambda written: written.encode("ascii").decode("unicode_escape"),
    FLOAT: float,
    INT: int,
    BYTES: lambda written: b64decode(written, validate=True),
    BYTEARRAY: lambda written: bytearray(b64decode(written, validate=True)),
    DATETIME: _read_datetime,
    DATE: date.fromisoformat,
    TIME: _read_time,
    TIMEDELTA: lambda written: timedelta(*written),
    DECIMAL: Decimal,
}
"""What makes values of what is written behind a tag."""


# Prompts and other objects of langchain-core, in LangChain's own format. A prompt holds types and
# functions that its constructor derives from the other fields, so it is made by its constructor.
# Only the classes below are made: they hold data. LangChain's own list also has runnables, which
# call others.

_LANGCHAIN = {
    "agents": ("AgentAction", "AgentActionMessageLog", "AgentFinish"),
    "output_parsers": ("CommaSeparatedListOutputParser", "StrOutputParser"),
    "outputs": ("ChatGeneration", "ChatGenerationChunk", "Generation", "GenerationChunk"),
    "prompt_values": ("ChatPromptValue", "ChatPromptValueConcrete", "StringPromptValue"),
    "prompts": (
        "AIMessagePromptTemplate",
        "ChatMessagePromptTemplate",
        "ChatPromptTemplate",
        "FewShotPromptWithTemplates",
        "HumanMessagePromptTemplate",
        "MessagesPlaceholder",
        "PromptTemplate",
        "SystemMessagePromptTemplate",
    ),
    "prompts.dict": ("DictPromptTemplate",),
    "prompts.image": ("ImagePromptTemplate",),
    "prompts.structured": ("StructuredPrompt",),
}


@cache
def _langchain_classes() -> frozenset[type[Serializable]]:
    # Not when this module is imported: the prompts take seconds, and few graphs store them.
    return frozenset(
        getattr(import_module(f"langchain_core.{module}"), name)
        for module, names in _LANGCHAIN.items()
        for name in names
    )


def is_langchain(value: Any) -> bool:
    kind = type(value)
    is_core = isinstance(value, Serializable) and kind.__module__.startswith("langchain_core.")
    return is_core and kind in _langchain_classes()


def dump_langchain(value: Any) -> Any:
    """Return an object as JSON.

    Raises:
        ValueError: it has too many parts. LangChain would write shared ones again and again.
    """
    waiting = [value]
    for _ in range(_LANGCHAIN_PARTS_MAX):
        if not waiting:
            return upstream.lc_dump(value)
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list | tuple | set | frozenset | deque):
            waiting += each
        elif isinstance(each, BaseModel) or is_dataclass(type(each)):
            waiting += attributes(each).values()
    raise ValueError("too many parts")


def load_langchain(tree: Any) -> Any:
    """Return the object that `dump_langchain` returned a tree for. Secrets are not filled in.

    Raises:
        ValueError, TypeError, NotImplementedError: it names another class, or does not fit it.
    """
    inside = [*_langchain_classes(), *MESSAGES.values(), Document]
    value = upstream.lc_load(tree, allowed_objects=inside, secrets_map={}, secrets_from_env=False)
    if not is_langchain(value):
        raise ValueError("not an object of LangChain")
    return value
