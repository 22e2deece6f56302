"""One process for each saver; they run the turns of a conversation alternately."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from benchmarks.measuring import Clock, order_of
from benchmarks.peers.venvs import ROOT
from tests.servers.postgres import Postgres

LAST = 20  # turns, of which a figure is the median
AROUND = 5  # turns on either side, of which a figure is the median
ALONE = "alone"  # nothing is saved
TABLES = """
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')
"""
Answer = dict[str, float]


@dataclass
class Side:
    """One saver, where it saves, and what was found."""

    title: str
    saver: str
    place: str
    size: Callable[[], int]
    turns: list[Answer] = field(default_factory=list)
    bytes: int = 0
    load: list[Answer] = field(default_factory=list)
    walk: list[Answer] = field(default_factory=list)

    def command(self, verb: str, *arguments: str) -> list[str]:
        """Return how the process is started."""
        worker = [sys.executable, "-m", "benchmarks.langgraph.worker"]
        return [*worker, verb, self.saver, self.place, *arguments]

    def ask(self, verb: str) -> Answer:
        """Start a process that answers once."""
        done = subprocess.run(self.command(verb), cwd=ROOT, check=True, stdout=subprocess.PIPE)
        answer: Answer = json.loads(done.stdout)
        return answer

    def turn(self, clock: Clock, *, last: bool = True) -> float:
        """Return the seconds of a turn: of the last ones, or of the first."""
        return median(each[clock] for each in (self.turns[-LAST:] if last else self.turns[:LAST]))

    def turn_at(self, number: int, clock: Clock) -> float:
        """Return the seconds of a turn around this one, of at most as many as came before it."""
        reach = min(AROUND, number - 1)
        return median(each[clock] for each in self.turns[number - 1 - reach : number + reach])

    def walked(self, figure: str) -> float:
        """Return a figure of the walks through the history."""
        return median(each[figure] for each in self.walk)


@contextmanager
def sides(folder: Path, server: Postgres) -> Iterator[dict[str, Side]]:
    """Yield all sides, each with a new file or database."""
    with ExitStack() as stack:
        names = ("theirs", "delta", "ours")
        more = ("encrypted", "ours-encrypted", "async", "ours-async")
        files = {name: folder / f"{name}.db" for name in (*names, *more)}
        theirs, ours = (stack.enter_context(server.database()) for _ in range(2))
        yield {
            ALONE: Side("LangGraph alone", ALONE, "", lambda: 0),
            "sqlite": Side("`SqliteSaver`", "sqlite", *_file(files["theirs"])),
            "delta": Side("`SqliteSaver`, `DeltaChannel`", "sqlite-delta", *_file(files["delta"])),
            "ours": Side("Limpet, SQLite", "limpet", *_file(files["ours"], "sqlite:///")),
            "encrypted": Side(
                "`SqliteSaver`, encrypted", "sqlite-encrypted", *_file(files["encrypted"])
            ),
            "ours-encrypted": Side(
                "Limpet, SQLite, encrypted",
                "limpet-encrypted",
                *_file(files["ours-encrypted"], "sqlite:///"),
            ),
            "async": Side("`AsyncSqliteSaver`", "sqlite-async", *_file(files["async"])),
            "ours-async": Side(
                "Limpet, SQLite, async", "limpet-async", *_file(files["ours-async"], "sqlite:///")
            ),
            "postgres": Side("`PostgresSaver`", "postgres", *_database(theirs)),
            "ours-postgres": Side("Limpet, PostgreSQL", "limpet", *_database(ours)),
        }


def _file(path: Path, scheme: str = "") -> tuple[str, Callable[[], int]]:
    return f"{scheme}{path}", lambda: sum(
        each.stat().st_size for each in path.parent.glob(f"{path.name}*")
    )


def _database(url: str) -> tuple[str, Callable[[], int]]:
    def size() -> int:
        with psycopg.connect(url) as connection:
            ((found,),) = connection.execute(TABLES.encode()).fetchall()
            return int(found)

    return url, size


def have_turns(each_of: Sequence[Side], conversation: Path, turns: int) -> None:
    """Run the same conversation on all savers, turn by turn, and measure the disk at the end."""
    with ExitStack() as stack:
        running = [stack.enter_context(_running(side, conversation)) for side in each_of]
        for number in range(turns):
            for index in order_of([str(index) for index in range(len(running))], number):
                each_of[int(index)].turns.append(_next(running[int(index)]))
    for side in each_of:
        side.bytes = side.size()


@contextmanager
def _running(side: Side, conversation: Path) -> Iterator[subprocess.Popen[str]]:
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = side.command("talk", str(conversation))
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        if process.wait():
            raise SystemExit(f"it failed: {side.title}")


def _next(process: subprocess.Popen[str]) -> Answer:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    answer: Answer = json.loads(process.stdout.readline())
    return answer


def look_back(each_of: Sequence[Side], repetitions: int) -> None:
    """Read the latest state and the whole history of each saver, in new processes."""
    names = [str(index) for index in range(len(each_of))]
    for number in range(repetitions):
        for index in order_of(names, number):
            side = each_of[int(index)]
            side.load.append(side.ask("load"))
            side.walk.append(side.ask("walk"))
