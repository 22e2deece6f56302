"""Whatever is done to a tree of snapshots, every one that is left reads back exactly as saved.

Promise 5 above all: deltas, prunes, rewrites of a base and forks never change what any other
snapshot reads back as. Long random programs of all verbs on one file, by two stores that take
turns; and directed ones, that take away what others may be stored against.
"""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from limpet import AlreadyExists, ScopeKey
from tests.effort import slowly
from tests.property.trees import BASE, KINDS, ODD, Forest, Line, evolve, grow, message

MAIN = ScopeKey("s")
QUOTED = 'quo"te \\ ключ'
KEYS = ["messages", "log", "notes", 'quo"te', "ключ", "a\\b", "decoy", ""]


@pytest.fixture
def forest(tmp_path: Path) -> Iterator[Forest]:
    forest = Forest(tmp_path / "store.db")
    yield forest
    forest.close()


# Random programs. Each step draws from a seed of its own, so that a program which fails can be
# cut down to the steps that matter: `Program(path, seed).run([3, 17, 80])`.


class Program:
    """A seed, and what it does to a file."""

    def __init__(self, path: Path, seed: int) -> None:
        self.seed = seed
        self.forest = Forest(path, stores=2)
        self.done: list[str] = []

    def run(self, steps: Iterable[int], *, verify_every: int = 1) -> None:
        number = 0
        try:
            for number in steps:
                self._step(random.Random(f"{self.seed}/{number}"), number)
                if number % verify_every == 0:
                    self.forest.verify()
            self.forest.verify()
            self.forest.verify_empty()
        except BaseException as error:
            error.add_note(f"seed {self.seed}, step {number}; the last: {self.done[-8:]}")
            raise
        finally:
            self.forest.close()

    def _step(self, chance: random.Random, number: int) -> None:
        if chance.random() < 0.4:
            self.forest.turn()
        verbs = {
            self.grow: 24, self.save: 16, self.append: 10, self.overwrite: 8, self.update: 8,
            self.delete: 9, self.fork: 8, self.again: 3, self.forget: 5, self.compact: 3,
            self.reopen: 3,
        }  # fmt: skip
        (verb,) = chance.choices(list(verbs), list(verbs.values()))
        key = MAIN if chance.random() < 0.6 else chance.choice([MAIN, *self.forest.lines])
        self.done.append(f"{number} {verb.__name__} {key.session_id}/{key.scope_id}")
        verb(chance, key, self.forest.line(key))

    def _some(self, chance: random.Random, line: Line) -> str:
        """Choose a snapshot: the head, one of the last, or any."""
        ids = list(line.entries)
        if line.head is not None and chance.random() < 0.25:
            return line.head
        return chance.choice(ids[-6:] if chance.random() < 0.3 else ids)

    def _next(self, chance: random.Random, line: Line) -> Any:
        state = None if not line.entries else line.entries[self._some(chance, line)].state
        return evolve(chance, state, chance.choice([*KINDS, "odd", "odd", "odd"]))

    def grow(self, chance: random.Random, key: ScopeKey, line: Line) -> None:
        """Several in a row, so that tails are rolled; drafts too."""
        kind = chance.choice([*KINDS])
        options = chance.choice([{}, {}, {}, {"keep": False}, {"head": False}])
        count = chance.choice((2, 5, 10, 70))
        for saved in grow(self.forest, key, kind, count, seed=chance.random(), **options):
            if chance.random() < 0.1 and saved.id in line.entries:
                self.forest.delete(key, saved.id)

    def save(self, chance: random.Random, key: ScopeKey, line: Line) -> None:
        named = chance.choice((None, None, f"x{chance.random()}", f"🦀é{chance.random()}"))
        options: dict[str, Any] = {"id": named}
        options |= chance.choice([{}, {}, {"keep": False}, {"head": False}])
        options["metadata"] = {"n": chance.random()}
        if chance.random() < 0.3 and line.entries:
            options["parent"] = parent = self._some(chance, line)
            state = evolve(chance, line.entries[parent].state, chance.choice([*KINDS]))
        else:
            state = self._next(chance, line)
        self.forest.save(key, state, **options)

    def append(self, chance: random.Random, key: ScopeKey, line: Line) -> None:
        for _ in range(chance.choice((1, 1, 3, 35))):
            items = [message(chance) for _ in range(chance.choice((0, 1, 1, 2)))]
            if chance.random() < 0.1:
                items = [*items, chance.choice(ODD)]
            name = "messages" if chance.random() < 0.6 else chance.choice(KEYS)
            self.forest.append(key, name, items, keep=chance.random() < 0.8)

    def overwrite(self, chance: random.Random, key: ScopeKey, line: Line) -> None:
        for _ in range(min(chance.choice((1, 1, 4)), len(line.entries))):
            id, state = self._some(chance, line), self._next(chance, line)
            if chance.random() < 0.2:
                state = line.entries[id].state
            # Not the same facts, or the same state would be a repetition.
            self.forest.save(
                key, state, id=id, overwrite=True, metadata={"n": chance.random()},
                keep=line.entries[id].info.kept or chance.random() < 0.5,
            )  # fmt: skip

    def again(self, chance: random.Random, key: ScopeKey, line: Line) -> None:
        """The same id and body once more changes nothing; with another body it is refused."""
        if line.entries:
            entry = line.entries[self._some(chance, line)]
            info, scope = entry.info, self.forest.store.scope(*key)
            facts: dict[str, Any] = {"metadata": info.metadata, "status": info.status}
            assert scope.save(entry.state, id=info.id, keep=info.kept, **facts) == info
            with pytest.raises(AlreadyExists):
                scope.save([entry.state], id=info.id, **facts)

    def update(self, chance: random.Random, key: ScopeKey, line: Line) -> None:
        if line.entries:
            id = self._some(chance, line)
            state = line.entries[id].state if chance.random() < 0.3 else self._next(chance, line)
            self.forest.update(key, id, state, status=chance.choice(("completed", "failed")))

    def delete(self, chance: random.Random, key: ScopeKey, line: Line) -> None:
        ids = list(line.entries)
        match chance.randrange(4):
            case 0:
                ids = chance.sample(ids, min(len(ids), chance.randrange(12)))
            case 1:
                ids = ids[:: chance.choice((2, 3, 7, 33))]
            case 2 if ids:
                begin = chance.randrange(len(ids))
                ids = ids[begin : begin + chance.randrange(40)]
            case _:
                ids = ids[-chance.choice((1, 2, 3)) :]
        self.forest.delete(key, *ids, "not there")

    def fork(self, chance: random.Random, key: ScopeKey, line: Line) -> None:
        if not line.entries or len(self.forest.lines) > 12:
            return
        id = self._some(chance, line)
        patch = None
        if isinstance(line.entries[id].state, dict) and chance.random() < 0.5:
            patch = {"after": {"mood": message(chance)}, "version": chance.randrange(9)}
        options = {"scope_id": f"f{chance.randrange(10**9)}", "patch": patch}
        to = chance.choice([None, None, None, "t"])
        fork = self.forest.fork(key, id, to=to, **options)
        grow(self.forest, fork, "counters", chance.choice((0, 1, 20, 40)), seed=chance.random())

    def forget(self, chance: random.Random, key: ScopeKey, line: Line) -> None:
        """Most of a scope, or all of one, or a session to which some were forked."""
        match chance.randrange(10):
            case 0 | 1 | 2 if key != MAIN:
                self.forest.delete_scope(key)
            case 0:
                self.forest.delete_scope(MAIN)
            case 1:
                self.forest.delete_session("t")
            case _:
                self.forest.prune(key, chance.choice((0, 1, 5, 30, 100)))

    def compact(self, chance: random.Random, key: ScopeKey, line: Line) -> None:
        self.forest.store.compact()

    def reopen(self, chance: random.Random, key: ScopeKey, line: Line) -> None:
        self.forest.reopen()


@pytest.mark.parametrize("seed", slowly(range(6), but=range(1)))
def test_random_trees_read_back_exactly(tmp_path: Path, seed: int) -> None:
    Program(tmp_path / "store.db", seed).run(range(1, 81), verify_every=16)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 140))
def test_more_random_trees_read_back_exactly(tmp_path: Path, seed: int) -> None:
    Program(tmp_path / "store.db", seed).run(range(1, 201), verify_every=5)


# Directed ones. Every state stands alone afterwards: nothing may have been left that others need.


def finish(forest: Forest) -> None:
    """See that all is there, with warm caches and cold, and that it goes on and can all go."""
    forest.verify()
    forest.reopen()
    forest.verify()
    for key in list(forest.lines)[:3]:
        grow(forest, key, "counters", 40, seed="more")
    forest.verify()
    forest.store.compact()
    forest.verify()
    forest.verify_empty()


@pytest.mark.parametrize("kind", slowly(KINDS, but=("middle",)))
def test_every_second_is_deleted(forest: Forest, kind: str) -> None:
    saved = grow(forest, MAIN, kind, 200, seed=kind)
    forest.delete(MAIN, *(info.id for info in saved[::2]))
    finish(forest)


@pytest.mark.slow
@pytest.mark.parametrize("kind", slowly(("append", "middle", "tool"), but=("middle",)))
def test_each_is_overwritten_in_random_order(forest: Forest, kind: str) -> None:
    chance = random.Random(70)
    saved = list(grow(forest, MAIN, kind, 70))
    chance.shuffle(saved)
    for number, info in enumerate(saved):
        before = forest.line(MAIN).entries[info.id].state
        state = evolve(chance, before, chance.choice(["middle", "summary", "odd", "files"]))
        forest.save(MAIN, state, id=info.id, overwrite=True, metadata={"n": number})
        if number % 10 == 0:
            forest.verify()
    finish(forest)


@pytest.mark.parametrize("keep_last", slowly((0, 1, 33, 149), but=(33,)))
def test_a_prune_leaves_the_newest(forest: Forest, keep_last: int) -> None:
    grow(forest, MAIN, "counters", 150)
    forest.prune(MAIN, keep_last)
    finish(forest)


def test_drafts_and_kept_ones_and_asides_alternate(forest: Forest) -> None:
    chance = random.Random(3)
    modes: list[dict[str, Any]] = [{"keep": False}, {}, {"head": False}]
    for number in range(240):
        mode = modes[number % 3] if number < 120 else chance.choice(modes)
        grow(forest, MAIN, "counters", 1, seed=number, **mode)
        if number % 40 == 39:
            forest.verify()
    finish(forest)


def test_drafts_are_promoted_and_overwritten_in_place(forest: Forest) -> None:
    """What is stored against a draft that becomes another state, or a kept one, stays."""
    chance = random.Random(4)
    for number in range(90):
        (draft,) = grow(forest, MAIN, "counters", 1, seed=number, keep=False)
        state = evolve(chance, forest.line(MAIN).entries[draft.id].state, "middle")
        if number % 3 == 0:
            forest.save(MAIN, state, id=draft.id, overwrite=True, keep=number % 2 == 0)
        elif number % 3 == 1:
            forest.update(MAIN, draft.id, state)
    finish(forest)


@pytest.mark.slow
def test_a_fork_of_a_draft_outlives_it(forest: Forest) -> None:
    forks = []
    for number in range(70):
        (draft,) = grow(forest, MAIN, "append", 1, seed=number, keep=False)
        if number % 7 == 0:
            forks.append(forest.fork(MAIN, draft.id, scope_id=f"f{number}"))
    forest.verify()
    grow(forest, MAIN, "append", 40, keep=False)
    forest.verify()
    for fork in forks[::2]:
        grow(forest, fork, "append", 35)
    forest.delete_scope(MAIN)
    finish(forest)


@pytest.mark.parametrize("patched", slowly((False, True), but=(True,)))
def test_a_chain_of_forks_loses_its_middle(forest: Forest, patched: bool) -> None:
    chain = [MAIN]
    grow(forest, MAIN, "counters", 40)
    for depth in range(60):
        key = chain[-1]
        patch = {"version": depth, "log": [depth]} if patched else None
        head = forest.line(key).head or ""
        chain.append(forest.fork(key, head, scope_id=f"d{depth}", patch=patch))
        if depth % 4 == 0:
            grow(forest, chain[-1], "counters", 3, seed=depth)
    forest.verify()
    for key in chain[1:-1]:
        forest.delete_scope(key)
    forest.verify()
    forest.prune(MAIN, 1)
    finish(forest)


@pytest.mark.parametrize("by", slowly(("scope", "each", "prune", "overwrite"), but=("prune",)))
def test_forks_outlive_their_source(forest: Forest, by: str) -> None:
    saved = grow(forest, MAIN, "sliding", 100)
    for number, info in enumerate(saved[::5]):
        fork = forest.fork(MAIN, info.id, scope_id=f"f{number}")
        grow(forest, fork, "middle", number, seed=number)
    forest.verify()
    if by == "scope":
        forest.delete_scope(MAIN)
    elif by == "each":
        forest.delete(MAIN, *(info.id for info in saved))
    elif by == "prune":
        forest.prune(MAIN, 1)
    else:
        for info in saved:
            forest.save(MAIN, {"gone": info.id}, id=info.id, overwrite=True)
    finish(forest)


@pytest.mark.slow
@pytest.mark.parametrize("name", slowly(("log", QUOTED, "messages"), but=(QUOTED,)))
def test_appends_to_any_list_after_anything(forest: Forest, name: str) -> None:
    """Also to a head that was saved, deleted, uncovered, forked, overwritten or made elsewhere."""
    chance = random.Random(name)
    forest.save(MAIN, {**BASE, "wide": 1})
    for number in range(150):
        forest.append(MAIN, name, [message(chance)] * (number % 3), keep=number % 5 != 4)
        head = forest.line(MAIN).head or ""
        state = forest.line(MAIN).entries[head].state
        if number % 13 == 12:
            forest.append(MAIN, "log", [2**70 if number == 64 else 1e16, {"]": "["}])
        elif number % 17 == 16:
            forest.delete(MAIN, head)
        elif number % 19 == 18:
            forest.update(MAIN, head, {"first": [number], **state})
        elif number % 23 == 22:
            forest.reopen()
        elif number % 29 == 28:
            forest.save(MAIN, dict(reversed(state.items())))
        elif number == 100:
            forest.append(forest.fork(MAIN, head, scope_id="f"), name, [number])
        if number % 25 == 24:
            forest.verify()
    finish(forest)


def test_a_store_with_stale_caches_goes_on(tmp_path: Path) -> None:
    """Two stores on one file: what one remembers of the head, the other has long changed."""
    forest = Forest(tmp_path / "store.db", stores=2)
    for number in range(60):
        forest.turn()
        match number % 6:
            case 0 | 3:
                grow(forest, MAIN, "counters", 7, seed=number)
            case 1:
                forest.delete(MAIN, *list(forest.line(MAIN).entries)[-4:])
            case 2:
                head = forest.line(MAIN).head or ""
                forest.update(MAIN, head, {**BASE, "messages": [number]})
            case 4:
                forest.append(MAIN, "messages", [number])
            case 5:
                grow(forest, MAIN, "append", 34, seed=number, keep=False)
        if number % 8 == 0:
            forest.verify()
    finish(forest)
