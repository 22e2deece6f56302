"""Where a pattern stands in a state."""

import re
import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from limpet.views.diff import parts
from limpet.views.search import Match, compiled, excerpt, finder, matches
from tests.cases import for_each

STATE = {
    "title": "a plan",
    "messages": [
        {"role": "user", "content": "plan\nanother plan\nnothing"},
        {"role": "tool", "a/b~c": ["planned", 7, None, True]},
    ],
}


def found(state: Any, pattern: str, **options: bool) -> list[Match]:
    return list(matches(state, finder(re.compile(pattern)), **options))


@for_each(
    ("state", "pattern", "options", "matches"),
    [
        (
            STATE,
            "plan",
            {},
            [
                Match("/title", "a plan", 2, 6),
                Match("/messages/0/content", "plan", 0, 4),
                Match("/messages/0/content", "another plan", 8, 12),
                Match("/messages/1/a~1b~0c/0", "planned", 0, 4),
            ],
        ),
        ("aXbXc", "X", {}, [Match("", "aXbXc", 1, 2)]),  # a line is one match
        ("one\ntwo", r"one\s+two", {}, []),
        ("one\ntwo", "^two$", {}, [Match("", "two", 0, 3)]),
        ("one\n", "^$", {}, [Match("", "", 0, 0)]),
        ("", "^$", {}, [Match("", "", 0, 0)]),
        ({"plan": {"plan": 1}}, "plan", {}, []),
        (
            {"plan": {"plan": 1}},
            "plan",
            {"keys": True},
            [Match("/plan", "plan", 0, 4, True), Match("/plan/plan", "plan", 0, 4, True)],
        ),
        ([None, 7, 1.5, True, [], {}, [[], {}], {"a": {}}], "", {}, []),
    ],
)
def test_each_line_that_matches_is_found_in_order(
    state: Any, pattern: str, options: dict[str, bool], matches: list[Match]
) -> None:
    assert found(state, pattern, **options) == matches


def test_depth_costs_no_frames() -> None:
    state: Any = "deep"
    for _ in range(5_000):
        state = [{"x": state}]
    (match,) = found(state, "deep")
    assert match.pointer == "/0/x" * 5_000


def test_a_container_of_many_members_takes_no_memory() -> None:
    states = [["x"] * 100_000, [""] * 100_000, [{"x": []}] * 100_000]
    tracemalloc.start()
    try:
        assert [found(state, "y") for state in states] == [[], [], []]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000


texts = st.text(alphabet="ab/~\n", max_size=5)
states = st.recursive(
    texts | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@given(states)
def test_every_pointer_leads_to_its_text(state: Any) -> None:
    for match in found(state, "a", keys=True):
        value = state
        way = parts(match.pointer)
        for part in way:
            value = value[int(part)] if isinstance(value, list) else value[part]
        text = way[-1] if match.is_key else value
        assert match.text in text.split("\n")
        assert match.text[match.start : match.end] == "a"


def test_an_excerpt_is_around_the_match() -> None:
    (match,) = found("x" * 100 + "HERE" + "y" * 100, "HERE")
    before, text, after = excerpt(match, 34)
    assert (before, text, after) == ("…" + "x" * 9, "HERE", "y" * 19 + "…")
    assert "".join(excerpt(match, 1000)) == match.text


@given(st.integers(0, 80), st.integers(0, 80), st.integers(0, 80), st.integers(10, 90))
def test_an_excerpt_keeps_to_its_room(before: int, inside: int, after: int, room: int) -> None:
    match = Match("", "x" * before + "M" * inside + "y" * after, before, before + inside)
    shown = excerpt(match, room)
    assert len("".join(shown)) <= room + 2
    if len(match.text) <= room:
        assert "".join(shown) == match.text
    else:
        assert "…" in "".join(shown)


def test_plain_texts_are_found_as_patterns_are() -> None:
    lines = ["a fox", "A FOX", "k\u212aK", "\u017f", "Üü", "\u0130\u0131", "a.b", "", "nothing"]
    for plain in ["fox", "FOX", "k", "s", "ü", "\u212a", "i", ".", ""]:
        for ignore_case in [False, True]:
            pattern = compiled(plain, fixed=True, ignore_case=ignore_case)
            assert finder(pattern, plain)(lines) == finder(pattern)(lines), (plain, ignore_case)
