"""Part one: agents of the Strands SDK for Python, with its storage and with Limpet."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, NamedTuple

from strands import Agent
from strands.agent.conversation_manager import NullConversationManager
from strands.models import Model
from strands.session import SnapshotSessionManager
from strands.storage import LocalFileStorage

import limpet
from benchmarks.compat.counting import Lap, Place, Side, event_loop, in_folder, race
from benchmarks.plan import Plan
from benchmarks.postgres.disk import TOTAL
from benchmarks.postgres.server import schema
from benchmarks.traces import conversation
from limpet.compat.strands import ByteStorage
from tests.servers.postgres import Connection, Postgres, one, with_option

SDK, NOTHING = "the SDK's `LocalFileStorage`", "no session manager"
SQLITE, FOLDER, POSTGRES = "Limpet, SQLite", "Limpet, directory", "Limpet, PostgreSQL"
Spoken = Sequence[Sequence[str]]
WAL = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"


class Way(NamedTuple):
    """How a conversation is had."""

    turns: int
    save_latest_on: Literal["invocation", "message"] = "invocation"
    keeps_all: bool = False


class Reader(Model):
    """Answers each prompt by the text that follows it in a conversation."""

    def __init__(self, answers: Iterator[str]) -> None:
        self._answers = answers

    def update_config(self, **config: Any) -> None:
        """Nothing to configure."""

    def get_config(self) -> Any:
        """Nothing is configured."""
        return {}

    def structured_output(self, *args: Any, **more: Any) -> Any:
        """Never asked."""
        raise NotImplementedError

    async def stream(self, *args: Any, **more: Any) -> Any:
        """Say the next text."""
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": next(self._answers)}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def laps(plan: Plan, server: Postgres, way: Way) -> Sequence[Lap]:
    """Have the same conversation on all sides, a turn of each at a time."""
    spoken = [[each["content"] for each in turn] for turn in conversation(way.turns)]
    return [_lap(plan, server, spoken, way) for _ in range(plan.repetitions)]


def _lap(plan: Plan, server: Postgres, spoken: Spoken, way: Way) -> Lap:
    with ExitStack() as stack:
        folder = stack.enter_context(plan.place())
        run = stack.enter_context(event_loop())
        connection = stack.enter_context(server.connect())
        name = stack.enter_context(schema(server))

        def side(place: Place, storage: Any, close: Callable[[], object] = lambda: None) -> Side:
            agent = _agent(storage, spoken, way)

            def step(number: int) -> None:
                run(agent.invoke_async(spoken[number][0]))

            return Side(place, step, close=close)

        files = in_folder(folder / "sdk")
        sides = {
            NOTHING: side(in_folder(folder / "nothing"), None),
            SDK: side(files, LocalFileStorage(files.url)),
        }
        for title, place in _places(folder, connection, name, server):
            store = stack.enter_context(limpet.open(place.url))
            sides[title] = side(place, ByteStorage(store), store.close)
        return race(sides, steps=len(spoken))


def _places(
    folder: Path, connection: Connection, name: str, server: Postgres
) -> Iterator[tuple[str, Place]]:
    database = folder / "sqlite"
    yield SQLITE, in_folder(database, f"sqlite:///{database / 'agents.db'}")
    yield FOLDER, in_folder(folder / "files", f"file://{folder / 'files'}")
    yield (
        POSTGRES,
        Place(
            with_option(server.url, "schema", name),
            stored=lambda: int(one(connection, TOTAL, name)),
            written=lambda: int(one(connection, WAL)),
        ),
    )


def _agent(storage: Any, spoken: Spoken, way: Way) -> Agent:
    manager = None
    if storage is not None:
        manager = SnapshotSessionManager(
            "chat-42",
            storage=storage,
            save_latest_on=way.save_latest_on,
            snapshot_trigger=lambda **given: True,
        )
    model = Reader(answer for _, answer in spoken)
    return Agent(
        agent_id="planner",
        model=model,
        callback_handler=None,
        session_manager=manager,
        conversation_manager=NullConversationManager() if way.keeps_all else None,
    )
