"""What people see of a diff: changes by top-level key, and the words of a text that changed."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.core.diff import diff
from limpet.model import Change
from limpet.views.diff import Group, Messages, brief, groups, parts, text_lines, value_lines
from tests.cases import for_each

Lines = list[tuple[str, str]]


def lines(before: str, after: str, chars_max: int | None = 80) -> Lines:
    """Return the lines of a changed text; what changed in them stands in brackets."""
    return [
        (mark, "".join(f"[{text}]" if changed else text for text, changed in spans))
        for mark, spans in text_lines(before, after, chars_max=chars_max)[0]
    ]


def test_changes_stand_below_their_top_level_key() -> None:
    before = {"mood": "calm", "n": 1, "messages": [{"id": 1, "text": "a"}, {"id": 2}]}
    after = {"mood": "bold", "messages": [{"id": 1, "text": "b"}, {"id": 2}, {"id": 3}], "": 1}
    found = groups(diff(before, after), is_object=True)
    assert [each.key for each in found] == ["n", "mood", "messages", ""]
    messages = found[2]
    assert messages.counts == {"added": 1, "changed": 1}
    assert [messages.below(each) for each in messages.changes] == ["0.text", "2"]
    assert [each.below(each.changes[0]) for each in (found[0], found[3])] == ["", ""]


def test_what_is_no_object_is_one_group() -> None:
    (found,) = groups(diff(["a"], ["b", "c"]), is_object=False)
    assert found.key is None
    assert [found.below(each) for each in found.changes] == ["0", "1"]
    (found,) = groups(diff({"a": 1}, 7), is_object=False)
    assert (found.key, [found.below(each) for each in found.changes]) == (None, ["."])
    assert groups(diff(1, 1), is_object=False) == []


def test_places_below_a_key_with_odd_names() -> None:
    group = Group("a/b", [])
    assert group.below(Change("/a~1b/c~1d/0", "added", None, 1)) == "c/d.0"
    assert group.below(Change("/a~1b/", "added", None, 1)) == "."
    assert parts("/a~1b/~01/") == ["a/b", "~1", ""]


def test_the_lines_of_a_value() -> None:
    assert value_lines("one\ntwo\x1b[2J") == (["one", "two\\x1b[2J"], 0)
    assert value_lines({"a": [1]}) == (["{", '  "a": [', "    1", "  ]", "}"], 0)
    assert value_lines("one\ntwo\nthree", lines_max=1, chars_max=2) == (["o…"], 2)


def test_messages_are_known_by_their_place() -> None:
    call = {"id": "c1", "function": {"name": "maps", "arguments": "{}"}}
    state = {
        "a/b": {"role": "user", "content": "no message: it stands elsewhere"},
        "messages": [
            {"role": "user", "content": "left or right?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "left\x1b[2J"},
        ],
    }
    messages = Messages(state)
    told = [messages.said(f"/messages/{at}", each) for at, each in enumerate(state["messages"])]
    assert told == [
        ("user", "user", "left or right?"),
        ("assistant", "assistant", "▸ maps()"),
        ("tool", "tool", "◂ maps → left\\x1b[2J"),
    ]
    for pointer in ("/a~1b", "/messages", "/messages/0/content", "/messages/x", ""):
        assert messages.said(pointer, {"role": "user", "content": "x"}) is None
    assert Messages(7).said("/messages/0", {"role": "user", "content": "x"}) is None


def test_brief_ends_somewhere() -> None:
    assert len(brief("x" * 1_000_000)) == 10_000
    assert len(brief(["x"] * 1_000_000)) == 10_000
    assert len(brief({"role": "user", "content": "x" * 1_000_000})) < 11_000
    assert brief({"a": [1, "ä"]}) == '{"a": [1, "ä"]}'


COUNT = "\n".join(map(str, range(20)))
BEFORE, AFTER, HUGE = "word " * 1_000, " word" * 1_000, "some words " * 500_000


@for_each(
    ("before", "after", "shown"),
    [
        # An edited line shows its words; lines that have nothing in common are whole.
        (
            "the quick brown fox",
            "the quick red fox",
            [("-", "the quick [brown] fox"), ("+", "the quick [red] fox")],
        ),
        ("calm", "bold", [("-", "[calm]"), ("+", "[bold]")]),
        ("", "a\nb", [("+", "[a]"), ("+", "[b]")]),
        ("a", "", [("-", "[a]")]),
        (
            COUNT,
            COUNT.replace("9\n", "9\nnew\n", 1),
            [("…", "9 lines"), (" ", "9"), ("+", "[new]"), (" ", "10"), ("…", "9 lines")],
        ),
        # A long line is shown around its change. By words alone, a huge one would take minutes.
        (
            f"{BEFORE}old{AFTER}",
            f"{BEFORE}new{AFTER}",
            [
                ("-", f"…{BEFORE[-24:]}[old]{AFTER[:24]}…"),
                ("+", f"…{BEFORE[-24:]}[new]{AFTER[:24]}…"),
            ],
        ),
        (
            f"{HUGE}old{HUGE}",
            f"{HUGE}brand new{HUGE}",
            [
                ("-", f"…{HUGE[-24:]}[oldsome]{HUGE[4:28]}…"),
                ("+", f"…{HUGE[-24:]}[brand newsome]{HUGE[4:28]}…"),
            ],
        ),
        (
            "a\x1b[2J b c d",
            "a\x1b[2J b c e",
            [("-", "a\\x1b[2J b c [d]"), ("+", "a\\x1b[2J b c [e]")],
        ),
    ],
)
def test_the_lines_of_a_changed_text(before: str, after: str, shown: Lines) -> None:
    assert lines(before, after) == shown


def rows(text: str) -> list[str]:
    return text.split("\n") if text else []


@given(st.text("ab \n", max_size=40), st.text("ab \n", max_size=40))
def test_no_line_that_differs_is_lost(before: str, after: str) -> None:
    found = text_lines(before, after)[0]
    assert (found == []) == (before == after)
    for mark, text in (("-", before), ("+", after)):
        told = iter(rows(text))
        assert all(line.text in told for line in found if line.mark == mark)
    gone = sum(line.mark == "-" for line in found)
    come = sum(line.mark == "+" for line in found)
    assert come - gone == len(rows(after)) - len(rows(before))


@given(st.text("ab c", max_size=20), st.text("ab c", max_size=20))
def test_the_pieces_of_a_line_are_the_line(before: str, after: str) -> None:
    for mark, spans in text_lines(before, after)[0]:
        assert "".join(span.text for span in spans) == (before if mark == "-" else after)
    sames = [
        [span.text for span in spans if not span.changed]
        for _, spans in text_lines(before, after)[0]
    ]
    if len(sames) == 2:
        assert "".join(sames[0]) == "".join(sames[1])


@pytest.mark.parametrize("shape", ["lines", "words", pytest.param("both", marks=pytest.mark.slow)])
def test_large_texts_that_have_little_in_common_take_little_time(shape: str) -> None:
    """A comparison of everything with everything would outlast the test's time."""
    dice = random.Random(7)
    wide, high = {"lines": (1, 20_000), "words": (200_000, 1), "both": (200, 900)}[shape]

    def text() -> str:
        rows = (" ".join(dice.choice("abcdef") for _ in range(wide)) for _ in range(high))
        return "\n".join(rows)

    assert len(text_lines(text(), text())[0]) >= 2


def test_lines_that_are_not_shown_are_counted() -> None:
    before = "\n".join(f"line {n}" for n in range(100))
    for after in (before.upper(), before.replace("line 5", "5"), f"{before}\nx", ""):
        everything, none = text_lines(before, after)
        some, more = text_lines(before, after, lines_max=3)
        assert (none, some, more) == (0, everything[:3], len(everything) - 3)


@pytest.mark.slow
def test_a_million_lines() -> None:
    before = "\n".join(f"line {n}" for n in range(1_000_000))
    begun = time.process_time()
    some, more = text_lines(before, before.upper(), lines_max=12)
    assert time.process_time() - begun < 10
    assert (len(some), more) == (12, 2_000_000 - 12)
