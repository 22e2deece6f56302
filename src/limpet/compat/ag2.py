"""Streams of AG2 agents: its `Storage` on every engine.

Each event of a stream is appended when it happens, so that a turn that was killed goes on::

    from ag2 import Agent, MemoryStream
    from limpet.compat.ag2 import LimpetStorage

    async with limpet.open_async("sqlite:///agents.db") as store:
        stream = MemoryStream(LimpetStorage(store), id=stream_id)
        await agent.ask("Hello!", stream=stream)

`docs/guides/ag2.md` lists where each thing is stored, so that other programs see it.
"""

from collections.abc import Iterable
from typing import Any

from limpet import AsyncStore, Store
from limpet.compat import needs
from limpet.compat.logs import Logs
from limpet.compat.wire import check_store

with needs("ag2", "AG2", extra="ag2"):
    from ag2 import Context
    from ag2.context import StreamId
    from ag2.events import BaseEvent
    from ag2.history import Storage

__all__ = ["LimpetStorage"]


class _Saved(BaseEvent):
    """What AG2 stores of an event in a field: its class, by name, and its fields."""

    event: Any


class LimpetStorage(Storage):
    """The events of streams in an open store, sync or async. Safe for tasks and processes.

    Reading imports the modules that the stored events name, as AG2's own `RedisStorage` does. So a
    class of events of your own must be importable, and only who is trusted may write to the store.
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self._logs = Logs(check_store(store).aio, "events", "ag2")

    async def save_event(self, event: BaseEvent, context: Context) -> None:
        """Append an event to its stream. Durable when it returns.

        Raises:
            AlreadyExists: another framework has a conversation with this id.
            InvalidInput: the event is not JSON. Nothing was stored.
        """
        await self._logs.of(str(context.stream.id)).append([_item(event)])

    async def get_history(self, stream_id: StreamId) -> list[BaseEvent]:
        """Return the events of a stream, the oldest first.

        Raises:
            Corrupt: the class of an event cannot be imported.
        """
        return await self._logs.of(str(stream_id)).read(_event) or []

    async def set_history(self, stream_id: StreamId, events: Iterable[BaseEvent]) -> None:
        """Replace the events of a stream, as one step; earlier snapshots keep them."""
        await self._logs.of(str(stream_id)).replace(list(map(_item, events)))

    async def drop_history(self, stream_id: StreamId) -> None:
        """Delete the events of a stream."""
        await self._logs.of(str(stream_id)).delete()


def _item(event: BaseEvent) -> Any:
    return _Saved(event=event).to_dict()["event"]


def _event(item: Any) -> BaseEvent:
    event: Any = _Saved.from_dict({"event": item})
    if not isinstance(event.event, BaseEvent):
        raise ValueError("no event, or one of an unknown class")
    return event.event
