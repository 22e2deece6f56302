"""What LangGraph's own stores do, on every engine, through both APIs."""

from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pytest
from langgraph.store.base import (
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)

from limpet import InvalidInput, ScopeKey, Store
from limpet.compat.langgraph import LimpetSaver, LimpetStore
from tests.compat.langgraph.kit import config, put
from tests.compat.langgraph_store.kit import Through, keys, put_all, run

DOCS = ("test", "docs")


def test_an_item_is_put_changed_and_deleted(items: Through) -> None:
    before = datetime.now(UTC)
    value = {"title": "one", "deep": {"list": [1, None, 2**70, "\0é"]}}
    items.put(DOCS, "a", value)
    first = items.get(DOCS, "a")
    assert type(first) is Item
    assert (first.key, first.namespace, first.value) == ("a", DOCS, value)
    assert before <= first.created_at <= first.updated_at <= datetime.now(UTC)
    first.value["title"] = "not stored"

    items.put(DOCS, "a", {"title": "two"})
    second = items.get(DOCS, "a")
    assert second is not None
    assert (second.value, second.created_at) == ({"title": "two"}, first.created_at)
    assert second.updated_at > first.updated_at
    assert type(items.search(DOCS)[0]) is SearchItem

    items.delete(DOCS, "a")
    items.delete(DOCS, "a")
    assert items.get(DOCS, "a") is None
    assert items.search(()) == items.list_namespaces() == []
    items.put(DOCS, "a", {})
    again = items.get(DOCS, "a")
    assert again is not None
    assert again.created_at > first.created_at


def test_a_batch_reads_before_it_writes(items: Through) -> None:
    put_all(items, DOCS, a={"n": 1}, b={"n": 2})
    ops = (PutOp(DOCS, "a", {"n": 10}), GetOp(DOCS, "a"), PutOp(DOCS, "b", None), GetOp(DOCS, "b"))
    found = run(items, *ops, PutOp(DOCS, "c", {"n": 3}), PutOp(DOCS, "c", {"n": 33}))
    assert [each and each.value["n"] for each in found] == [None, 1, None, 2, None, None]
    assert {each.key: each.value["n"] for each in items.search(())} == {"a": 10, "c": 33}
    assert run(items) == []


def test_a_search_goes_by_whole_labels_and_by_last_update(items: Through) -> None:
    for namespace in [("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("a-b",), ("b", "a"), ("A",)]:
        items.put(namespace, "-".join(namespace), {})
    items.put(("a",), "a", {"of": "again"})
    assert keys(items.search(("a",))) == ["a", "a-b-c", "a-b"]
    every = keys(items.search(()))
    assert every == ["a", "A", "b-a", "a-b", "ab", "a-b-c", "a-b"]
    assert keys(items.search((), limit=3, offset=2)) == every[2:5]
    assert items.search((), limit=0) == items.search((), offset=7) == []
    labels: Any = ["a", "b"]
    assert len(items.search(labels)) == 2


FILTERS: list[tuple[Any, str]] = [
    ({"color": "red"}, "ab"),
    ({"color": "red", "score": 4.5}, "a"),
    ({"color": {"$eq": "red"}}, "ab"),
    ({"color": {"$ne": "red"}}, "cd"),
    ({"score": {"$gt": 3}}, "ac"),
    ({"score": {"$gte": 3}}, "abc"),
    ({"score": {"$gte": 3, "$lt": 4}}, "b"),
    ({"score": {"$lte": 3.0}}, "b"),
    ({"score": None}, "d"),
    ({"when": {"$gte": "2026-02"}}, "bc"),
    ({"meta": {"lang": "en"}}, "ab"),
    ({"meta": {"lang": "en", "size": {"$gt": 1}}}, "b"),
    ({"meta": {"other": None}}, "abc"),
    ({"tags": ["x", "y"]}, "a"),
    ({"tags": ["x"]}, "b"),
    ({"ok": True}, "a"),
    ({"a.b": 7}, "d"),
    ({}, "abcd"),
    (None, "abcd"),
]


def test_filters(items: Through) -> None:
    put_all(
        items,
        DOCS,
        d={"a.b": 7},
        c={"color": "green", "score": 4.0, "when": "2026-03-01", "meta": {"lang": "de"}},
        b={"color": "red", "score": 3, "when": "2026-02-01", "meta": {"lang": "en", "size": 2}}
        | {"tags": ["x"], "long": "word " * 300},
        a={"color": "red", "score": 4.5, "when": "2026-01-01", "meta": {"lang": "en", "size": 1}}
        | {"tags": ["x", "y"], "ok": True},
    )
    found = run(items, *(SearchOp(("test",), filter=each) for each, _ in FILTERS))
    assert ["".join(keys(each)) for each in found] == [names for _, names in FILTERS]
    assert keys(items.search((), filter={"color": "red"}, limit=1, offset=1)) == ["b"]


def test_namespaces_are_listed(items: Through) -> None:
    docs = [("test", "documents", each) for each in ("public", "private")]
    every = sorted([*docs, ("test", "images", "public"), ("prod", "documents", "public"), ("te",)])
    for namespace in every:
        items.put(namespace, "k", {})
    assert items.list_namespaces() == every
    assert items.list_namespaces(prefix=("te",)) == [("te",)]
    assert items.list_namespaces(prefix=("test", "*", "public")) == [every[3], every[4]]
    assert items.list_namespaces(suffix=("*", "public"), prefix=("prod",)) == [every[0]]
    assert items.list_namespaces(max_depth=1, limit=2) == [("prod",), ("te",)]
    assert items.list_namespaces(limit=2, offset=1) == every[1:3]
    for namespace in docs:
        items.delete(namespace, "k")
    assert items.list_namespaces(prefix=("test", "documents")) == []


ODD = ["/", "%", "%2F", "a/b", " ", "ä😀", "a%25b", "~", "A", "*", "long " * 20]


def test_odd_labels_and_keys_come_back(items: Through) -> None:
    """Also labels with a dot, which only `batch` lets through."""
    places = [(each,) for each in ODD] + [("a", "b"), ("x.y", "/")]
    for namespace in places:
        run(items, *(PutOp(namespace, f"{key}", {"k": key}) for key in ODD[:4]))
    assert run(items, *(GetOp(("a/b",), key) for key in ODD[:4])) == run(
        items, *(GetOp(("a/b",), key) for key in ODD[:4])
    )
    for namespace in places:
        (found,) = run(items, SearchOp(namespace))
        assert {each.namespace for each in found} == {namespace}
        assert {each.key: each.value["k"] for each in found} == {key: key for key in ODD[:4]}
    assert items.list_namespaces() == sorted(places)


def test_values_are_stored_as_langgraph_stores_them(items: Through) -> None:
    id = UUID(int=7)
    items.put(DOCS, "a", {"id": id, "day": date(2026, 1, 2), "pair": (1, 2)})
    found = items.get(DOCS, "a")
    assert found is not None
    assert found.value == {"id": str(id), "day": "2026-01-02", "pair": [1, 2]}


def test_bad_input_is_refused_and_writes_nothing(memory: Store, api: str) -> None:
    items = Through(LimpetStore(memory), api)
    bad: list[Any] = [
        PutOp((), "a", {}),
        PutOp(("",), "a", {}),
        PutOp((1,), "a", {}),  # type: ignore[arg-type]
        PutOp(("x" * 300, "y" * 300), "a", {}),
        PutOp(DOCS, "", {}),
        PutOp(DOCS, "k" * 513, {}),
        PutOp(DOCS, "a\0", {}),
        PutOp(DOCS, "a", [1]),  # type: ignore[arg-type]
        PutOp(DOCS, "a", {"x": float("nan")}),
        PutOp(DOCS, "a", {"x": {1: 2}}),
        PutOp(DOCS, "a", {"x": object()}),
        PutOp(DOCS, "a", {}, ttl=-1),
        PutOp(DOCS, "a", {}, ttl=float("nan")),
        PutOp(DOCS, "a", {}, ttl="soon"),  # type: ignore[arg-type]
        SearchOp((), filter={"x": {"$in": [1]}}),
        SearchOp((), filter={"x": {"$gt": None}}),
        SearchOp((), filter={"x": [{"$gt": 1, "y": 2}]}),
        SearchOp((), filter={1: 2}),  # type: ignore[dict-item]
        SearchOp((), limit=-1),
        SearchOp((), limit=None),  # type: ignore[arg-type]
        ListNamespacesOp(offset=-1),
        ListNamespacesOp(match_conditions=(MatchCondition("infix", ("a",)),)),  # type: ignore
        "get",
        GetOp((["a"],), "k"),  # type: ignore[arg-type]
        PutOp((["a"],), "k", {}),  # type: ignore[arg-type]
        PutOp(("a",), ["k"], {}),  # type: ignore[arg-type]
        GetOp(None, "k"),  # type: ignore[arg-type]
    ]
    items.put(("there",), "k", {})
    for op in bad:
        with pytest.raises(InvalidInput):
            run(items, PutOp(DOCS, "ok", {}), op)
        with pytest.raises(InvalidInput):
            run(items, op)
    assert items.list_namespaces() == [("there",)]
    with pytest.raises(InvalidInput):
        LimpetStore("sqlite:///x.db")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        LimpetStore(memory, ttl={"default_ttl": -5})
    with pytest.raises(ValueError, match="periods"):
        items.put(("a.b",), "k", {})


def test_items_are_notes_in_sessions(store: Store) -> None:
    """Others see them; a thread of the same name is apart, and what others wrote is no item."""
    items = LimpetStore(store)
    items.put(("alice", "mem"), "k", {"n": 1})
    items.put(("bob",), "k", {"n": 2})
    saver = LimpetSaver(store)
    put(saver, 1, x=1)
    items.put(("t",), "k", {"n": 3})

    assert list(store.sessions(prefix="alice/")) == ["alice/mem"]
    scope = store.scope("alice/mem", kind="items")
    note = scope.note("k")
    assert note is not None
    assert isinstance(note.value, dict)
    assert note.value["value"] == {"n": 1}
    saver.delete_thread("t")
    assert saver.get_tuple(config()) is None
    assert items.get(("t",), "k") is not None
    assert store.delete_session("bob") == 0
    assert items.get(("bob",), "k") is None

    for at, odd in enumerate([7, {"value": 1}, {"value": {}}, {"value": {}, "created_at": "x"}]):
        scope.set_note(f"odd{at}", odd)
    store.scope("a//b", kind="items").set_note("k", note.value)
    store.scope("a%2f", kind="items").set_note("k", note.value)
    store.scope("alice/mem", "side", kind="items").set_note("k", note.value)
    store.scope("alice/mem").set_note("k", note.value)
    assert keys(items.search(())) == ["k", "k"]
    assert items.get(("alice", "mem"), "odd0") is None
    assert items.list_namespaces() == [("alice", "mem"), ("t",)]
    items.put(("alice", "mem"), "odd0", {"mine": 1})
    assert keys(items.search(("alice",))) == ["odd0", "k"]
    assert ScopeKey("alice/mem", "main", "items") in [each.key for each in store.scopes()]
