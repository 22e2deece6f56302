"""What histories take: a state takes what changed in it, and a fork of it next to nothing."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import limpet
from limpet import JSON, Store
from limpet.core.codec import encode

WORDS = [Random(seed).randbytes(4).hex() for seed in range(500)]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/store.db?synchronous=off"}
    with limpet.open(urls[request.param]) as store:
        engine: Any = store.driver.opened.backend
        engine._roller = None  # rolls are made at once
        yield store


def words(seed: object, count: int = 60) -> str:
    return " ".join(Random(f"{seed}").choices(WORDS, k=count))


def chat(turns: int) -> dict[str, JSON]:
    return {"turns": turns, "messages": [{"content": words(turn)} for turn in range(turns)]}


def stored(store: Store) -> int:
    return store.stats().stored_bytes


def test_a_long_chat_takes_less_than_its_text(store: Store) -> None:
    for turns in range(200):
        store.scope("s").save(chat(turns))
    assert stored(store) < len(encode(chat(200))) / 2


def test_a_window_that_slides_takes_what_passed_through_it(store: Store) -> None:
    for turn in range(300):
        store.scope("s").save({"window": [words(each) for each in range(turn, turn + 12)]})
    assert stored(store) < len(encode(chat(312)))


def test_the_same_state_again_is_a_few_bytes(store: Store) -> None:
    store.scope("s").save(chat(50))
    before = stored(store)
    store.scope("s").save(chat(50))
    assert stored(store) - before < 32


def test_forks_share_the_state(store: Store) -> None:
    """Also a fork of a fork, and when only the facts of its source were changed meanwhile."""
    line = store.scope("s")
    line.save(chat(200))
    alone = stored(store)
    lines = [line]
    for number in range(6):
        info = lines[-1 if number % 2 else 0].info()
        assert info is not None
        if number == 3:
            lines[-1].update(info, lambda found: found.with_(status="seen"))
        patch = {"turn": number} if number > 3 else None
        lines.append(lines[-1 if number % 2 else 0].fork(info, patch=patch))
    assert stored(store) < 2 * alone + 1_000
    other = lines[-1].fork(lines[-1].info() or "", to="elsewhere")
    store.delete_session("s")
    found = other.load()
    assert found is not None
    assert found.state == {**chat(200), "turn": 5}
    assert stored(store) <= alone + 100
