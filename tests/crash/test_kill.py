"""`kill -9` at any moment: what was acknowledged is there, and what was not is whole or absent."""

import json
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

import limpet
from limpet import Store
from limpet.engine.rolling import Limits
from tests.buckets.counting import CountingBucket, kills
from tests.buckets.opened import store_on
from tests.cases import for_each
from tests.crash.mortal import (
    ALL,
    TEMPORARY,
    Dump,
    Write,
    compare,
    dump,
    perform,
    strangers,
    unfound,
)
from tests.effort import slowly
from tests.servers.postgres import HERE, one, with_option
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-W", "error", "-m", "tests.crash.mortal"]
MOMENT_S_MAX = 0.02  # about as long as a write takes
LATE_S = 0.2  # a service on this machine needs a few milliseconds


class Place(NamedTuple):
    """Where a store is, for those who are killed and for those who look at what they left."""

    url: str
    mortal_url: str
    segments: Callable[[], int]
    bury: Callable[[], object] = lambda: None
    """Waits until the server has ended what the dead had begun: until then it may still happen."""


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """With files and folders synced."""
    match request.param:
        case "sqlite":
            path = tmp_path / "store.db"
            url = f"sqlite:///{path}"

            def segments() -> int:
                with closing(sqlite3.connect(path)) as conn:
                    return int(conn.execute("SELECT count(*) FROM segments").fetchone()[0])

            yield Place(url, url, segments)
            assert {each.name for each in tmp_path.iterdir()} <= {
                f"store.db{suffix}" for suffix in ("", "-wal", "-shm")
            }
        case "directory":
            url, folder = f"file://{tmp_path}/store", tmp_path / "store"
            yield Place(url, url, lambda: len([*folder.rglob("segments/*")]))
            left = strangers(folder)
            assert all(TEMPORARY in key for key in left), left
        case "s3":
            url = request.getfixturevalue("seaweedfs").store_url(uuid4().hex)
            yield Place(url, url, lambda: 0, lambda: time.sleep(LATE_S))
        case "postgres":
            schemas = request.getfixturevalue("schemas")
            url, count = schemas.url(), f"SELECT count(*) FROM {schemas.name()}.segments"
            named = with_option(url, "application_name", "mortal")
            alive = f"application_name = 'mortal' AND {HERE}"
            mortals = f"SELECT count(*) FROM pg_stat_activity WHERE {alive}"
            with request.getfixturevalue("postgres").connect() as conn:
                yield Place(
                    url,
                    named,
                    lambda: int(one(conn, count)),
                    lambda: until(lambda: one(conn, mortals) == 0),  # by itself, after any kill
                )


ENGINES = ("sqlite", "directory", "postgres", "s3")


def hear(source: Iterator[str], acknowledged: int) -> Iterator[str]:
    """Yield what a process says until it has acknowledged some writes."""
    for line in source:
        yield line
        acknowledged -= line == '["done"]\n'
        if acknowledged < 0:
            break


def kill_after(
    acknowledged: int, moment_s: float, url: str, seed: int
) -> tuple[Dump, list[Write], Write | None]:
    """Let a process write and kill it.

    Return what it found, the writes it acknowledged, and the one it had begun, if any.
    """
    command = [*COMMAND, url, str(seed), f"t{seed:03}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        lines = list(hear(process.stdout, acknowledged))
        time.sleep(moment_s)  # so that it is killed anywhere in a write, and not at its beginning
        process.kill()
        # What it said before it died counts; a line that it did not finish does not.
        lines += [line for line in process.stdout if line.endswith("\n")]
    assert process.returncode == -9

    (_, found), *messages = map(json.loads, lines)
    tried = [message[1] for message in messages if message[0] == "try"]
    done = tried[: messages.count(["done"])]
    assert len(done) > acknowledged
    return found, done, tried[-1] if len(tried) > len(done) else None


def settle(store: Store, oracle: Store, begun: Write | None, number: int) -> str:
    """Compare what is there with the oracle, which learns what became of the last write."""
    before, found = dump(oracle), dump(store)
    assert unfound(store) == []
    what = "none"
    if begun is None:
        assert found == before
    else:
        perform(oracle, begun)
        after = dump(oracle)
        what = compare(found, before, after)
        if what != "done":
            perform(store, begun)
            assert dump(store) == after
    for each in (oracle, store):
        perform(each, ["save", "log", f"next-{number}", number])
    assert dump(store) == dump(oracle)
    assert unfound(store) == []
    assert [each for each in store.check() if each.severity == "error"] == []
    return what


def torture(place: Place, rounds: int, writes_max: int, seed: int) -> Counter[str]:
    """Kill one process after another; return how often each write was done, or under way.

    After each kill the store shows exactly what was acknowledged in all rounds so far, in order,
    with or without the one write that was under way: to one who stayed, and to a new process.
    """
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    with limpet.open("memory:") as oracle, limpet.open(place.url) as store:
        for number in range(rounds):
            acknowledged, moment_s = chance.randrange(writes_max), chance.uniform(0, MOMENT_S_MAX)
            seen, done, begun = kill_after(acknowledged, moment_s, place.mortal_url, seed + number)
            place.bury()
            assert seen == dump(oracle), "what a new process finds is not what this one found"
            for write in done:
                perform(oracle, write)
                counts[write[0]] += 1
            counts[f"killed, {settle(store, oracle, begun, number)}"] += 1
            counts["segments"] += place.segments()
    if place.url.startswith("file"):  # no more is left than one of each who was killed
        assert len(strangers(Path(place.url.removeprefix("file://")))) <= rounds
    return counts


@pytest.mark.parametrize("place", slowly(ENGINES, but=ENGINES[:3]), indirect=True)
def test_what_was_acknowledged_survives_the_kill(place: Place) -> None:
    """Promises 1, 2, 5 and 7: one store, killed many times in the middle of all kinds of writes."""
    counts = torture(place, rounds=4, writes_max=40, seed=500)
    assert sum(counts[kind] for kind in ALL) > 30


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("place", ENGINES[:3], indirect=True)
@pytest.mark.parametrize(
    ("seed", "rounds"), [(0, 10), pytest.param(1, 60, marks=pytest.mark.torture)]
)
def test_what_was_acknowledged_survives_many_kills(place: Place, seed: int, rounds: int) -> None:
    met = {*ALL, "killed, not"}
    if place.url.startswith("file"):  # there is most that can be left half done
        rounds, met = max(rounds, 40), met | {"killed, done"}
    counts = torture(place, rounds=rounds, writes_max=60, seed=1000 * seed)
    assert counts.keys() >= met
    assert counts["segments"] > 0  # a thread rolls: in a few rounds it may be killed before it did


# Killed before every write of an object

BASE: list[Write] = [
    ["save", "log", "x-1", 11], ["save", "log", "x-2", 12], ["save", "log", "x-3", 13],
    ["note", None, "n-1", 14], ["note", "x-2", "n-1", 15], ["save", "mixed", "y-1", 16],
    ["draft", "mixed", "y-2", 17], ["append", "1"], ["append", "2"],
]  # fmt: skip
VERBS: list[list[Write]] = [
    [["save", "log", "x-9", 1]],
    [["save", "mixed", "x-9", 1]],  # over a draft
    [["aside", "log", "x-9", 1]],
    [["append", "9"]],
    [["update", "log", "x-2", 1]],
    [["overwrite", "log", "x-1", 1]],
    [["delete", "log", "x-3", 0]],
    [["delete", "log", "x-3", 0], ["delete", "log", "x-2", 0]],  # below a void head
    [["note", None, "n-9", 17]],  # it does not fit into the head
    [["fork", "log", "x-2", "fork-9"]],
    [["forget", "log"]],
]


@for_each("writes", VERBS)
def test_each_verb_is_killed_at_its_steps(writes: list[Write]) -> None:
    """Promise 2: wherever a writer dies, its write is done or not, and can be done again."""

    def opened(bucket: CountingBucket) -> Store:
        return store_on(bucket, tails=Limits(snapshots=3, newest_bytes=16_384, wholes=False))

    def fill(store: Store) -> None:
        for each in [*BASE, *writes[:-1]]:
            perform(store, each)

    with limpet.open("memory:") as oracle:
        fill(oracle)
        before = dump(oracle)
        perform(oracle, writes[-1])
        after = dump(oracle)
    found = []
    for bucket in kills(opened, fill, lambda store: perform(store, writes[-1])):
        with opened(bucket) as store:
            found.append(compare(dump(store), before, after))
            assert [each for each in store.check() if each.severity == "error"] == []
            if found[-1] == "not":
                perform(store, writes[-1])
                assert dump(store) == after
            perform(store, ["save", "log", "z-1", 5])
            assert unfound(store) == []
    # Once a write is done it stays so: there is one moment at which it happens.
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1]) == ("not", "done")
