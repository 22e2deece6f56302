"""Answers that go on: snapshots as lines, events of a watch, changes for an engine."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import suppress
from itertools import islice

from limpet.api.driver import AsyncDriver, running_loop
from limpet.api.opened import Opened
from limpet.api.watching import Dispatcher, Subscription
from limpet.core import codec, limits, wire
from limpet.core.operations import EVENTS_TYPE, LINES_TYPE
from limpet.errors import LimpetError
from limpet.model import JSON, ScopeKey
from limpet.protocol import Backend, Topic
from limpet.server.bodies import Memory
from limpet.server.call import Answer, Call, Listing, Stream

HEARTBEAT_S = 30.0
_SESSIONS_MAX = 100  # in one line: after more a client reads everything again
_FIRST_POLL_S_MAX = 10.0
_STATES_MAX = 4  # read at once: together they may take more than is reserved for one
_PART_BYTES = 4 * limits.MIB  # of states that are read at once
_RETRY_S = 1.0  # before a topic that cannot be read is read again


class _States(Memory):
    """The memory for states of a store that are being sent in parts."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(2 * opened.tools.state_bytes_max)

    def close(self) -> None:
        """Nothing is open: what is reserved is given back when its stream ends."""


def snapshots(call: Call, scope: ScopeKey, ids: Collection[str | None]) -> Stream:
    """Return snapshots with their states, each once, a bounded number of them in memory."""
    memory, state_bytes_max = call.driver.opened.service(_States), call.driver.tools.state_bytes_max

    async def parts() -> AsyncGenerator[bytes, None]:
        remaining, count = iter(dict.fromkeys(ids)), 1
        while page := list(islice(remaining, count)):

            def work(backend: Backend, page: Sequence[str | None] = page) -> list[bytes]:
                found = backend.read_snapshots(scope, page)
                return [wire.encode_found((call.grant.visible(info), body)) for info, body in found]

            # How large the states are is known when they have been read.
            async with memory.reserved(len(page) * state_bytes_max) as keep:
                lines = await call.driver.run(work)
                size, largest = sum(map(len, lines)), max(map(len, lines), default=1)
                count = max(1, min(_STATES_MAX, _PART_BYTES // largest))
                keep(size)
                if size <= _PART_BYTES:
                    yield b"".join(each + b"\n" for each in lines)
                    continue
                while lines:
                    yield lines.pop(0)  # which nothing holds when it was sent
                    yield b"\n"

    return Stream(parts(), LINES_TYPE)


async def page(call: Call, listing: Listing) -> Answer:
    """Return one page of a list."""
    after, limit = call.params.get("after"), call.limit

    def work(backend: Backend) -> Answer:
        found, following = _items(call, listing, backend, after, limit)
        return Answer(codec.encode({"items": found, "next": following}))

    return await call.driver.run(work)


def lines(call: Call, listing: Listing) -> Stream:
    """Return a list as lines of JSON, page by page."""

    async def parts() -> AsyncGenerator[bytes, None]:
        after, left = call.params.get("after"), call.params.get("limit", sys.maxsize)
        while left > 0:
            wanted = min(left, limits.PAGE_ITEMS_MAX)

            def work(
                backend: Backend, after: str | None = after, wanted: int = wanted
            ) -> tuple[bytes, str | None]:
                found, following = _items(call, listing, backend, after, wanted)
                return b"".join(codec.encode(each) + b"\n" for each in found), following

            part, after = await call.driver.run(work)
            yield part
            if after is None:
                return
            left -= wanted

    return Stream(parts(), LINES_TYPE)


def _items(
    call: Call, listing: Listing, backend: Backend, after: str | None, limit: int
) -> tuple[list[JSON], str | None]:
    """Return the items of a page as JSON, and where the list goes on."""
    cursor, to_json = call.operation.cursor, call.operation.result.to_json
    if cursor is None:
        raise TypeError(f"this operation is no list. name=`{call.operation.name}`")
    place = cursor.begin if after is None else cursor.read(after)
    found = listing.fetch(backend, place, limit) if limit else []
    following = cursor.after(found[-1]) if found and len(found) == limit else None
    return [to_json(each) for each in call.grant.shown(found)], following


def events(call: Call, topic: Topic, *, newest_only: bool = False) -> Stream:
    """Return the changes of a topic as server-sent events.

    With `newest_only`, of all that changed at once only the head that was saved last: enough for a
    client that then reads a list again.
    """

    async def parts() -> AsyncGenerator[bytes, None]:
        seen = call.headers.get("last-event-id")
        yield b": watching\n\n"
        try:
            async for batch in call.driver.batches(topic, HEARTBEAT_S):
                new = [info for info in batch if info.revision != seen]
                if newest_only:
                    new = sorted(new, key=lambda info: info.updated_at)[-1:]
                for info in new:
                    yield _event("change", wire.info_json(call.grant.visible(info)), info.revision)
                if not new:
                    yield b":\n\n"
                seen = None
            yield _event("end", {})
        except LimpetError as error:
            yield _event("error", call.grant.problem_json(error))

    return Stream(parts(), EVENTS_TYPE, endless=True)


def _event(name: str, data: JSON, revision: str | None = None) -> bytes:
    mark = b"" if revision is None else b"id: %b\n" % revision.encode()
    return b"%bevent: %b\ndata: %b\n\n" % (mark, name.encode(), codec.encode(data).strip())


def changes(driver: AsyncDriver, topics: Sequence[Topic]) -> Stream:
    """Return the sessions in which a topic has changed; null stands for all of them."""
    weight = 1 + len(topics) // 10
    return Stream(_Changes(driver, topics).parts(), LINES_TYPE, endless=True, weight=weight)


class _Changes:
    """Many subscriptions with one waiting task."""

    def __init__(self, driver: AsyncDriver, topics: Sequence[Topic]) -> None:
        self._dispatcher = driver.opened.service(Dispatcher)
        self._loop, self._notified = running_loop(), asyncio.Event()
        self._subscriptions = {topic: self._subscribe(topic) for topic in topics}

    def _subscribe(self, topic: Topic) -> Subscription:
        return Subscription(topic, lambda: self._loop.call_soon_threadsafe(self._notified.set))

    async def parts(self) -> AsyncGenerator[bytes, None]:
        try:
            for subscription in self._subscriptions.values():
                self._dispatcher.add(subscription)
            await self._first_poll()
            yield b"{}\n"
            while True:
                self._notified.clear()
                sessions = await self._take()
                if len(sessions) > _SESSIONS_MAX:
                    sessions = {None}
                yield b"".join(codec.encode({"session_id": each}) + b"\n" for each in sessions)
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        await self._notified.wait()
                except TimeoutError:
                    yield b"{}\n"
        finally:
            for subscription in self._subscriptions.values():
                self._dispatcher.remove(subscription)

    async def _first_poll(self) -> None:
        """Wait until all topics were polled: only then is a deletion noticed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_POLL_S_MAX):
                while any(each.is_new for each in self._subscriptions.values()):
                    self._notified.clear()
                    await self._notified.wait()
        await self._take()  # which the client reads by itself from now on

    async def _take(self) -> set[str | None]:
        sessions: set[str | None] = set()
        is_unread = False
        for topic, subscription in list(self._subscriptions.items()):
            try:
                found, is_over = subscription.take()
            except LimpetError:
                found, is_over, is_unread = [], True, True
            sessions |= {info.session_id for info in found}
            if is_over:
                # It was deleted, or cannot be read: the client finds out, and may go on.
                target = topic.target
                sessions.add(topic.session_id if target is None else target.scope.session_id)
                self._dispatcher.remove(subscription)
                self._subscriptions[topic] = self._subscribe(topic)
                self._dispatcher.add(self._subscriptions[topic])
        if is_unread:
            await asyncio.sleep(_RETRY_S)
        return sessions
