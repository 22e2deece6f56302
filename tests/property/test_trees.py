"""Whatever is done to a tree of snapshots, every one that is left reads back exactly as saved.

Promise 5 above all. The random programs of the conformance suite have small states and limits;
these have states as agents have them and the limits that users have. Each takes away what others
may be stored against.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from limpet import ScopeKey
from tests.effort import slowly
from tests.property.trees import BASE, KINDS, Forest, evolve, grow, message

MAIN = ScopeKey("s")
QUOTED = 'quo"te \\ ключ'


@pytest.fixture
def forest(tmp_path: Path) -> Iterator[Forest]:
    """See in the end that all is there, also with cold caches, and that it goes on."""
    forest = Forest(tmp_path / "store.db")
    yield forest
    forest.verify()
    forest.reopen()
    grow(forest, MAIN, "counters", 40, seed="more")
    forest.store.compact()
    forest.verify()
    forest.verify_empty()


@pytest.mark.parametrize("kinds", slowly((("middle",), (*KINDS,)), but=(("middle",),)))
def test_every_second_is_deleted(forest: Forest, kinds: tuple[str, ...]) -> None:
    for kind in kinds:
        key = ScopeKey("s", kind)
        saved = grow(forest, key, kind, 184 // len(kinds) + 16, seed=kind)
        forest.delete(key, *(info.id for info in saved[::2]))


@pytest.mark.slow
def test_each_is_overwritten_in_random_order(forest: Forest) -> None:
    chance = random.Random(70)
    saved = list(grow(forest, MAIN, "middle", 70))
    chance.shuffle(saved)
    for number, info in enumerate(saved):
        state = evolve(chance, forest.state(MAIN, info.id), chance.choice([*KINDS]))
        forest.save(MAIN, state, id=info.id, overwrite=True, metadata={"n": number})


@pytest.mark.parametrize("all_kept", slowly(((33,), (0, 1, 79)), but=((33,),)))
def test_a_prune_leaves_the_newest(forest: Forest, all_kept: tuple[int, ...]) -> None:
    for keep_last in all_kept:
        key = ScopeKey("s", f"{keep_last}")
        grow(forest, key, "counters", 80)
        forest.do(key, "prune", keep_last=keep_last)


def test_drafts_are_replaced_promoted_and_overwritten_in_place(forest: Forest) -> None:
    """What is stored against a draft that becomes another state, or a kept one, stays."""
    chance = random.Random(4)
    modes: list[dict[str, Any]] = [{"keep": False}, {}, {"head": False}, {"keep": False}]
    for number in range(160):
        (info,) = grow(forest, MAIN, "counters", 1, seed=number, **modes[number % 4])
        state = evolve(chance, forest.state(MAIN, info.id), "middle")
        if number % 4 == 0:
            forest.save(MAIN, state, id=info.id, overwrite=True, keep=number % 8 == 0)
        elif number % 4 == 3:
            forest.update(MAIN, info.id, state)


@pytest.mark.slow
def test_a_fork_of_a_draft_outlives_it(forest: Forest) -> None:
    forks = []
    for number in range(70):
        (draft,) = grow(forest, MAIN, "append", 1, seed=number, keep=False)
        if number % 7 == 0:
            forks.append(forest.fork(MAIN, draft.id, scope_id=f"f{number}"))
    for fork in forks[::2]:
        grow(forest, fork, "append", 35)
    forest.do(MAIN, "delete")


def test_a_chain_of_forks_loses_its_middle(forest: Forest) -> None:
    chain = [MAIN]
    grow(forest, MAIN, "counters", 40)
    for depth in range(60):
        key = chain[-1]
        patch = {"version": depth, "log": [depth]} if depth % 3 else None
        chain.append(forest.fork(key, forest.head(key), scope_id=f"d{depth}", patch=patch))
        if depth % 4 == 0:
            grow(forest, chain[-1], "counters", 3, seed=depth)
    for key in chain[1:-1]:
        forest.do(key, "delete")
    forest.verify()
    forest.do(MAIN, "prune", keep_last=1)


@pytest.mark.parametrize(
    "ways", slowly((("prune",), ("delete", "each", "overwrite")), but=(("prune",),))
)
def test_forks_outlive_their_source(forest: Forest, ways: tuple[str, ...]) -> None:
    lost = {}
    for by in ways:
        source = ScopeKey("s", by)
        lost[by] = grow(forest, source, "sliding", 100 // len(ways) + 20, seed=by)
        for number, info in enumerate(lost[by][::5]):
            fork = forest.fork(source, info.id, scope_id=f"{by}-{number}")
            grow(forest, fork, "middle", number // len(ways), seed=number)
    forest.verify()
    for by, saved in lost.items():
        source = ScopeKey("s", by)
        if by in ("delete", "prune"):
            forest.do(source, by, **({"keep_last": 1} if by == "prune" else {}))
            continue
        for info in saved:
            if by == "each":
                forest.delete(source, info.id)
            else:
                forest.save(source, {"gone": info.id}, id=info.id, overwrite=True)


@pytest.mark.slow
def test_appends_to_any_list_after_anything(forest: Forest) -> None:
    """Also to a head that was deleted, uncovered, forked, updated or made elsewhere."""
    chance = random.Random(7)
    forest.save(MAIN, {**BASE, "wide": 1})
    for number in range(110):
        name = ("log", QUOTED, "messages")[number % 4 % 3]
        items = [message(chance)] * (number % 3)
        forest.do(MAIN, "append", name, items, keep=number % 5 != 4)
        head, state = forest.head(MAIN), forest.state(MAIN)
        if number % 13 == 12:
            forest.do(MAIN, "append", "log", [2**70 if number == 64 else 1e16, {"]": "["}])
        elif number % 17 == 16:
            forest.delete(MAIN, head)
        elif number % 19 == 18:
            forest.update(MAIN, head, {"first": [number], **state})
        elif number % 23 == 22:
            forest.reopen()
        elif number % 29 == 28:
            forest.save(MAIN, dict(reversed(state.items())))
        elif number == 100:
            fork = forest.fork(MAIN, head, scope_id="f")
            forest.do(fork, "append", name, [number])
