"""`kill -9` while tails are rolled and states rewritten: every acknowledged one reads back."""

import json
import random
import select
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

import limpet
from limpet import Scope, Store
from tests.crash import mortal_chat
from tests.crash.mortal_chat import SESSION, name_of, predict, state_of

SCRIPT = Path(mortal_chat.__file__)


def kill(task: str, url: str, begin: int, *, after: int, wait_s: float, seed: int) -> list[Any]:
    """Let a process write, kill it a moment after so many lines, and return all that it said."""
    command = [sys.executable, "-W", "error", str(SCRIPT), task, url, str(begin), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(after)]
        # Waits for nothing: it only lets the process get on with its next write.
        select.select([], [], [], wait_s)
        process.kill()
        # What it said before it died counts; a line that it did not finish does not.
        lines += [line for line in process.stdout if line.endswith(b"\n")]
    assert process.returncode == -9
    return [json.loads(line) for line in lines]


def check_states(scope: Scope, changed: dict[int, int]) -> list[int]:
    """See that every state is what its number says; return the numbers, oldest first."""
    history = [info.id for info in scope.history()][::-1]
    assert list(scope.ids()) == sorted(history)
    numbers = [int(id) for id in history]
    for number, found in zip(numbers, scope.load_many(history), strict=True):
        expected = orjson.dumps(state_of(number, changed.get(number, 0)))
        assert orjson.dumps(found.state) == expected, f"{scope.key} {found.id}"
    return numbers


def check_order(store: Store) -> None:
    assert [found for found in store.check() if found.severity != "info"] == []


def check_file(path: Path, rounds: int) -> None:
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        # A thread rolls: in a few rounds it may be killed before it did.
        if rounds > 9:
            assert conn.execute("SELECT count(*) FROM segments").fetchone() > (0,)
    names = {"store.db", "store.db-wal", "store.db-shm"}
    assert {file.name for file in path.parent.iterdir()} <= names


def moments(chance: random.Random, rounds: int, total: int) -> list[tuple[int, float]]:
    """Choose when to kill: after how many lines, and how long after."""
    waits_s = (0, 0.0005, 0.002, 0.004)
    return [(chance.randrange(1, total), chance.choice(waits_s)) for _ in range(rounds)]


def killed_in_chats(path: Path, *, rounds: int, seed: int) -> None:
    url = f"sqlite:///{path}"
    saved = 0
    for number, (after, wait_s) in enumerate(moments(random.Random(seed), rounds, 140)):
        said = kill("chat", url, saved, after=after, wait_s=wait_s, seed=number)
        assert said == list(range(saved, saved + len(said)))
        with limpet.open(url) as store:
            scope = store.scope(SESSION, "chat")
            numbers = check_states(scope, {})
            # The last may have been stored before it could say so.
            assert numbers in [list(range(saved + len(said) + more)) for more in (0, 1)]
            head = scope.load()
            assert head is not None
            assert head.state == state_of(numbers[-1])
            check_order(store)
            saved = len(numbers)
            if number % 3 == 0:  # this process goes on, with a cold cache, in the middle of a tail
                for _ in range(5):
                    mortal_chat.save(scope, saved)
                    saved += 1
    assert saved > 30 * rounds
    check_file(path, rounds)


def killed_in_drafts(path: Path, *, rounds: int, seed: int) -> None:
    url = f"sqlite:///{path}"
    begin = 0
    for number, (after, wait_s) in enumerate(moments(random.Random(seed), rounds, 80)):
        said = kill("drafts", url, begin, after=after, wait_s=wait_s, seed=number)
        with limpet.open(url) as store:
            scope = store.scope(SESSION, "drafts")
            head = scope.load()
            assert head is not None
            assert int(head.id) - said[-1] in (0, 1)
            assert orjson.dumps(head.state) == orjson.dumps(state_of(int(head.id)))
            assert list(scope.history()) == []
            assert store.stats().snapshots == 1
            check_order(store)
            begin = int(head.id) + 1
    assert begin > 10 * rounds


def killed_in_edits(path: Path, *, rounds: int, seed: int) -> Counter[str]:
    url = f"sqlite:///{path}"
    numbers: list[int] = []
    changed: dict[int, int] = {}
    kinds: Counter[str] = Counter()
    chance = random.Random(seed)
    for number in range(rounds):
        after, wait_s = chance.randrange(40, 260), chance.choice((0, 0.0005, 0.002, 0.004))
        said = kill("edits", url, 0, after=after, wait_s=wait_s, seed=number)
        tried = [message[1] for message in said if message[0] == "try"]
        done = tried[: sum(message == ["done"] for message in said)]
        for change in done:
            numbers = predict(change, numbers)
            kinds[change[0]] += 1
            note_change(change, changed)
        with limpet.open(url) as store:
            begun = tried[len(done) :]
            scope = store.scope(SESSION, "edits")
            found = [int(id) for id in scope.ids()]
            possible = [numbers, *(predict(change, numbers) for change in begun)]
            assert found in possible, f"killed during {begun}"
            numbers = found
            for change in begun:  # what was under way has happened or has not
                if change[0] == "save":
                    note_change(change, changed)
                elif change[0] == "overwrite":
                    state = next(scope.load_many([name_of(change[1])])).state
                    if state == state_of(change[1], change[2] + 1):
                        changed[change[1]] = change[2] + 1
            assert check_states(scope, changed) == numbers
            check_order(store)
    assert kinds.total() > 15 * rounds
    check_file(path, rounds)
    return kinds


def note_change(change: list[Any], changed: dict[int, int]) -> None:
    """Remember which version of a state stands; a number that was deleted may be used again."""
    if change[0] == "overwrite":
        changed[change[1]] = change[2] + 1
    elif change[0] == "save":
        changed.pop(change[1], None)


@pytest.mark.slow
def test_a_chat_that_is_killed_while_it_is_rewritten(tmp_path: Path) -> None:
    """Promises 1, 2 and 5, at any moment."""
    killed_in_chats(tmp_path / "store.db", rounds=10, seed=33)


@pytest.mark.slow
def test_drafts_that_are_killed(tmp_path: Path) -> None:
    """Promise 1 for heads that are not kept: the last acknowledged one, or the next, is shown."""
    killed_in_drafts(tmp_path / "store.db", rounds=6, seed=34)


def test_edits_that_are_killed(tmp_path: Path) -> None:
    """Promise 5: what is stored against something is whole before that something is gone."""
    kinds = killed_in_edits(tmp_path / "store.db", rounds=4, seed=35)
    assert kinds.keys() == {"save", "overwrite", "delete", "prune", "fork"}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(3))
def test_many_more_kills(tmp_path: Path, seed: int) -> None:
    for name in ("chat", "drafts", "edits"):
        (tmp_path / name).mkdir()
    killed_in_chats(tmp_path / "chat" / "store.db", rounds=40, seed=seed)
    killed_in_drafts(tmp_path / "drafts" / "store.db", rounds=40, seed=seed)
    killed_in_edits(tmp_path / "edits" / "store.db", rounds=40, seed=seed)
