"""Patterns: what is refused, what one bound of them is, and damaged values in a file."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import limpet
from limpet import InvalidInput
from limpet.core.matching import Bound, bound_of, check, matcher
from limpet.protocol import NoteQuery
from tests.cases import for_each

BAD: list[Any] = [
    {"a": {"$in": [1]}},
    {"a": {"$gt": 1, "b": 2}},
    {"a": {"$lt": None}},
    {"a": {"$gte": [1]}},
    {"a": {"$not": {"$like": "x"}}},
    [{"a": {"$x": 1}}],
    {"a": {1: 2}},
]


@for_each("pattern", BAD)
def test_bad_patterns_are_refused(pattern: Any) -> None:
    with pytest.raises(InvalidInput):
        check(pattern)


BOUNDS: list[tuple[Any, Bound | None]] = [
    ({"a": "x"}, Bound(("a",), "eq", "x")),
    ({"a": {"b": {"$gt": 1}}, "c": 2}, Bound(("a", "b"), "ge", 1)),
    ({"a": None, "c": {"$lte": "y"}}, Bound(("c",), "le", "y")),
    ({"a": {"$ne": 1, "$lt": 2}}, Bound(("a",), "le", 2)),
    ({"a": {"$not": {"$eq": 1}}}, None),
    ({"a": [1], "b": 2**60, "c": "\0"}, None),
    ({}, None),
    (7, Bound((), "eq", 7)),
]


def test_one_bound_of_a_pattern() -> None:
    assert [bound_of(pattern) for pattern, _ in BOUNDS] == [bound for _, bound in BOUNDS]


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([0.5, 2**70, "1", " 1.5", "1_0", "x", "", "é"]),
)
VALUES: Any = st.dictionaries(
    st.sampled_from(["a", "b", 'c"d']), st.one_of(SCALARS, st.dictionaries(st.just("a"), SCALARS))
)
NUMBERS_AND_TEXTS = SCALARS.filter(lambda each: each is not None)
OPERATORS = st.one_of(
    st.dictionaries(st.sampled_from(["$eq", "$ne"]), SCALARS, min_size=1),
    st.dictionaries(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), NUMBERS_AND_TEXTS, min_size=1),
)
MEMBERS = st.one_of(
    SCALARS, OPERATORS, st.dictionaries(st.just("a"), st.one_of(SCALARS, OPERATORS))
)
PATTERNS: Any = st.dictionaries(st.sampled_from(["a", "b", 'c"d']), MEMBERS, max_size=2)


@given(values=st.lists(VALUES, max_size=5), pattern=PATTERNS)
def test_sql_finds_what_python_finds(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], pattern: Any
) -> None:
    """What is tested in SQL leaves out nothing that matches."""
    folder = tmp_path_factory.mktemp("found")
    is_match = matcher(pattern)
    with limpet.open(f"sqlite:///{folder}/a.db", synchronous="off") as store:
        scope = store.scope("s")
        for at, value in enumerate(values):
            scope.set_note(f"{at}", value)
        backend = store.driver.opened.backend
        found = backend.find_notes(NoteQuery("main", "agent", where=pattern), limit=9)
        wanted = {f"{at}" for at, value in enumerate(values) if is_match(value)}
        assert {each.name for each in found} == wanted


def test_a_damaged_value_hides_no_other(tmp_path: Path) -> None:
    with limpet.open(f"sqlite:///{tmp_path}/a.db") as store:
        for at in range(3):
            store.scope("s").set_note(f"{at}", {"n": at})
        with closing(sqlite3.connect(tmp_path / "a.db")) as conn, conn:
            conn.execute("UPDATE notes SET value = x'7b00ff' WHERE name = '1'")
        backend = store.driver.opened.backend
        for where in ({"n": {"$gte": 0}}, None):
            found = backend.find_notes(NoteQuery("main", "agent", where=where), limit=9)
            assert [each.name for each in found] == ["2", "0"]
