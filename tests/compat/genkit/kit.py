"""What the tests of `SessionStore` share: desks on each engine, and rows to put there.

The stores of one process are shared, so each desk has tenants of its own.
"""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from limpet import Store
from limpet.compat.genkit import SessionSnapshot, SessionStore
from tests.compat.strands.kit import Grounds, store_of
from tests.present import present
from tests.runs.hands import Place
from tests.waiting import WAIT_S_MAX

Row = SessionSnapshot[Any]

FIXTURES = Path(__file__).parent / "fixtures"
SLOW = [pytest.param(each, marks=pytest.mark.slow) for each in ("directory", "postgres", "s3")]
ENGINES = ["memory", "sqlite", *SLOW]


def fixture(name: str) -> Any:
    return json.loads((FIXTURES / name).read_text("utf-8"))


def stored_rows() -> list[dict[str, Any]]:
    """Return the rows of the directory, in the order in which they were made."""
    paths = sorted((FIXTURES / "store" / "global").glob("*.json"))
    rows = [json.loads(path.read_text("utf-8")) for path in paths]
    return sorted(rows, key=lambda row: row["createdAt"])


def at(second: int) -> str:
    """Return a moment of a day in which nothing happens."""
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000Z"


def row(session_id: str = "s", second: int = 0, **facts: Any) -> Row:
    """Return a row to be saved."""
    return SessionSnapshot(session_id=session_id, created_at=at(second), **facts)


def always(answer: Any) -> Callable[[Any], Any]:
    """Return a mutator that has made up its mind."""
    return lambda current: answer


class Desk:
    """A store, and sessions of its own in it."""

    def __init__(self, store: Store, place: Place) -> None:
        self.store = store
        self.place = place
        self.tenant = f"t{secrets.token_hex(6)}"
        self.sessions = self.open()

    def open(self, store: Store | None = None, **options: Any) -> SessionStore[Any]:
        """Return another store of the same sessions; a context is part of the tenant."""

        def prefix_of(context: Any) -> str:
            return self.tenant + (context or "")

        return SessionStore(store or self.store, **{"prefix_of": prefix_of, **options})

    async def put(
        self, snapshot_id: str, session_id: str = "s", second: int = 0, **facts: Any
    ) -> None:
        """Save a new row."""
        given = row(session_id, second, **facts)
        assert await self.sessions.save_snapshot(snapshot_id, always(given)) == snapshot_id

    async def get(self, snapshot_id: str) -> Row:
        """Return a row that must be there."""
        return present(await self.sessions.get_snapshot(snapshot_id=snapshot_id))

    async def latest(self, session_id: str = "s", **options: Any) -> str | None:
        """Return the id of the latest row of a session."""
        found = await self.open(**options).get_snapshot(session_id=session_id)
        return None if found is None else found.snapshot_id


class Stores:
    """Stores that are opened when a test first asks for them."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._grounds = Grounds(request)

    def desk(self, engine: str) -> Desk:
        ground = self._grounds[engine]
        assert ground.place is not None
        return Desk(store_of(ground.storage).sync, ground.place)


class Heard:
    """A callback that remembers, and can be waited for."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def __call__(self, row: Row) -> None:
        self.rows.append(row)

    @property
    def statuses(self) -> list[str | None]:
        return [row.status for row in self.rows]

    @property
    def states(self) -> list[Any]:
        return [row.state for row in self.rows]

    async def until(self, condition: Callable[["Heard"], bool]) -> None:
        await eventually(lambda: condition(self))

    async def until_last(self, state: Any) -> None:
        """Wait until this is the last state heard of."""
        await eventually(lambda: self.states[-1:] == [state])


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not condition():
            await asyncio.sleep(0.005)


def watchers() -> int:
    """Return how many subscriptions have a task."""
    return sum(task.get_name().startswith("limpet-watch-") for task in asyncio.all_tasks())


async def all_of(*calls: Awaitable[Any]) -> list[Any]:
    """Wait for calls that are made at once."""
    return list(await asyncio.gather(*calls))
