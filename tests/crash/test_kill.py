"""`kill -9` at any moment: what was acknowledged is there, and what was not is whole or absent."""

import json
import random
import select
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

import limpet
from limpet import Scope, Store
from tests.concurrency import storm
from tests.concurrency.crew import Worker
from tests.crash import mortal, mortal_edits
from tests.crash.mortal import Model, Write, observe, predict
from tests.crash.mortal_edits import name_of, state_of
from tests.effort import times
from tests.servers.postgres import HERE, Postgres, Schemas, one, with_option
from tests.waiting import until

ROUNDS = times(4, full=20)


class Place(NamedTuple):
    """Where a store is, for those who are killed and for those who look at what they left."""

    url: str
    mortal_url: str
    segments: Callable[[], int]
    bury: Callable[[], None] = lambda: None
    """Waits until the server has ended what the dead had begun: until then it may still happen."""


@contextmanager
def on_postgres(postgres: Postgres, schemas: Schemas) -> Iterator[Place]:
    url = schemas.url()
    query = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mortal' AND {HERE}"
    with postgres.connect() as conn:
        count = f"SELECT count(*) FROM {schemas.name()}.segments"
        yield Place(
            url,
            with_option(url, "application_name", "mortal"),
            lambda: int(one(conn, count)),
            lambda: until(lambda: one(conn, query) == 0) and None,
        )


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/store.db"

        def segments() -> int:
            with closing(sqlite3.connect(tmp_path / "store.db")) as conn:
                return int(conn.execute("SELECT count(*) FROM segments").fetchone()[0])

        yield Place(url, url, segments)
        assert {each.name for each in tmp_path.iterdir()} <= {
            f"store.db{suffix}" for suffix in ("", "-wal", "-shm")
        }
    else:
        servers = [request.getfixturevalue(each) for each in ("postgres", "schemas")]
        with on_postgres(*servers) as place:
            yield place


ON_BOTH = pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
ON_POSTGRES_SLOWLY = pytest.mark.parametrize(
    "place", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)


def kill_after(
    acknowledged: int, program: Any, url: str, seed: int, *, wait_s: float = 0
) -> tuple[Any, list[Write], Write | None]:
    """Let a process write and kill it when it has acknowledged more than so many writes.

    Return what it found, the writes it acknowledged, and the one it had begun, if any.
    """
    command = [sys.executable, "-W", "error", program.__file__, url, str(seed), f"{seed:02}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines: list[bytes] = []
        for line in process.stdout:
            lines.append(line)
            if lines.count(b'["done"]\n') > acknowledged:
                break
        # Waits for nothing: it only lets the process get on with its next write.
        select.select([], [], [], wait_s)
        process.kill()
        # What it said before it died counts; a line that it did not finish does not.
        lines += [line for line in process.stdout if line.endswith(b"\n")]
    assert process.returncode == -9

    (_, found), *messages = map(json.loads, lines)
    tried = [message[1] for message in messages if message[0] == "try"]
    done = tried[: messages.count(["done"])]
    assert len(done) > acknowledged
    return found, done, tried[-1] if len(tried) > len(done) else None


def check(store: Store) -> None:
    assert [found for found in store.check() if found.severity != "info"] == []


@ON_BOTH
def test_what_was_acknowledged_survives_the_kill(place: Place) -> None:
    """Promises 1, 2 and 5: one store, killed many times in the middle of all kinds of writes.

    After each kill the store shows exactly what was acknowledged in all rounds so far, in order,
    with or without the one write that was under way: to one who stayed, and to a new process.
    """
    chance = random.Random(20)
    kinds: Counter[str] = Counter()
    with limpet.open(place.url) as store:
        store.scope("s", "counter").save({"count": 0}, id="counter")
        model: Model = observe(store)
        for number in range(ROUNDS):
            found, done, begun = kill_after(chance.randrange(45), mortal, place.mortal_url, number)
            place.bury()
            assert found == model, "what a new process finds is not what this one found"
            for write in done:
                model = predict(model, write)
                kinds[write[0]] += 1
            seen = observe(store)
            possible = [model] if begun is None else [model, predict(model, begun)]
            assert seen in possible, f"killed after {len(done)} writes, during {begun}"
            model = seen
            check(store)
    assert kinds.keys() == {
        "save", "append", "draft", "update", "note", "delete", "delete_note", "forget"
    }  # fmt: skip


def check_states(scope: Scope, changed: dict[int, int]) -> list[int]:
    """See that every state is what its number says; return the numbers, oldest first."""
    history = [info.id for info in scope.history()][::-1]
    assert list(scope.ids()) == sorted(history)
    numbers = [int(id) for id in history]
    for number, found in zip(numbers, scope.load_many(history), strict=True):
        expected = orjson.dumps(state_of(number, changed.get(number, 0)))
        assert orjson.dumps(found.state) == expected, f"{scope.key} {found.id}"
    return numbers


def note_change(change: Write, changed: dict[int, int]) -> None:
    """Remember which version of a state stands; a number that was deleted may be used again."""
    if change[0] == "overwrite":
        changed[change[1]] = change[2] + 1
    elif change[0] == "save":
        changed.pop(change[1], None)


def killed_in_edits(place: Place, *, rounds: int, seed: int) -> Counter[str]:
    numbers: list[int] = []
    changed: dict[int, int] = {}
    kinds: Counter[str] = Counter()
    rolled = 0
    chance = random.Random(seed)
    for number in range(rounds):
        wait_s = chance.choice((0, 0.0005, 0.002, 0.004))
        _, done, begun = kill_after(
            chance.randrange(20, 130), mortal_edits, place.mortal_url, number, wait_s=wait_s
        )
        place.bury()
        for change in done:
            numbers = mortal_edits.predict(change, numbers)
            kinds[change[0]] += 1
            note_change(change, changed)
        with limpet.open(place.url) as store:
            scope = store.scope(mortal_edits.SESSION, "edits")
            found = [int(id) for id in scope.ids()]
            possible = (
                [numbers] if begun is None else [numbers, mortal_edits.predict(begun, numbers)]
            )
            assert found in possible, f"killed during {begun}"
            numbers = found
            if begun is not None and begun[0] == "save":
                note_change(begun, changed)
            elif begun is not None and begun[0] == "overwrite":  # which happened, or did not
                state = next(scope.load_many([name_of(begun[1])])).state
                if state == state_of(begun[1], begun[2] + 1):
                    note_change(begun, changed)
            assert check_states(scope, changed) == numbers
            check(store)
        rolled += place.segments()
    # A thread rolls: in a few rounds it may be killed before it did.
    assert rounds < 10 or rolled > 0
    return kinds


@ON_POSTGRES_SLOWLY
def test_edits_that_are_killed(place: Place) -> None:
    """Promise 5: what is stored against something is whole before that something is gone."""
    kinds = killed_in_edits(place, rounds=4, seed=35)
    assert kinds.keys() == {"save", "overwrite", "delete", "prune", "fork"}


@pytest.mark.slow
@ON_BOTH
def test_writers_of_a_family_that_are_killed_together(place: Place) -> None:
    """No lock outlives its holder, and nothing that forks share is lost with them."""
    killed_in_a_storm(place, rounds=2, wait_s=0.7)


def killed_in_a_storm(place: Place, *, rounds: int, wait_s: float) -> None:
    """Kill all writers of a family at once; each round goes on with what the dead have left."""
    with limpet.open(place.url) as store:
        for number in range(rounds):
            numbers = range(10 * number, 10 * number + 3)
            program = storm.__name__, "write", place.mortal_url
            workers = [Worker(*program, each, 10_000) for each in numbers]
            for worker in workers:
                assert worker.hear() == "ready"
            for worker in workers:
                worker.tell("go")
            select.select([], [], [], wait_s)
            for worker in workers:
                worker.process.kill()
            for worker in workers:
                worker.end()
            place.bury()
            for info in store.scopes(storm.SESSION):
                scope = store.scope(*info.key)
                for found in [scope.load(), *scope.load_many(scope.ids())]:
                    if found is not None:
                        storm.check(found)
            check(store)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@ON_BOTH
@pytest.mark.parametrize(
    ("seed", "rounds"), [(0, 15), pytest.param(1, 60, marks=pytest.mark.torture)]
)
def test_many_more_kills(place: Place, seed: int, rounds: int) -> None:
    killed_in_edits(place, rounds=rounds, seed=seed)
    killed_in_a_storm(place, rounds=rounds // 3, wait_s=1.0)
