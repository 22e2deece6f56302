"""Old rows and files that are put back among newer ones: no answer is ever made of both.

A part of a store as it was once is true, but old; a mixture that reads as a state that was never
saved under its id is not. It raises Corrupt, or it is left out and `check` reports it.
"""

import random
from pathlib import Path
from typing import Any

import pytest

import limpet
from tests.effort import TORTURE
from tests.encryption.keys import ONE
from tests.encryption.rollbacks import (
    Below,
    Files,
    Parts,
    Rows,
    Trace,
    goes_on,
    untrue,
)

ENGINES = ["sqlite", pytest.param("file", marks=pytest.mark.slow)]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(engine: str, tmp_path: Path) -> tuple[Any, Any]:
    """Return the arguments of `limpet.open`, and how to see what is stored."""
    if engine == "file":
        return {"url": f"file://{tmp_path}/folder", "sync": False}, lambda: Files(tmp_path)
    path = tmp_path / "limpet.db"
    return {"url": f"sqlite:///{path}?synchronous=off"}, lambda: Rows(path)


@pytest.mark.parametrize(
    ("seed", "steps", "rollbacks"),
    [
        *((seed, 20, 8) for seed in (7, 9)),
        pytest.param(10, 40, 30, marks=pytest.mark.slow),
        *(pytest.param(seed, 40, 30, marks=TORTURE) for seed in range(11, 20)),
    ],
)
def test_no_mixture_of_old_and_new_is_believed(
    engine: str, seed: int, steps: int, rollbacks: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    given, below_of = opened(engine, tmp_path)
    moments: list[Parts] = []
    with limpet.open(keys=ONE, **given) as store:
        trace = Trace(store, rng)
        for at in range(steps):
            trace.step()
            if at % 4 == 0:
                moments.append(below_of().parts())
        below: Below = below_of()
        now = below.parts()
        present = {(name, id) for name in trace.scopes for id in store.scope("s", name).ids()}
        assert not list(untrue(store, trace, present))
    if engine == "file":
        present = set()  # an old head is a whole scope as it was, without what is newer
    for _ in range(rollbacks):
        below.put(back := some_old(rng, rng.choice(moments), now))
        with limpet.open(keys=ONE, **given) as store:
            wrong = [*untrue(store, trace, present), *goes_on(store, trace)]
        assert not wrong, sorted({str(place[0]) for place in back})
        below.clear()
        below.put(now)


def some_old(rng: random.Random, then: Parts, now: Parts) -> Parts:
    """Return one, some or all of the parts, of one kind or of any, that are others by now."""
    old = {place: part for place, part in then.items() if now.get(place) != part}
    kinds = sorted({str(place[0]) for place in old})
    if kinds and rng.random() < 0.8:
        kind = rng.choice(kinds)
        old = {place: part for place, part in old.items() if str(place[0]) == kind}
    places = rng.sample(sorted(old, key=str), min(len(old), rng.choice((1, 1, 2, 5, len(old)))))
    return {place: old[place] for place in places}
