"""Stores of random histories: copies of copies are the same, and what follows is brought over."""

import random
from pathlib import Path
from typing import Any

import pytest

import limpet
from limpet import portable
from tests.effort import times
from tests.portable.stores import lines

IDS = ["a", "A", "b", "x~1", "x/y", "é", "😀", "a b", "a@b", "a-b", "a-", "z\nz"]
VALUES: list[Any] = [
    None,
    True,
    10**30,
    1.0,
    1,
    -0.0,
    "\x00",
    "é😀\u2028",
    [],
    {},
    {"a": [{"b": {}}]},
]


def act(chance: random.Random, store: limpet.Store) -> None:
    """Do one thing; half of them are refused, which is no matter."""
    session, scope = chance.choice(["s", "s-", "s/x", "S"]), chance.choice(["main", "p", "p~1"])
    line = store.scope(session, scope, chance.choice(["agent", "run"]))
    ids = [info.id for info in line.history()]
    value = chance.choice(VALUES)
    match chance.randrange(10):
        case 0:
            line.set_note(chance.choice(["n", "manifest"]), value, on=chance.choice([None, *IDS]))
        case 1 if ids:
            line.fork(chance.choice(ids), to=chance.choice([None, "forks"]))
        case 2 if ids:
            line.update(chance.choice(ids), lambda before: before.with_(state=value))
        case 3 if ids:
            line.restore(chance.choice(ids))
        case _:
            facts: dict[str, Any] = {
                "id": chance.choice([None, *IDS]),
                "keep": chance.random() < 0.7,
                "head": chance.random() < 0.7,
                "overwrite": chance.random() < 0.4,
                "labels": chance.choice([None, {"b": "", "a": "1"}]),
                "metadata": chance.choice([None, {"m": value}]),
            }
            if chance.random() < 0.3:
                facts["parent"] = chance.choice([None, *IDS])
            line.save(value, **facts)


def some(chance: random.Random, store: limpet.Store, count: int) -> None:
    for _ in range(count):
        try:
            act(chance, store)
        except limpet.LimpetError:
            continue


@pytest.mark.parametrize("seed", range(times(2, full=6)))
def test_copies_of_copies(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    with (
        limpet.open("memory:") as first,
        limpet.open(f"sqlite:///{tmp_path}/x.db", synchronous="off") as second,
        limpet.open(f"file://{tmp_path}/x", sync=False) as third,
    ):
        for count in (30, 1, 2, 3):
            some(chance, first, count)
            portable.copy(first, second)
            portable.copy(second, third)
            expected = lines(first)
            assert lines(second) == expected
            assert lines(third) == expected
            assert portable.copy(third, second).written == 0
