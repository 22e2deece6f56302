"""A list that grows, as the state of a scope: what frameworks call a session, transcript or log.

The state is `{key: [item, ...]}` and perhaps other members. Each append is a snapshot, so that
every earlier moment can be loaded, compared and forked; it costs what is appended.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from limpet import AsyncScope, AsyncStore
from limpet.compat.wire import ABSENT, Absent
from limpet.compat.writes import contended
from limpet.errors import Conflict, Corrupt
from limpet.model import JSON, ScopeInfo, SnapshotInfo

KIND = "conversation"
"""The kind of the scopes that hold a conversation as a log."""

MAIN = "main"
"""The scope of a conversation; branches, and transcripts of subagents, have others."""

T = TypeVar("T")
IdOf: TypeAlias = Callable[[Any], str | None]
Describe: TypeAlias = Callable[[SnapshotInfo | None, list[Any]], Mapping[str, JSON]]


@dataclass(frozen=True, slots=True)
class _Known:
    """The head as this process saw it last, and the ids of its items."""

    head: SnapshotInfo | None
    ids: set[str]


async def conversations(store: AsyncStore, prefix: str = "") -> AsyncIterator[ScopeInfo]:
    """Yield the conversations in the sessions that begin with `prefix`, in text order."""
    async for each in store.scopes(kind=KIND, prefix=prefix):
        if each.key.scope_id == MAIN:
            yield each


def foreign(found: SnapshotInfo, what: str) -> Corrupt:
    """Return the error for a snapshot that is not `what` the adapter saves."""
    return Corrupt(
        f"this is not {what} that this version can read: another program, or a newer version, "
        f"saved it. session=`{found.session_id}` id=`{found.id}`",
        scope=found.scope,
        id=found.id,
    )


class Log:
    """The list under one key of a scope's state. Safe for tasks, threads and processes.

    With `id_of`, an item whose id is in the list already is not appended again; items without an
    id always are. The ids are remembered, and read again after another writer was faster.
    """

    def __init__(self, scope: AsyncScope[Any], key: str, *, id_of: IdOf | None = None) -> None:
        self.scope = scope
        self._key = key
        self._id_of = id_of
        self._known: _Known | None = None

    async def read(self) -> list[Any] | None:
        """Return the items; None if nothing was ever written.

        Raises:
            Corrupt: the state is not a log. Another program saved it.
        """
        found = await self.scope.load()
        return None if found is None else self.items_of(found.state)

    async def append(
        self, items: list[Any], *, describe: Describe | None = None
    ) -> SnapshotInfo | None:
        """Append items, as one step; return the snapshot, None if nothing was new.

        `describe` gets the head and the new items and returns the metadata of the snapshot. It
        may be called again if another writer was faster.
        """
        if not items:
            return None
        if self._id_of is None and describe is None:
            return await self.scope.append(self._key, items)
        return await self._contended(partial(self._append, items, describe))

    async def pop(self) -> Any | Absent:
        """Remove the last item and return it; ABSENT if there is none. History keeps it."""
        return await self._contended(self._pop)

    async def _contended(self, attempt: Callable[[], Awaitable[T]]) -> T:
        where = f"scope=`{'/'.join(self.scope.key)}`"
        return await contended(self.scope.driver.tools, where, attempt)

    async def _append(self, items: list[Any], describe: Describe | None) -> SnapshotInfo | None:
        known = self._known or await self._read_known()  # another thread may set it meanwhile
        self._known = None  # unless this succeeds
        new = self._new(items, known.ids)
        if not new:
            if _revision(await self.scope.info()) != _revision(known.head):
                raise Conflict("the log was deleted or changed meanwhile")
            self._known = known
            return None
        head = await self.scope.append(
            self._key,
            new,
            metadata=None if describe is None else describe(known.head, new),
            expect=_revision(known.head),
        )
        known.ids.update(self._ids(new))
        self._known = _Known(head, known.ids)
        return head

    async def _pop(self) -> Any | Absent:
        found = await self.scope.load()
        items = [] if found is None else self.items_of(found.state)
        if found is None or not items:
            return ABSENT
        *kept, last = items
        await self.scope.save(
            {**found.state, self._key: kept},
            labels=found.labels,
            metadata=found.metadata,
            status=found.status,
            expect=found.revision,
        )
        return last

    async def _read_known(self) -> _Known:
        found = await self.scope.load()
        if found is None:
            return _Known(None, set())
        return _Known(found.with_(state=None), set(self._ids(self.items_of(found.state))))

    def _new(self, items: list[Any], known: set[str]) -> list[Any]:
        """Return the items that are not known, each id once."""
        id_of = self._id_of
        if id_of is None:
            return items
        seen: set[str] = set()
        new = []
        for item in items:
            id = id_of(item)
            if id is None or not (id in known or id in seen):
                new.append(item)
            if id is not None:
                seen.add(id)
        return new

    def _ids(self, items: list[Any]) -> Iterator[str]:
        if self._id_of is not None:
            yield from (id for id in map(self._id_of, items) if id is not None)

    def items_of(self, state: Any) -> list[Any]:
        """Return the items in a state, or raise Corrupt if it is not a log."""
        items = state.get(self._key, []) if isinstance(state, dict) else None
        if not isinstance(items, list):
            where = f"scope=`{'/'.join(self.scope.key)}` key=`{self._key}`"
            fact = "the state is not a log: another program saved it"
            raise Corrupt(f"{fact}. {where}", scope=self.scope.key)
        return items


def _revision(info: SnapshotInfo | None) -> str | None:
    return None if info is None else info.revision
