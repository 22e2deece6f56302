"""Part three: the checkpoints of runs, saved after each iteration, and listed."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Protocol

import limpet
from benchmarks.compat.counting import Lap, Side, in_folder, race, read_bytes, timed, tree_bytes
from benchmarks.measuring import order_of
from benchmarks.plan import Plan
from benchmarks.traces import conversation
from limpet import JSON
from limpet.compat.runs import Checkpoint, GoRunStore, RunStore
from limpet.compat.runs import go as go_format

WHOLE = "by hand, as the Go store does it"
GO = "Limpet, `GoRunStore`"
SQLITE, FOLDER = "Limpet, `RunStore` on SQLite", "Limpet, `RunStore` in a directory"
TURN_BYTES = 2_000
TURNS_MAX = 700  # then the texts come again
RUNS_APART = 17  # a run begins so many turns after the one before


class Runs(Protocol):
    """What all sides have in common."""

    def save(self, checkpoint: Checkpoint) -> None: ...
    def load(self, run_id: str) -> Checkpoint: ...
    def list(self) -> list[Checkpoint]: ...


class WholeFiles:
    """What the Go store does, step by step, in Python: there is no Go here to run it.

    A save writes a new file and renames it; nothing is synced. A list reads
    and parses every file, and drops its messages.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a file."""
        path = self._folder / f"{checkpoint.run_id}.json"
        temporary = path.with_suffix(".json.tmp")
        temporary.write_bytes(go_format.encode(checkpoint))
        os.rename(temporary, path)

    def load(self, run_id: str) -> Checkpoint:
        """Read a file."""
        return go_format.decode((self._folder / f"{run_id}.json").read_bytes())

    def list(self) -> list[Checkpoint]:
        """Read all files."""
        paths = sorted(self._folder.glob("*.json"))
        found = [go_format.decode(path.read_bytes()) for path in paths]
        return sorted(found, key=lambda each: each.created_at, reverse=True)


class Listed(NamedTuple):
    """What a listing took in the median, and what it read."""

    wall: float
    cpu: float
    read: int
    stored: int


def laps(plan: Plan, *, iterations: int, bytes_max: int, loads: int) -> Sequence[Lap]:
    """Save a run after each of its iterations on all sides, one of each at a time."""
    each = max(1, round(bytes_max / iterations / TURN_BYTES))
    messages = _messages(each * iterations)

    def side(place: Any, runs: Runs, close: Callable[[], object] = lambda: None) -> Side:
        def step(number: int) -> None:
            runs.save(_checkpoint("run-1", number, messages[: 2 * each * (number + 1)]))

        def load(number: int) -> None:
            assert runs.load("run-1").iteration == iterations - 1

        return Side(place, step, load, close)

    done = []
    for _ in range(plan.repetitions):
        with plan.place() as folder:
            whole, go = in_folder(folder / "whole"), in_folder(folder / "go")
            files = in_folder(folder / "files")
            database = in_folder(folder / "sqlite", f"sqlite:///{folder / 'sqlite' / 'runs.db'}")
            ours = {SQLITE: RunStore(database.url), FOLDER: RunStore(files.url)}
            for runs in ours.values():
                with suppress(limpet.NotFound):
                    runs.load("run-1")  # opens the store, which then has its tables
            sides = {
                WHOLE: side(whole, WholeFiles(folder / "whole")),
                GO: side(go, GoRunStore(go.url)),
                FOLDER: side(files, ours[FOLDER], ours[FOLDER].close),
                SQLITE: side(database, ours[SQLITE], ours[SQLITE].close),
            }
            done.append(race(sides, steps=iterations, loads=loads))
    return done


def listing(plan: Plan, *, runs: int, run_bytes: int, calls: int) -> Mapping[str, Listed]:
    """List many runs; stores are reopened for each call."""
    turns = run_bytes // TURN_BYTES
    messages = _messages(turns + RUNS_APART * runs)
    with plan.place() as folder:
        for name in ("go", "files", "sqlite"):
            (folder / name).mkdir()
        files, database = str(folder / "files"), f"sqlite:///{folder / 'sqlite' / 'runs.db'}"
        with ExitStack() as stack:
            # Nothing is synced while it is filled, which is not what is measured.
            stores = [
                stack.enter_context(limpet.open(files, sync=False)),
                stack.enter_context(limpet.open(database, synchronous="off")),
            ]
            sides: list[Runs] = [WholeFiles(folder / "go"), *map(RunStore, stores)]
            for number in range(runs):
                start = 2 * RUNS_APART * number
                known = messages[start : start + 2 * turns]
                for each in sides:
                    each.save(_checkpoint(f"run-{number:04d}", number, known))
        opened: dict[str, tuple[Path, Callable[[], Runs]]] = {
            WHOLE: (folder / "go", lambda: WholeFiles(folder / "go")),
            GO: (folder / "go", lambda: GoRunStore(folder / "go")),
            FOLDER: (folder / "files", lambda: RunStore(files)),
            SQLITE: (folder / "sqlite", lambda: RunStore(database)),
        }
        return _listed(opened, runs, calls)


def _listed(
    opened: Mapping[str, tuple[Path, Callable[[], Runs]]], runs: int, calls: int
) -> Mapping[str, Listed]:
    spent: dict[str, list[Listed]] = {name: [] for name in opened}
    for number in range(calls):
        for name in order_of(list(opened), number):
            folder, make = opened[name]
            side = make()
            found: list[Checkpoint] = []
            before = read_bytes()
            cost = timed(partial(_take, side, found))
            read = read_bytes() - before
            if len(found) != runs:
                raise AssertionError(f"{len(found)} runs were listed of {runs}")
            if isinstance(side, RunStore):
                side.close()
            spent[name].append(Listed(*cost, read, tree_bytes(folder)))
    return {
        name: Listed(
            median(each.wall for each in every),
            median(each.cpu for each in every),
            round(median(each.read for each in every)),
            every[-1].stored,
        )
        for name, every in spent.items()
    }


def _take(side: Runs, found: list[Checkpoint]) -> None:
    found += side.list()


def _messages(turns: int) -> list[JSON]:
    return [
        {"content": [{"text": each["content"], "type": "text"}], "role": each["role"]}
        for turn in islice(cycle(conversation(min(turns, TURNS_MAX))), turns)
        for each in turn
    ]


def _checkpoint(run_id: str, number: int, messages: list[JSON]) -> Checkpoint:
    return Checkpoint(
        run_id,
        "summarise",
        number,
        messages,
        "You are a careful worker.",
        input_tokens=500 * number,
        output_tokens=250 * number,
        created_at=f"2026-03-01T12:{number // 60 % 60:02d}:{number % 60:02d}.123456789Z",
    )
