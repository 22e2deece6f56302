"""Search by meaning: with a user's embeddings, exactly, in memory."""

import importlib.util
import sys
from typing import Any

import pytest
from langgraph.store.base import PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

import limpet
from limpet import InvalidInput, Store, portable
from limpet.compat.langgraph import LimpetStore
from limpet.compat.langgraph.store import semantic
from tests.compat.langgraph_store.kit import (
    DIMS,
    Through,
    Time,
    aletters,
    indexed,
    keys,
    letters,
    run,
)

PLACE = ("docs",)


def fill(items: Any) -> None:
    items.put(PLACE, "zebra", {"text": "zany zebra", "kind": "animal"})
    items.put(PLACE, "dog", {"text": "good dog", "kind": "animal"})
    items.put(PLACE, "car", {"text": "red car", "kind": "thing"})
    items.put((*PLACE, "more"), "apple", {"text": "apple pie", "kind": "food"})
    items.put(PLACE, "hidden", {"text": "zzz"}, index=False)


def test_the_nearest_come_first(store: Store, api: str) -> None:
    embed: Any = aletters if api == "async" else letters
    items = Through(indexed(store, embed=embed, fields=["text"]), api)
    fill(items)
    found = items.search(PLACE, query="zebra")
    assert found[0].key == "zebra"
    scores = [each.score for each in found]
    assert scores[-1] is None
    assert found[-1].key == "hidden"
    assert scores[:-1] == sorted(scores[:-1], key=lambda each: -(each or 0))
    assert keys(items.search(PLACE, query="car", filter={"kind": "thing"})) == ["car"]
    assert keys(items.search((*PLACE, "more"), query="zebra")) == ["apple"]
    pages = [items.search(PLACE, query="zebra", limit=2, offset=at) for at in (0, 2, 4)]
    assert [key for page in pages for key in keys(page)] == keys(found)
    assert [each.score for each in items.search(PLACE)] == [None] * 5
    assert len(items.search(PLACE, query="")) == 5

    items.put(PLACE, "zebra", {"text": "good dogs"})
    assert items.search(PLACE, query="good dogs")[0].key == "zebra"
    items.delete(PLACE, "zebra")
    assert "zebra" not in keys(items.search(PLACE, query="good dogs"))


def test_it_finds_what_the_store_in_memory_finds(memory: Store) -> None:
    config: Any = {"dims": DIMS, "embed": letters, "fields": ["text", "tags[*]", "deep.title"]}
    ours, theirs = LimpetStore(memory, index=config), InMemoryStore(index=config)
    words = ["apple", "zebra", "dog", "cart", "yellow", "quiz", "jazz"]
    for store in (ours, theirs):
        for at, word in enumerate(words):
            tags = [f"{each}{word}" for each in words[:at]]
            store.put(
                PLACE, word, {"text": word, "tags": tags, "deep": {"title": word[::-1] + "x"}}
            )
        store.put(PLACE, "one", {"text": "bees", "other": "jazzy"}, index=["other"])
        store.put(PLACE, "empty", {"none": 1})
    for query in [*words, "bees", "jazzy", "the quick brown fox"]:
        found, wanted = (each.search(PLACE, query=query, limit=20) for each in (ours, theirs))
        assert sorted(keys(found)) == sorted(keys(wanted))
        scores = {each.key: each.score for each in wanted}
        assert {each.key: each.score for each in found} == pytest.approx(scores, abs=1e-6)


def test_without_numpy_it_is_the_same(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    items = indexed(memory)
    fill(items)
    before = [(each.key, each.score) for each in items.search(PLACE, query="zebra dog")]
    assert importlib.util.find_spec("numpy") is not None
    monkeypatch.setattr(semantic, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "numpy", None)
    after = [(each.key, each.score) for each in items.search(PLACE, query="zebra dog")]
    assert [key for key, _ in after] == [key for key, _ in before]
    assert dict(after) == pytest.approx(dict(before), abs=1e-6)


def test_without_an_index_a_query_is_ignored(memory: Store) -> None:
    items = LimpetStore(memory)
    fill(items)
    assert len(items.search(PLACE, query="zebra")) == 5
    assert items.embeddings is None


def test_texts_are_embedded_once(memory: Store) -> None:
    asked: list[list[str]] = []

    def embed(texts: Any) -> Any:
        asked.append(list(texts))
        return letters(texts)

    items = indexed(memory, embed=embed, fields=["text"])
    run(items, *(PutOp(PLACE, f"{n}", {"text": "same" if n else "other"}) for n in range(5)))
    run(items, PutOp(PLACE, "0", None), PutOp(PLACE, "9", {"none": 1}))
    assert asked == [["other", "same"]]
    run(items, SearchOp(PLACE, query="same"), SearchOp(PLACE))
    assert asked[1:] == [["same"]]


def test_bad_vectors_are_refused(memory: Store) -> None:
    for made in ([[1.0]], [[0.0] * DIMS] * 2, []):
        items = indexed(memory, embed=lambda texts, made=made: made)
        with pytest.raises(InvalidInput):
            items.put(PLACE, "a", {"text": "x"})
    assert list(memory.sessions()) == []
    indexed(memory).put(PLACE, "a", {"text": "x"})
    other = indexed(memory, dims=2, embed=lambda texts: [[1.0, 2.0] for _ in texts])
    with pytest.raises(InvalidInput, match="put the items again"):
        other.search(PLACE, query="x")
    assert keys(other.search(PLACE)) == ["a"]


def test_vectors_are_those_of_the_item_as_it_is(memory: Store) -> None:
    """Put by a store without an index it has none; what others put, and a copy, is seen."""
    items, other, plain = indexed(memory), indexed(memory), LimpetStore(memory)
    fill(items)
    assert items.search(PLACE, query="zebra")[0].key == "zebra"
    other.put(PLACE, "dog", {"text": "zebra zebra"})
    assert items.search(PLACE, query="zebra zebra")[0].key == "dog"
    with limpet.open("memory:") as copied:
        portable.copy(memory, copied)
        again = indexed(copied).search(PLACE, query="zebra zebra")
        assert again[0].key == "dog"
        assert sum(each.score is None for each in again) == 1
    plain.put(PLACE, "dog", {"text": "zebra zebra"})
    found = {each.key: each.score for each in items.search(PLACE, query="zebra zebra")}
    assert found["dog"] is None
    assert found["zebra"] is not None
    plain.delete(PLACE, "zebra")
    assert "zebra" not in keys(items.search(PLACE, query="zebra"))
    assert memory.scope("docs", kind="items").note("zebra", on="vectors") is None
    brief = indexed(memory)
    brief.put(PLACE, "brief", {"text": "zebra"}, ttl=5)
    assert brief.search(PLACE, query="zebra")[0].key == "brief"
    assert brief.search(PLACE, query="zebra")[0].score is not None  # though it was read since
    time = Time(brief)
    time.minutes = 6
    assert "brief" not in keys(brief.search(PLACE, query="zebra"))
