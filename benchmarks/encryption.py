"""Measure encryption: `python -m benchmarks.encryption [--quick] [--write]`.

Prints a page of tables; goals that are missed are marked in it. Fails only if something crashes.
"""

import base64
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg

import limpet
from benchmarks.harness import Benchmark, machine
from benchmarks.material import state_of
from benchmarks.measuring import take_turns
from benchmarks.objects.disk import folder_on_disk
from benchmarks.postgres.server import place, running
from benchmarks.report import TIMES, Result, milliseconds, spread, table
from benchmarks.traces import TRACES
from tests.servers.seaweedfs import start_seaweedfs

LARGE_BYTES = 100_000
SIZE_MAX = 1.1
KEYS = base64.b64encode(bytes(range(32))).decode()
SIDES: dict[str, dict[str, Any]] = {"plain": {}, "encrypted": {"keys": KEYS}}

PREFACE = """\
# Encryption: what it costs

Written by `make bench` (`python -m benchmarks.encryption --write`).

- The same calls on two stores of one engine, one without keys and one with a key. They take
  turns, call by call, in one run; a ratio is the median of {repetitions} repetitions of {calls}
  calls, with minimum and maximum in brackets. CPU is that of the calling thread.
- **append**: one message of 200 characters to a chat. **save**: a state of 100 KB of which a part
  is new each time. **load**: the head of that.
- **size**: a chat of {turns} turns, saved whole after each turn: the file of SQLite, the tables and
  indexes of PostgreSQL, all objects of the others. These are compressed on both sides, as they
  are with keys unless an option says otherwise.

Machine: {machine}.
"""


class Sizes(NamedTuple):
    """How much is measured."""

    calls: int = 200
    repetitions: int = 5
    turns: int = 500


QUICK = Sizes(calls=20, repetitions=2, turns=60)


class Engine(NamedTuple):
    """The URLs of new stores of one engine."""

    name: str
    url: Callable[[], str]
    options: dict[str, Any]
    stored: Callable[[str, limpet.Store], int] = lambda _, store: store.stats().stored_bytes


def main() -> None:
    """Measure everything, print the page, and write it if asked."""
    run = Benchmark("encryption", "a tenth of the calls")
    sizes = QUICK if run.quick else Sizes()
    about = machine("cryptography")
    rows: list[Result] = []
    with _engines(folder_on_disk()) as engines:
        for engine in engines:
            with run.part(engine.name):
                rows += run.judged([*_times(engine, sizes), _size(engine, sizes)])
    preface = PREFACE.format(**sizes._asdict(), machine="; ".join(about))
    run.publish(f"{preface}\n{table(rows)}\n")


def _times(engine: Engine, sizes: Sizes) -> Iterator[Result]:
    with ExitStack() as stack:
        stores = {
            side: stack.enter_context(limpet.open(engine.url(), **engine.options, **keys))
            for side, keys in SIDES.items()
        }
        chats = {side: store.scope("chat") for side, store in stores.items()}
        large = {side: store.scope("large") for side, store in stores.items()}
        message = {"role": "user", "content": "x" * 200}
        verbs: dict[str, Callable[[str], Callable[[int], object]]] = {
            "append": lambda side: lambda _: chats[side].append("messages", [message]),
            "save": lambda side: (
                lambda number: large[side].save({"number": number, **_large(number)})
            ),
            "load": lambda side: lambda _: large[side].load(),
        }
        for verb, of in verbs.items():
            calls = {side: of(side) for side in SIDES}
            run = take_turns(calls, calls=sizes.calls, repetitions=sizes.repetitions)
            plain, other = (milliseconds(run.seconds(side, "cpu")) for side in SIDES)
            yield Result(
                measure=f"{engine.name}: {verb}, CPU",
                measured=f"{other} against {plain}",
                ratio=spread(run.ratios("encrypted", "plain", "cpu")),
            )
            plain, other = (milliseconds(run.seconds(side, "wall")) for side in SIDES)
            yield Result(
                measure=f"{engine.name}: {verb}, wall",
                measured=f"{other} against {plain}",
                ratio=spread(run.ratios("encrypted", "plain", "wall")),
            )


def _large(number: int) -> Any:
    state = state_of(number, size_bytes=LARGE_BYTES)
    return state if isinstance(state, dict) else {"state": state}


def _size(engine: Engine, sizes: Sizes) -> Result:
    stored = {}
    for side, keys in SIDES.items():
        url = engine.url()
        with limpet.open(url, **engine.options, **keys) as store:
            scope = store.scope("chat")
            for step in TRACES["chat"].steps(sizes.turns):
                scope.save(step.state)
            store.compact()
            stored[side] = engine.stored(url, store)
    ratio = stored["encrypted"] / stored["plain"]
    return Result(
        measure=f"{engine.name}: size of a chat",
        measured=f"{stored['encrypted']:,} bytes against {stored['plain']:,}",
        goal=f"≤ {SIZE_MAX} {TIMES}",
        ratio=f"{ratio:.3f} {TIMES}",
        met=ratio <= SIZE_MAX,
    )


def _file_bytes(url: str, store: limpet.Store) -> int:
    store.close()  # which empties the log
    return Path(url.removeprefix("sqlite:///")).stat().st_size


def _table_bytes(url: str, store: limpet.Store) -> int:
    address, _, schema = url.rpartition("schema=")
    with psycopg.connect(address.rstrip("?&"), autocommit=True) as connection:
        connection.execute("VACUUM FULL")
        found = connection.execute(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
            " WHERE relnamespace = %s::regnamespace AND relkind = 'r'",
            (schema,),
        ).fetchone()
    return int(found[0]) if found else 0


@contextmanager
def _engines(folder: Path) -> Iterator[list[Engine]]:
    with ExitStack() as stack:
        below = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        server = stack.enter_context(running(folder))
        weed = stack.enter_context(start_seaweedfs())
        packed = {"compress": "zstd"}
        yield [
            Engine("SQLite", lambda: f"sqlite:///{below / uuid4().hex}.db", {}, _file_bytes),
            Engine("PostgreSQL", lambda: stack.enter_context(place(server)), {}, _table_bytes),
            Engine("directory", lambda: f"file://{below / uuid4().hex}", packed),
            Engine("S3", lambda: f"s3://{weed.name}/{uuid4().hex}", {**weed.options, **packed}),
        ]


if __name__ == "__main__":
    main()
