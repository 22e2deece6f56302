"""Part two: `SnapshotStorage`, a growing state that is saved into history and as the latest."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any

import orjson

import limpet
from benchmarks.compat.counting import (
    Await,
    Cost,
    Lap,
    Place,
    Side,
    event_loop,
    in_folder,
    race,
    timed,
    tree_bytes,
)
from benchmarks.compat.node import Sdk
from benchmarks.measuring import order_of
from benchmarks.plan import Plan
from benchmarks.traces import conversation
from limpet.compat.strands import (
    FileStorage,
    Snapshot,
    SnapshotLocation,
    SnapshotStorage,
    StoreStorage,
)

SDK = "the SDK's `FileStorage`, TypeScript"
SQLITE, FILES = "Limpet, `StoreStorage` on SQLite", "Limpet, `FileStorage`"
LOCATION = SnapshotLocation("chat-42", "agent", "planner")
STEP_BYTES = 2_000
CREATED_AT = "2026-03-01T12:00:00.250Z"


@cache
def messages(turns: int) -> Sequence[Mapping[str, Any]]:
    """Return the messages of a conversation as the SDK has them, 2 KB a turn."""
    return [
        {"role": each["role"], "content": [{"type": "textBlock", "text": each["content"]}]}
        for turn in conversation(turns)
        for each in turn
    ]


def uuid7(number: int) -> str:
    """Return a UUID of version 7 that sorts by its number."""
    return f"019caf00-{number:04x}-7000-8000-{number:012x}"


def snapshot_of(count: int, turns: int) -> Snapshot:
    """Return the snapshot of an agent that knows so many messages."""
    data: Any = {"messages": [*messages(turns)[:count]], "state": {}}
    return Snapshot("agent", "1.0", CREATED_AT, data)


def state_bytes(start_bytes: int, steps: int) -> int:
    """Return the bytes of the state that is saved last."""
    first = start_bytes // STEP_BYTES
    return len(orjson.dumps(snapshot_of(2 * (first + steps - 1), first + steps).data))


def laps(plan: Plan, sdk: Sdk, *, start_bytes: int, steps: int, loads: int) -> Sequence[Lap]:
    """Save the same growing state on all sides, a step of each at a time."""
    first = start_bytes // STEP_BYTES
    return [_lap(plan, sdk, first, steps, loads) for _ in range(plan.repetitions)]


def _lap(plan: Plan, sdk: Sdk, first: int, steps: int, loads: int) -> Lap:
    with ExitStack() as stack:
        folder = stack.enter_context(plan.place())
        run = stack.enter_context(event_loop())
        files, database = in_folder(folder / "files"), folder / "sqlite"
        rows = in_folder(database, f"sqlite:///{database / 'agents.db'}")
        storage, store = FileStorage(files.url), stack.enter_context(limpet.open(rows.url))
        turns = first + steps
        sides = {
            SDK: _theirs(sdk, folder / "sdk", first, turns),
            FILES: _ours(run, files, storage, first, turns, lambda: run(storage.close())),
            SQLITE: _ours(run, rows, StoreStorage(store), first, turns, store.close),
        }
        return race(sides, steps=steps, loads=loads)


def _ours(
    run: Await,
    place: Place,
    storage: SnapshotStorage,
    first: int,
    turns: int,
    close: Callable[[], object],
) -> Side:
    def step(number: int) -> None:
        run(both(snapshot_of(2 * (first + number), turns), uuid7(number)))

    async def both(snapshot: Snapshot, id: str) -> None:
        await storage.save_snapshot(LOCATION, id, False, snapshot)
        await storage.save_snapshot(LOCATION, id, True, snapshot)

    def load(number: int) -> None:
        assert run(storage.load_snapshot(LOCATION)) is not None

    return Side(place, step, load, close)


def _theirs(sdk: Sdk, folder: Path, first: int, turns: int) -> Side:
    folder.mkdir()
    _open(sdk, folder, messages(turns))

    def step(number: int) -> Cost:
        given = {"id": uuid7(number), "count": 2 * (first + number), "createdAt": CREATED_AT}
        return sdk.ask("save", name=str(folder), **given)[0]

    def load(number: int) -> Cost:
        return sdk.ask("load", name=str(folder))[0]

    place = Place(str(folder), lambda: tree_bytes(folder), lambda: sdk.written)
    return Side(place, step, load)


def _open(sdk: Sdk, folder: Path, known: Sequence[Mapping[str, Any]] = ()) -> None:
    location = LOCATION.to_json()
    sdk.ask("open", name=str(folder), folder=str(folder), location=location, messages=[*known])


def listing(plan: Plan, sdk: Sdk, *, ids: int, calls: int) -> Mapping[str, list[float]]:
    """List so many ids of history; the SDK lists the folder that we have written."""
    with ExitStack() as stack:
        folder = stack.enter_context(plan.place())
        run = stack.enter_context(event_loop())
        files, database = folder / "files", f"sqlite:///{folder / 'agents.db'}"
        # The database is not synced while it is filled, which is not what is measured.
        store = stack.enter_context(limpet.open(database, synchronous="off"))
        storages: dict[str, SnapshotStorage] = {
            FILES: FileStorage(files),
            SQLITE: StoreStorage(store),
        }
        sides: dict[str, Callable[[], Cost | None]] = {SDK: partial(_list_theirs, sdk, files, ids)}
        for name, storage in storages.items():
            run(_fill(storage, ids))
            sides[name] = partial(_list_ours, run, storage, ids)
        _open(sdk, files)
        spent: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(calls):
            for name in order_of(list(sides), number):
                spent[name].append(timed(sides[name]).wall)
        return spent


def _list_theirs(sdk: Sdk, folder: Path, ids: int) -> Cost:
    cost, found = sdk.ask("list", name=str(folder))
    _check(found, ids)
    return cost


def _list_ours(run: Await, storage: SnapshotStorage, ids: int) -> None:
    _check(len(run(storage.list_snapshot_ids(LOCATION))), ids)


async def _fill(storage: SnapshotStorage, ids: int) -> None:
    await storage.save_snapshot(LOCATION, uuid7(0), True, snapshot_of(1, 1))
    for number in range(ids):
        await storage.save_snapshot(LOCATION, uuid7(number), False, snapshot_of(1, 1))


def _check(found: int, wanted: int) -> None:
    if found != wanted:
        raise AssertionError(f"{found} ids were listed of {wanted}")
