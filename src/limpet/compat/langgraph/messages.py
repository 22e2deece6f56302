"""Messages that were encoded already, so that each is encoded once and not in every turn.

A message can be changed in place, also deep inside it, and must then be encoded again: so beside
the bytes stands what it held when they were made, its `Template`. Of a template, messages can be
made that are equal to it and share nothing that can be changed.
"""

import marshal
from typing import Any, NamedTuple

import orjson
from langchain_core.messages import BaseMessage
from pydantic import BaseModel

from limpet.compat.langgraph import forms
from limpet.compat.langgraph.allowed import MESSAGES

_MARSHAL_VERSION = 2  # writes the same for what is equal, whoever else refers to it
_BYTES_MAX = 32 * 1024 * 1024
_TEXTS = frozenset((str, type(None)))
_CONTAINERS = frozenset((dict, list))
_ENTRIES_MAX = 64 * 1024


class Setters(NamedTuple):
    """What sets the parts of a pydantic model that it is made of, without checking them."""

    fields: Any
    names: Any
    others: Any
    private: Any


_SLOTS = (
    "__dict__",
    "__pydantic_fields_set__",
    "__pydantic_extra__",
    "__pydantic_private__",
)
SETTERS = Setters(*(BaseModel.__dict__[name].__set__ for name in _SLOTS))

FIELDS: dict[type, tuple[str, ...]] = {kind: tuple(kind.model_fields) for kind in MESSAGES.values()}
NAMES: dict[type, set[str]] = {kind: set(names) for kind, names in FIELDS.items()}


class Encoded(NamedTuple):
    """A value as JSON. `wide` says that it holds integers beyond 64 bits."""

    body: bytes
    wide: bool


class Template(NamedTuple):
    """A message as JSON, and what it held.

    `fields` are its fields, of which `empty` are containers that hold nothing; `deep` is a shape of
    those that hold something. `plain` says that its JSON has no form in it but that of the message.
    """

    body: bytes
    wide: bool
    plain: bool
    kind: type[BaseMessage]
    fields: dict[str, Any]
    empty: tuple[tuple[str, Any], ...]
    deep: tuple[tuple[str, bytes], ...]

    def make(self) -> BaseMessage:
        """Return a new message, if the template is plain."""
        _, _, _, kind, fields, empty, deep = self
        if deep:
            fields = orjson.loads(self.body)
            del fields[forms.MESSAGE]
        else:
            fields = fields.copy()
            for name, container in empty:
                fields[name] = container()
        return make(kind, fields)


def make(kind: type[BaseMessage], fields: dict[str, Any]) -> BaseMessage:
    """Return a message that holds just these fields, which are all that its class has.

    They were checked when they were first put into a message. To check them again would take ten
    times as long, and could change them.
    """
    made = object.__new__(kind)
    SETTERS.fields(made, fields)
    # It says which fields were given, and that is all of them: so nothing is ever added to it, and
    # all messages can have the same.
    SETTERS.names(made, NAMES[kind])
    SETTERS.others(made, {})
    SETTERS.private(made, None)
    return made


def template_of(message: BaseMessage, encoded: Encoded, *, plain: bool) -> Template | None:
    """Return the template of a message; None if it cannot be told later that it is the same."""
    if message.__pydantic_extra__:
        return None
    fields = message.__dict__.copy()
    empty: list[tuple[str, Any]] = []
    deep: list[tuple[str, bytes]] = []
    for name, value in [each for each in fields.items() if type(each[1]) not in _TEXTS]:
        kind = type(value)
        if not value and kind in _CONTAINERS:
            empty.append((name, kind))
            fields[name] = kind()  # to be compared with: it stays empty
            continue
        if not _is_plain(value):
            return None
        try:
            deep.append((name, marshal.dumps(value, _MARSHAL_VERSION)))
        except ValueError:
            return None
    return Template(*encoded, plain, type(message), fields, tuple(empty), tuple(deep))


def _is_plain(value: Any) -> bool:
    """Tell whether a value holds nothing but JSON: marshal takes any buffer for the same bytes."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        kind = type(each)
        if kind is dict:
            waiting += [*each, *each.values()]
        elif kind in (list, tuple):
            waiting += each
        elif each is not None and kind not in (str, int, float, bool):
            return False
    return True


class MessageCache:
    """The templates of messages by their ids, as long as they are what they were. Bounded.

    What is found for another message with the same id is not used unless it holds the same.
    """

    def __init__(self, entries_max: int = _ENTRIES_MAX, bytes_max: int = _BYTES_MAX) -> None:
        self._known: dict[str | None, Template] = {}
        self._before: dict[str | None, Template] = {}
        self._bytes = 0
        self._bytes_max = bytes_max // 2
        self._entries_max = entries_max // 2

    def find(self, message: Any) -> Template | None:
        """Return the template of a message; None if it is not known, or not the same now."""
        key = message.__dict__.get("id")
        if type(key) is not str:
            return None
        template = self._known.get(key)
        if template is None:
            template = self._before.get(key)
            if template is None:
                return None
            self.keep(template)
        same = (
            type(message) is template.kind
            and message.__dict__ == template.fields
            and not message.__pydantic_extra__
            and (not template.deep or is_same_deep(message, template))
        )
        return template if same else None

    def keep(self, template: Template) -> None:
        """Remember a template, if its message has an id."""
        key = template.fields.get("id")
        if type(key) is not str:
            return
        self._known[key] = template
        self._bytes += len(template.body)
        if len(self._known) > self._entries_max or self._bytes > self._bytes_max:
            # What was not used since the last time is forgotten.
            self._before, self._known, self._bytes = self._known, {}, 0


def is_same_deep(message: BaseMessage, template: Template) -> bool:
    """Tell whether what a message holds in containers is what the template says."""
    for name, shape in template.deep:
        try:
            if marshal.dumps(message.__dict__[name], _MARSHAL_VERSION) != shape:
                return False
        except ValueError:
            return False
    return True


def read_template(tree: dict[str, Any]) -> Template | None:
    """Return the template of a message that is there as JSON, unchanged; None if it takes more."""
    name = tree.get(forms.MESSAGE)
    kind = MESSAGES.get(name) if type(name) is str else None
    if kind is None:
        return None
    fields = tree.copy()
    del fields[forms.MESSAGE]
    if tuple(fields) != FIELDS[kind]:
        return None
    return template_of(make(kind, fields), Encoded(orjson.dumps(tree), wide=False), plain=True)
