"""`kill -9` on a folder or a bucket: what was acknowledged is there, the rest whole or absent."""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import IO
from uuid import uuid4

import pytest

import limpet
from limpet import Store
from limpet.engine.rolling import Limits
from tests.buckets.counting import CountingBucket, kills
from tests.buckets.opened import store_on
from tests.cases import for_each
from tests.crash.mortal_objects import (
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
from tests.servers.service import Service

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-W", "error", "-m", "tests.crash.mortal_objects"]
MOMENT_S_MAX = 0.02  # about as long as a write takes
LATE_S = 0.2  # a service on this machine needs a few milliseconds


def hear(source: IO[str], acknowledged: int) -> list[str]:
    """Return what a process says until it has acknowledged some writes."""
    lines: list[str] = []
    for line in source:
        lines.append(line)
        acknowledged -= line == '["done"]\n'
        if acknowledged < 0:
            break
    return lines


def kill_after(
    acknowledged: int, moment_s: float, url: str, seed: int
) -> tuple[Dump, list[Write], Write | None]:
    """Let a process write and kill it.

    Return what it found, the writes it acknowledged, and the one it had begun, if any.
    """
    command = [*COMMAND, url, str(seed), f"t{seed:03}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        lines = hear(process.stdout, acknowledged)
        time.sleep(moment_s)  # so that it is killed anywhere in a write, and not at its beginning
        process.kill()
        # What it said before it died counts; a line that it did not finish does not.
        lines += [line for line in process.stdout if line.endswith("\n")]
    assert process.returncode == -9

    (_, found), *messages = (json.loads(line) for line in lines)
    done: list[Write] = []
    begun: Write | None = None
    for message in messages:
        if message[0] == "try":
            begun = message[1]
        else:
            assert begun is not None
            done.append(begun)
            begun = None
    return found, done, begun


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
    return what


def torture(
    url: str, rounds: int, writes_max: int, seed: int, *, late_s: float = 0.0
) -> Counter[str]:
    """Kill one process after another; return how often each write was done, or under way.

    A service may still be executing what a killed process has sent, for `late_s`.
    """
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    with limpet.open("memory:") as oracle:
        for number in range(rounds):
            acknowledged, moment_s = chance.randrange(writes_max), chance.uniform(0, MOMENT_S_MAX)
            seen, done, begun = kill_after(acknowledged, moment_s, url, seed + number)
            time.sleep(late_s)
            assert seen == dump(oracle), "what a new process finds is not what this one found"
            for write in done:
                perform(oracle, write)
                counts[write[0]] += 1
            with limpet.open(url) as store:
                counts[f"killed, {settle(store, oracle, begun, number)}"] += 1
                assert [each for each in store.check() if each.severity == "error"] == []
            if url.startswith("file:"):
                strange = strangers(Path(url.removeprefix("file://")))
                assert all(TEMPORARY in key for key in strange), strange
                assert len(strange) <= number + 1
    return counts


@pytest.mark.timeout(300)
def test_what_was_acknowledged_survives_the_kill(tmp_path: Path) -> None:
    """Promises 1, 2, 5 and 7, with files and folders synced: one store, killed time and again.

    After each kill it shows exactly what was acknowledged in all rounds so far, in order, with or
    without the one write that was under way, and the next write finds nothing in its way.
    """
    counts = torture(f"file://{tmp_path}/store", rounds=6, writes_max=24, seed=500)
    assert sum(counts[kind] for kind in ALL) > 30


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_a_service_acknowledged_survives_the_kill(seaweedfs: Service) -> None:
    counts = torture(
        seaweedfs.store_url(uuid4().hex), rounds=3, writes_max=24, seed=700, late_s=LATE_S
    )
    assert sum(counts[kind] for kind in ALL) > 10


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_was_acknowledged_survives_many_kills(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for number in range(3):
        counts += torture(
            f"file://{tmp_path}/{number}", rounds=30, writes_max=50, seed=1000 * number
        )
    assert counts.keys() >= ALL | {"killed, done", "killed, not"}


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
    [["note", None, "n-9", 9]],  # it does not fit into the head
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
