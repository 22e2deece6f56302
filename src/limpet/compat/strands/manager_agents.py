"""What a `SessionManager` knows of its agents, and what it tells of their snapshots."""

import asyncio
import gc
import inspect
import weakref
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from limpet.compat.strands.records import Snapshot, SnapshotLocation
from limpet.errors import AlreadyExists, InvalidInput
from limpet.model import JSON

T = TypeVar("T")
Data: TypeAlias = dict[str, JSON]


class Agent(Protocol):
    """What an agent offers, so that its state can be kept. Both methods may be async.

    `agent_id` has only lowercase letters, digits, hyphens and underscores.
    """

    @property
    def agent_id(self) -> str:
        """The name of its line in the session."""
        ...

    def take_snapshot(self) -> Data | Awaitable[Data]:
        """Return all of its state, as JSON."""
        ...

    def load_snapshot(self, data: Data) -> Awaitable[None] | None:
        """Become what a state says."""
        ...


@dataclass(frozen=True)
class Restored:
    """What an agent was restored from.

    `snapshot_id` is None for the latest. `cause` is why the latest could not be read, if the newest
    good snapshot of history stands in for it.
    """

    snapshot: Snapshot
    snapshot_id: str | None = None
    cause: Exception | None = None

    @property
    def fallen_back(self) -> bool:
        """Whether the latest was damaged, so that this is an older state."""
        return self.cause is not None

    @property
    def status(self) -> str | None:
        """How the turn stood that saved it: `completed`, `failed`, or `running` if it never ended.

        None if it was not saved by a turn.
        """
        said = self.snapshot.app_data
        status = said.get("status") if isinstance(said, dict) else None
        return status if isinstance(status, str) else None


@dataclass(eq=False)
class Line:
    """The line of one agent."""

    agent: Callable[[], object]
    place: SnapshotLocation
    restored: bool = False
    unread: bool = False  # the latest could not be read, so it must not be overwritten
    busy: bool = False
    # One save at a time, so that no earlier state takes the place of a later one.
    saving: asyncio.Lock = field(default_factory=asyncio.Lock)


class Lines:
    """The lines of the agents that a manager has met; none of the agents is kept alive by it."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}

    def __iter__(self) -> Iterator[Line]:
        return iter(self._lines.values())

    def of(self, agent: Agent, place: SnapshotLocation) -> Line:
        """Return the line of an agent, and refuse a second agent of the same name."""
        line = self._lines.get(place.scope_id)
        if line is not None and line.agent() is agent:
            return line
        if line is not None and line.agent() is not None:
            gc.collect()  # one that nobody uses any more may only be part of a cycle
        if line is not None and line.agent() is not None:
            raise AlreadyExists(
                "another agent of this session has this id; release it first. "
                f"session_id=`{place.session_id}` agent_id=`{place.scope_id}`"
            )
        self._lines = {name: each for name, each in self._lines.items() if each.agent() is not None}
        self._lines[place.scope_id] = line = Line(_held(agent), place)
        return line

    def drop(self, line: Line) -> None:
        """Forget an agent."""
        del self._lines[line.place.scope_id]


def _held(agent: Agent) -> Callable[[], object]:
    try:
        return weakref.ref(agent)
    except TypeError:  # it has slots, and none for this
        return lambda: agent


def check_agent(agent: Agent) -> Agent:
    """Return an agent that has all that it needs, or raise InvalidInput."""
    for name in ("take_snapshot", "load_snapshot"):
        if not callable(getattr(agent, name, None)):
            raise InvalidInput(f"an agent needs a method {name}. type=`{type(agent).__name__}`")
    if not hasattr(agent, "agent_id"):
        raise InvalidInput(f"an agent needs an agent_id. type=`{type(agent).__name__}`")
    return agent


async def settled(value: Awaitable[T] | T) -> T:
    """Return a value that may have to be awaited."""
    if inspect.isawaitable(value):
        awaited: T = await value
        return awaited
    return value
