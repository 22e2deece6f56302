"""Encode each message once, and make many messages fast.

A message can be changed in place, also deep inside it, and must then be encoded again. So its bytes
are kept in a `Template` with what the message held at that time. A template also makes messages
that are equal to it and share nothing mutable. A `MessageRun` does this for a list of them.
"""

import marshal
from collections.abc import Callable
from itertools import accumulate, repeat
from typing import Any, NamedTuple

import orjson
from langchain_core.messages import BaseMessage

from limpet.compat.langgraph import tags, upstream
from limpet.compat.langgraph.classes import MESSAGES

_MARSHAL_VERSION = 2  # later ones write equal values differently, depending on references
_BYTES_MAX = 32 * 1024 * 1024
_TEXTS = frozenset((str, type(None)))
_CONTAINERS = frozenset((dict, list))
_COMPARED = _TEXTS | _CONTAINERS | {int, float, bool, tuple}
_ENTRIES_MAX = 64 * 1024
_CHUNK = 64  # messages: fewer new objects than start a collection

_new = object.__new__

FIELDS: dict[type, tuple[str, ...]] = {kind: tuple(kind.model_fields) for kind in MESSAGES.values()}
NAMES: dict[type, set[str]] = {kind: set(names) for kind, names in FIELDS.items()}


class Template(NamedTuple):
    """A message as JSON, and what it held.

    `empty` names the fields that are empty containers; `deep` has those that are not empty, as
    marshal writes them. `body` may be encrypted: it is only stored, never read.
    """

    body: bytes
    kind: type[BaseMessage]
    fields: dict[str, Any]
    empty: tuple[tuple[str, Any], ...]
    deep: tuple[tuple[str, bytes], ...]

    def make(self) -> BaseMessage:
        """Return a new message that shares nothing mutable with another."""
        fields = self.fields.copy()
        for name, container in self.empty:
            fields[name] = container()
        for name, content in self.deep:
            fields[name] = marshal.loads(content)  # noqa: S302 - written by this process
        return make(self.kind, fields)


def make(kind: type[BaseMessage], fields: dict[str, Any]) -> BaseMessage:
    """Return a message with these fields, which are all that its class has.

    They are not validated again: that takes ten times as long, and could change them.
    """
    made = object.__new__(kind)
    upstream.set_fields(made, fields)
    # All fields are set, so pydantic never adds to this set, and messages can share it.
    upstream.set_fields_set(made, NAMES[kind])
    upstream.set_extra(made, {})
    upstream.set_private(made, None)
    return made


def template_of(message: BaseMessage, body: bytes) -> Template | None:
    """Return the template of a message; None if a later change could not be detected."""
    if message.__pydantic_extra__:
        return None
    fields = message.__dict__.copy()
    empty: list[tuple[str, Any]] = []
    deep: list[tuple[str, bytes]] = []
    for name, value in [each for each in fields.items() if type(each[1]) not in _TEXTS]:
        kind = type(value)
        if kind in _CONTAINERS and not value:
            empty.append((name, kind))
            fields[name] = kind()  # only compared with, so it stays empty
            continue
        if not _is_plain(value, len(body)):
            return None
        try:
            deep.append((name, marshal.dumps(value, _MARSHAL_VERSION)))
        except ValueError:
            return None
    return Template(body, type(message), fields, tuple(empty), tuple(deep))


def _is_plain(value: Any, parts_max: int) -> bool:
    """Return whether a value is JSON: marshal writes any buffer as if it were bytes.

    One that has more parts than its message has bytes is not worth it: they are shared.
    """
    waiting = [value]
    while waiting:
        parts_max -= 1
        if parts_max < 0:
            return False
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
    """Templates by message id. One is used only for a message with the same content. Bounded.

    In two generations instead of `Recent`: a state has a thousand messages, and each lookup there
    would take a lock.
    """

    def __init__(self, entries_max: int = _ENTRIES_MAX, bytes_max: int = _BYTES_MAX) -> None:
        self._known: dict[str | None, Template] = {}
        self._before: dict[str | None, Template] = {}
        self._bytes = 0
        self._bytes_max = bytes_max // 2
        self._entries_max = entries_max // 2

    def find(self, message: Any) -> Template | None:
        """Return the template of a message; None if it is not known or has changed."""
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
            and is_same_fields([message], [template.fields])
            and not message.__pydantic_extra__
            and (not template.deep or is_same_deep(message, template))
        )
        return template if same else None

    def keep(self, template: Template) -> None:
        key = template.fields.get("id")
        if type(key) is not str:
            return
        self._known[key] = template
        self._bytes += len(template.body)
        if len(self._known) > self._entries_max or self._bytes > self._bytes_max:
            # Drops what was not used since the last time.
            self._before, self._known, self._bytes = self._known, {}, 0


def is_same_fields(messages: list[Any], fields: list[dict[str, Any]]) -> bool:
    """Return whether messages have these fields, apart from what is in `Template.deep`."""
    found = [each.__dict__ for each in messages]
    # An artifact may be of any class: an array of one text is equal to that text.
    kinds = {type(each["artifact"]) for each in found if "artifact" in each}
    try:
        return kinds <= _COMPARED and found == fields
    except Exception:
        return False  # such as the ValueError of an array, which has no truth value


def is_same_deep(message: BaseMessage, template: Template) -> bool:
    for name, content in template.deep:
        try:
            if marshal.dumps(message.__dict__[name], _MARSHAL_VERSION) != content:
                return False
        except ValueError:
            return False
    return True


def read_template(tree: dict[str, Any]) -> Template | None:
    """Return the template of a message that is stored as plain JSON, else None."""
    name = tree.get(tags.MESSAGE)
    kind = MESSAGES.get(name) if type(name) is str else None
    if kind is None:
        return None
    fields = tree.copy()
    del fields[tags.MESSAGE]
    if tuple(fields) != FIELDS[kind]:
        return None
    return template_of(make(kind, fields), orjson.dumps(tree))


class MessageRun:
    """The templates of a list of messages; `body` is their JSON, without brackets. Immutable.

    A conversation grows by little from one checkpoint to the next: old messages are compared and
    made by single calls over all of them, and only new ones are handled one by one.
    """

    __slots__ = ("_deep", "_fields", "_kinds", "body", "templates")

    def __init__(self, templates: list[Template], before: "MessageRun | None" = None) -> None:
        """The first templates are those of the run `before`, if one is given."""
        old = 0 if before is None else len(before.templates)
        fresh = templates[old:]
        self.body = b",".join([template.body for template in fresh])
        self.templates: list[Template] = templates
        self._kinds: list[type] = [template.kind for template in fresh]
        self._fields: list[dict[str, Any]] = [template.fields for template in fresh]
        self._deep = [(at, each) for at, each in enumerate(fresh, old) if each.deep]
        if before is not None:
            self.body = b",".join((before.body, self.body))
            self._kinds = before._kinds + self._kinds
            self._fields = before._fields + self._fields
            self._deep = before._deep + self._deep

    def extended(
        self, messages: list[Any], template_of: Callable[[int, Any], Template | None]
    ) -> "MessageRun | None":
        """Return the run of messages that begin with those of this run, else None."""
        count = len(self.templates)
        head = messages[:count]
        # Fast: Python compares texts by identity first, and nearly all are the same objects.
        if not (
            len(messages) >= count
            and list(map(type, head)) == self._kinds
            and is_same_fields(head, self._fields)
            and not [each for each in head if each.__pydantic_extra__]
            and all(is_same_deep(head[at], template) for at, template in self._deep)
        ):
            return None
        if len(messages) == count:
            return self
        fresh: list[Template] = []
        for at in range(count, len(messages)):
            template = template_of(at, messages[at])
            if template is None:
                return None
            fresh.append(template)
        return MessageRun(self.templates + fresh, self)

    def ends(self) -> list[int]:
        """Return where each message ends in `body`."""
        sizes = [len(template.body) + 1 for template in self.templates]
        return [end - 1 for end in accumulate(sizes)]

    def make(
        self, count: int | None = None, released: list[BaseMessage] | None = None
    ) -> list[BaseMessage]:
        """Return new messages, or the first `count` of them. They share nothing that can change.

        Messages in `released` are dropped while the new ones are made: the
        garbage collector counts new objects less those that were freed, and full collections would
        otherwise take as long as making the messages.
        """
        total = len(self.templates) if count is None else count
        made: list[BaseMessage] = []
        for start in range(0, total, _CHUNK):
            made += self._make_chunk(start, min(start + _CHUNK, total))
            if released:
                del released[-_CHUNK:]
        return made

    def _make_chunk(self, start: int, stop: int) -> list[BaseMessage]:
        fields = [each.copy() for each in self._fields[start:stop]]
        kinds = self._kinds[start:stop]
        for each, template in zip(fields, self.templates[start:stop], strict=True):
            for name, container in template.empty:
                each[name] = container()
        made: list[Any] = list(map(_new, kinds))
        for setting in (
            map(upstream.set_fields, made, fields),
            map(upstream.set_fields_set, made, [NAMES[kind] for kind in kinds]),
            map(upstream.set_extra, made, [{} for _ in made]),
            map(upstream.set_private, made, repeat(None)),
        ):
            for _ in setting:
                pass
        for at, template in self._deep:
            if start <= at < stop:
                made[at - start] = template.make()
        return made
