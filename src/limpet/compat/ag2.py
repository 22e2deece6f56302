"""Streams of AG2 agents: its `Storage` on every engine.

Each event of a stream is appended when it happens, so that a turn that was killed goes on::

    from ag2 import Agent, MemoryStream
    from limpet.compat.ag2 import LimpetStorage

    async with limpet.open_async("sqlite:///agents.db") as store:
        stream = MemoryStream(LimpetStorage(store), id=stream_id)
        await agent.ask("Hello!", stream=stream)

`docs/guides/ag2.md` lists where each thing is stored, so that other programs see it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from enum import Enum
from importlib import import_module
from typing import Any

from limpet import AsyncStore, Store
from limpet.compat import needs
from limpet.compat.logs import Logs
from limpet.compat.wire import check_store, shown
from limpet.errors import InvalidInput

with needs("ag2", "AG2", extra="ag2"):
    from ag2 import Context
    from ag2.context import StreamId
    from ag2.events import BaseEvent
    from ag2.history import Storage
    from pydantic import BaseModel

__all__ = ["LimpetStorage"]


_CLASSES = ("__event__", "__dataclass__", "__pydantic__", "__enum__")
"""The members by which AG2 names a class that reading imports and calls."""


class _Saved(BaseEvent):
    """What AG2 stores of an event in a field: its class, by name, and its fields."""

    event: Any


class LimpetStorage(Storage):
    """The events of streams in an open store, sync or async. Safe for tasks and processes.

    What a tool returns may name any class of Python in the members by which AG2 finds those of its
    events, and AG2 would call it. So an event is neither saved nor read if it names another class
    than those of AG2 and of `modules`, by which you allow your own::

        LimpetStorage(store, modules=["my_app.events"])
    """

    def __init__(self, store: Store | AsyncStore, *, modules: Iterable[str] = ()) -> None:
        self._driver = check_store(store).aio.driver
        self._logs = Logs(store.sync, "events", "ag2")
        self._modules = frozenset(modules)

    async def save_event(self, event: BaseEvent, context: Context) -> None:
        """Append an event to its stream. Durable when it returns.

        Raises:
            AlreadyExists: another framework has a conversation with this id.
            InvalidInput: the event is not JSON, or could not be read again. Nothing was stored.
        """
        log = self._logs.of(str(context.stream.id))
        await self._driver.offload(log.append, [self._item(event)])

    async def get_history(self, stream_id: StreamId) -> list[BaseEvent]:
        """Return the events of a stream, the oldest first.

        Raises:
            InvalidInput: an event is of a class that is not allowed, or that is gone.
        """
        return await self._driver.offload(self._logs.of(str(stream_id)).read, self._event) or []

    async def set_history(self, stream_id: StreamId, events: Iterable[BaseEvent]) -> None:
        """Replace the events of a stream, as one step; earlier snapshots keep them."""
        log = self._logs.of(str(stream_id))
        await self._driver.offload(log.replace, list(map(self._item, events)))

    async def drop_history(self, stream_id: StreamId) -> None:
        """Delete the events of a stream with their history."""
        await self._driver.offload(self._logs.of(str(stream_id)).delete)

    def _item(self, event: BaseEvent) -> Any:
        item = _Saved(event=event).to_dict()["event"]
        self._event(item)
        return item

    def _event(self, item: Any) -> BaseEvent:
        for name in _names(item):
            if not self._is_allowed(name):
                raise InvalidInput(
                    "an event names a class that is not allowed: its module must be in `modules`, "
                    f"and the class at its top level. class=`{shown(name)}`"
                )
        try:
            event = _Saved.from_dict({"event": item}).event
        except (AttributeError, LookupError, TypeError, ValueError):
            event = None
        if not isinstance(event, BaseEvent):
            raise InvalidInput("an event cannot be read: AG2 cannot make it of what it stores")
        return event

    def _is_allowed(self, name: Any) -> bool:
        module, _, own = str(name).rpartition(".")
        if not (module in self._modules or module.startswith("ag2.")):
            return False
        try:
            found = getattr(import_module(module), own, None)
        except (ImportError, ValueError):
            return False
        return (
            isinstance(found, type)
            and (found.__module__, found.__qualname__) == (module, own)
            and (is_dataclass(found) or issubclass(found, (BaseEvent, BaseModel, Enum)))
        )


def _names(value: Any) -> Iterator[Any]:
    """Yield the classes that AG2 would call to make a value of what it stores."""
    if isinstance(value, dict):
        yield from (value[key] for key in _CLASSES if key in value)
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _names(each)
