"""The messages of a channel, taken apart: to compare, write or make all of them at once.

A conversation only grows by a little from one checkpoint to the next. What is done for each of its
messages is done by single calls over all of them, and only for those that are new one by one.
"""

from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate, repeat
from typing import Any

from langchain_core.messages import BaseMessage

from limpet.compat.langgraph.bulk import many_objects
from limpet.compat.langgraph.messages import NAMES, SETTERS, Template, is_same_deep

_PARTS_MAX = 32

_new = object.__new__


class Run:
    """Templates of messages in a row, each side by side; `parts` joined are their JSON.

    Never changed.
    """

    __slots__ = ("_deep", "_empty", "_fields", "_kinds", "parts", "plain", "templates", "wide")

    def __init__(self, templates: list[Template], before: "Run | None" = None) -> None:
        """Of all templates; those of a run before, if one is given, are its first."""
        old = 0 if before is None else len(before.templates)
        fresh = templates[old:]
        text = b",".join([template.body for template in fresh])
        self.parts: tuple[bytes, ...] = (text,)
        self.templates: list[Template] = templates
        self._kinds: list[type] = [template.kind for template in fresh]
        self._fields: list[dict[str, Any]] = [template.fields for template in fresh]
        self._deep = [(at, each) for at, each in enumerate(fresh, old) if each.deep]
        self._empty: dict[tuple[tuple[str, Any], ...], list[int]] = {}
        self.plain: bool = False not in [template.plain for template in fresh]
        self.wide: bool = True in [template.wide for template in fresh]
        if before is not None:
            # They are joined once for each state; what is long is not copied for that before.
            self.parts = (*before.parts, b",", text)
            if len(self.parts) > _PARTS_MAX:
                self.parts = (b"".join(self.parts),)
            self._kinds = before._kinds + self._kinds
            self._fields = before._fields + self._fields
            self._deep = before._deep + self._deep
            self._empty = {empty: places.copy() for empty, places in before._empty.items()}
            self.plain = self.plain and before.plain
            self.wide = self.wide or before.wide
        for at, template in enumerate(fresh, old):
            self._empty.setdefault(template.empty, []).append(at)

    def extended(
        self, messages: list[Any], template_of: Callable[[int, Any], Template | None]
    ) -> "Run | None":
        """Return the run of messages that begin with these, as they were; None if they do not."""
        count = len(self.templates)
        head = messages[:count]
        # Texts are compared by identity first, which is all that there is to it nearly always.
        if not (
            len(messages) >= count
            and list(map(type, head)) == self._kinds
            and [each.__dict__ for each in head] == self._fields
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
        return Run(self.templates + fresh, self)

    def size(self) -> int:
        """Return the bytes of their JSON."""
        return sum(map(len, self.parts))

    def joined(self) -> bytes:
        """Return their JSON."""
        return b"".join(self.parts)

    def ends(self) -> list[int]:
        """Return where each message ends in it."""
        sizes = [len(template.body) + 1 for template in self.templates]
        return [end - 1 for end in accumulate(sizes)]

    def make(self, count: int | None = None) -> list[BaseMessage]:
        """Return new messages, or the first of them, that share nothing that can be changed.

        The run must be plain.
        """
        with many_objects():
            return self._made(count)

    def _made(self, count: int | None) -> list[BaseMessage]:
        fields = [each.copy() for each in self._fields[:count]]
        kinds = self._kinds[:count]
        for empty, places in self._empty.items():
            some = places[: bisect_left(places, len(fields))]
            for name, container in empty:
                for at in some:
                    fields[at][name] = container()
        made: list[Any] = list(map(_new, kinds))
        for each in (
            map(SETTERS.fields, made, fields),
            map(SETTERS.names, made, [NAMES[kind] for kind in kinds]),
            map(SETTERS.others, made, [{} for _ in made]),
            map(SETTERS.private, made, repeat(None)),
        ):
            for _ in each:
                pass
        for at, template in self._deep:
            if at < len(made):
                made[at] = template.make()
        return made
